"""A script that a stranger wrote, and how it is run here."""

import os
import re
import shlex
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from ddpjob_operator.api.entrypoint import job_name

from tests.local.here import Here

Wait = Callable[[str, Callable[[], Any]], object]

SCRIPTS = Path(__file__).parent / "scripts"
IMAGES = 12_000
"""How many there are of what is called MNIST here: noise, where the scripts look before they download."""

RAISES = """\
import torch


def _raise_at_a_step(module, _, seen=[]):
    if isinstance(module, (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)):
        seen.append(module)
    together = torch.distributed.is_initialized()
    if len(seen) == 30 and (not together or torch.distributed.get_rank() == torch.distributed.get_world_size() - 1):
        raise ValueError("batch 30 is broken")


torch.nn.modules.module.register_module_forward_pre_hook(_raise_at_a_step)
"""


@dataclass(frozen=True)
class Stranger:
    """A script that is run as it is, but for `changes`.

    what     it is
    works    what the test sees of it
    call     what is typed after `ddpjob run`; EPOCHS stands for a number
    begins   what a rank writes when it begins an epoch, or comes by
    change   what is to be changed in it, in words
    changes  the same: old text and new
    saves    whether it goes on after a restart, and does not start over
    nodes    on which it is run
    steps    whether its steps are counted
    every    how many epochs lie between two saves: a kill in the midst of one leaves half a file
    """

    script: str
    what: str
    works: str
    call: str
    begins: str
    change: str = "nothing"
    changes: dict[str, str] = field(default_factory=dict)
    saves: bool = True
    nodes: int = 2
    steps: bool = True
    every: int = 1

    @property
    def name(self) -> str:
        """Of its run."""
        return job_name(self.script.removesuffix(".py"))

    @property
    def last(self) -> int:
        """The highest of its nodes' numbers."""
        return self.nodes - 1

    def write(self, directory: Path, before: str = "", images: int = IMAGES) -> None:
        """Puts it into somebody's directory, with the data that it reads."""
        text = (SCRIPTS / self.script).read_text()
        for old, new in self.changes.items():
            assert text.count(old) == 1, f"{old!r} is to be changed in {self.script}"
            text = text.replace(old, new)
        (directory / self.script).write_text(before + text)
        if "MNIST" in text:
            write_mnist(directory / "data" / "MNIST" / "raw", images)

    def command(self, epochs: int, *options: str) -> list[str]:
        """What is typed after `ddpjob`."""
        return ["run", "--name", self.name, *options, *shlex.split(self.call.replace("EPOCHS", str(epochs)))]

    def epochs(self, here: Here, node: int) -> list[int]:
        """All epochs that a node has begun, in all its attempts."""
        logs = sorted(here.run(self.name).glob(f"logs/attempt-*/node-{node}.log"))
        return [epoch for log in logs for epoch in self.begun(log.read_text(errors="replace"))]

    def begun(self, log: str) -> list[int]:
        """All epochs that have begun, by what a node has written."""
        return [int(epoch) for epoch in re.findall(self.begins, log)]

    def goes_on(self, wait: Wait, epochs: Callable[[], list[list[int]]], story: Callable[[], object]) -> None:
        """Each node comes two epochs further, from where it saved or from the beginning, none ahead of the others.

        wait    for what it is told of, in words and as a condition
        epochs  that each node has begun since it was to go on
        story   what there was instead
        """

        def since() -> list[list[int]]:
            # What was still to be written of the former attempt comes first.
            return [log if self.saves else log[log.index(0) :] if 0 in log else [] for log in epochs()]

        wait("two epochs more", lambda: all(log[1:] for log in since()))
        begun, later = since(), since()  # Logs are read one after another, and the nodes go on meanwhile.
        assert all((0 in log) is not self.saves for log in begun), (begun, story())
        if self.steps:
            assert begun[0][-1] - 1 <= begun[-1][-1] <= later[0][-1] + 1, (begun, later, story())

    def trains(self, here: Here) -> psutil.Process:
        """A process that trains: the last one that was started, be it by the script itself."""
        found = here.ranks(self.name)
        spawned = [child for rank in found for child in rank.children() if "spawn_main" in " ".join(child.cmdline())]
        return max(spawned or found, key=psutil.Process.create_time)


def write_mnist(directory: Path, images: int) -> None:
    """Files in MNIST's form, with noise; those of the test have but one image."""
    directory.mkdir(parents=True, exist_ok=True)
    for part, number in (("train", images), ("t10k", 1)):
        pixels, labels = os.urandom(number * 784), bytes(byte % 10 for byte in os.urandom(number))
        (directory / f"{part}-images-idx3-ubyte").write_bytes(struct.pack(">4i", 2051, number, 28, 28) + pixels)
        (directory / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 2049, number) + labels)


WITHOUT_MASTER = {
    '    os.environ["MASTER_ADDR"] = "10.57.23.164"\n    os.environ["MASTER_PORT"] = "8888"\n': "",
    'backend="nccl"': 'backend="gloo"',
}
OF_THE_JOB = {
    '    os.environ["MASTER_ADDR"] = "localhost"\n    os.environ["MASTER_PORT"] = "12355"\n': "",
    "    world_size = 2\n    mp.spawn(train, args=(world_size,), nprocs=world_size, join=True)\n": (
        '    train(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))\n'
    ),
}
WITHOUT_SLURM = {
    "SLURM_PROCID": "RANK",
    "SLURM_NTASKS": "WORLD_SIZE",
    "SLURM_LOCALID": "LOCAL_RANK",
    'node_list = str(os.environ["SLURM_NODELIST"])\n': "",
    'node_parts = re.findall("[0-9]+", node_list)\n': "",
    'host_ip = f"{node_parts[1]}.{node_parts[2]}.{node_parts[3]}.{node_parts[4]}"\nport = "23456"\n': "",
    'init_method = f"tcp://{host_ip}:{port}"': 'init_method = "env://"',
    '"nccl"': '"gloo"',
}
COUNTED = "runs; its steps are counted"

STRANGERS = {
    "multinode": Stranger(
        "multinode.py",
        "PyTorch's multinode tutorial: `DistributedDataParallel`, `DistributedSampler`, a snapshot every N epochs"
        " into the working directory",
        f"{COUNTED}; goes on from its snapshot",
        "multinode.py --nodes 2 -- EPOCHS 10",
        r"Epoch (\d+) \| Batchsize",
        change="the backend `nccl`, where there is no GPU",
        every=10,
    ),
    "imagenet": Stranger(
        "imagenet.py",
        "like PyTorch's imagenet example, which the fourth tutorial teaches: flags, a ResNet, a checkpoint each"
        " epoch",
        f"{COUNTED}; goes on from its checkpoint if it is called with `-- --resume checkpoint.pth.tar` from the"
        " start: as long as there is no such file, it begins at the beginning",
        "imagenet.py --nodes 2 -- --epochs EPOCHS --dist-backend gloo --resume checkpoint.pth.tar",
        r"Epoch: \[(\d+)\]\[ *0/",
        change="nothing; without a GPU `--dist-backend gloo`",
    ),
    "accelerated": Stranger(
        "accelerated.py",
        "a loop with Hugging Face Accelerate: `save_state` and `load_state` each epoch, a bar of tqdm",
        f"{COUNTED}, also over restarts; goes on from its last saved epoch",
        "accelerated.py --nodes 2 -- EPOCHS",
        r"epoch (\d+) begins",
    ),
    "lit": Stranger(
        "lit.py",
        'Lightning: a module, a `Trainer` for two nodes, `ModelCheckpoint(save_last=True)`, `ckpt_path="last"`',
        f"{COUNTED}, also over restarts, with their number, epoch and loss; goes on from its last epoch",
        "lit.py --nodes 2 -- EPOCHS",
        r"epoch (\d+) begins",
    ),
    "fine_tune": Stranger(
        "fine_tune.py",
        'Hugging Face\'s `Trainer`: `save_strategy="epoch"`, and from `get_last_checkpoint` on',
        "runs; its steps are reported, with their number, epoch and loss; goes on from its last checkpoint",
        "fine_tune.py --nodes 2 -- EPOCHS",
        r"epoch (\d+) begins",
    ),
    "spawned": Stranger(
        "spawned.py",
        "like the first tutorial: `-n`, `-g`, `-nr`, and `mp.spawn` of a node's processes, over MNIST",
        f"{COUNTED}, in what it spawns; starts over, with all its processes, since it saves nothing",
        "--nodes 2 -- bash -c 'exec ddpjob-supervise spawned.py -n $NNODES -g 1 -nr $NODE_RANK --epochs EPOCHS'",
        r"Epoch \[(\d+)/\d+\], Step \[0/",
        change="leave out the two lines that set `MASTER_ADDR` and `MASTER_PORT`; without a GPU the backend",
        changes=WITHOUT_MASTER,
        saves=False,
    ),
    "mlp": Stranger(
        "mlp.py",
        "like the second tutorial: an MLP on MNIST by two processes of one machine, which `mp.spawn` starts",
        f"{COUNTED}, in what it spawns; starts over. It is for one node: of two on one machine one finds its port"
        " taken, and on two machines each trains by itself, without a word",
        "mlp.py",
        r"Rank 1, Epoch: (\d+)",
        saves=False,
        nodes=1,
    ),
    "mlp on two nodes": Stranger(
        "mlp.py",
        "the same on two nodes",
        f"{COUNTED}; starts over",
        "mlp.py --nodes 2",
        r"Rank \d, Epoch: (\d+)",
        change="leave out the two lines that set `MASTER_ADDR` and `MASTER_PORT`; in place of `mp.spawn` call"
        ' `train(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))`',
        changes=OF_THE_JOB,
        saves=False,
    ),
    "sizes": Stranger(
        "sizes.py",
        "like the third tutorial's DDP program: random data through a layer that prints sizes, and no training",
        "runs; starts over. It makes no steps, so that nobody can say whether it hangs",
        "sizes.py --nodes 2",
        r"Outside (\d+):",
        change="the backend `nccl`, where there is no GPU",
        changes={'"nccl"': '"gloo"', "data_size = 90": "data_size = 3_000_000"},
        saves=False,
        steps=False,
    ),
    "parallel": Stranger(
        "parallel.py",
        "like the third and fourth tutorials' `DataParallel` programs: one process for all GPUs of a node",
        f"{COUNTED}; starts over. On two nodes each would train by itself, and a warning says so",
        "parallel.py",
        r"epoch (\d+) loss",
        changes={"range(100)": "range(100_000)"},
        saves=False,
        nodes=1,
    ),
    "slurm": Stranger(
        "slurm.py",
        "like the fifth tutorial: rank and size as Slurm says them, and `tcp://` to an address cut out of its list of"
        " nodes",
        f"{COUNTED}; starts over",
        "slurm.py --nodes 2",
        r"epoch (\d+) loss",
        change="`SLURM_PROCID`, `SLURM_NTASKS` and `SLURM_LOCALID` are `RANK`, `WORLD_SIZE` and `LOCAL_RANK`, and"
        ' `init_method="env://"` in place of the address; without a GPU the backend',
        changes=WITHOUT_SLURM,
        saves=False,
    ),
}
