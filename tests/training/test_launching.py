"""Ways to start a run that are not a pod's process: by hand, several per node, torchrun."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.ports import hold_port
from tests.support.waiting import patience
from tests.training.forking import fork_supervisor
from tests.training.ranks import world

TRAIN = ["--epochs", "1", "--threads", "1", "--checkpoint-dir"]


def without_a_place() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in world(0, 1, 1)}


def said_by(launcher: str, port: object, *words: object) -> str:
    """What a launcher of PyTorch's prints that starts two of our processes."""
    launch = [sys.executable, "-m", launcher, "--nproc-per-node=2", f"--master-port={port}", "-m", "ddpjob_trainer"]
    done = subprocess.run(
        [*launch, *map(str, words)],
        env=without_a_place(),
        capture_output=True,
        text=True,
        timeout=patience(60),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def said_by_ddpjob_train(directory: Path, *words: object, **env: str) -> str:
    """What `ddpjob-train` prints, started with these variables."""
    said = directory / "said"
    process = fork_supervisor("ddpjob_trainer", [*map(str, words)], without_a_place() | env, directory, said)
    try:
        assert process.wait(patience(60)) == 0, said.read_text()
    finally:
        process.kill()
    return said.read_text()


def test_without_any_variable_one_process_trains_alone(tmp_path: Path) -> None:
    said = said_by_ddpjob_train(tmp_path, *TRAIN, tmp_path)
    assert said.startswith("a world of one process on ")
    assert "warning" not in said.lower()


@pytest.mark.parametrize(
    "launcher",
    [
        "ddpjob-train",
        pytest.param("torchrun", marks=pytest.mark.full("docs/how-to/run-without-an-operator.md trains so")),
    ],
)
def test_two_processes_of_one_node_are_started(tmp_path: Path, launcher: str) -> None:
    port = str(hold_port())
    if launcher == "torchrun":
        said = said_by("torch.distributed.run", port, *TRAIN, tmp_path)
    else:
        node = {"NNODES": "1", "NODE_RANK": "0", "NPROC_PER_NODE": "2", "WORLD_SIZE": "2"}
        said = said_by_ddpjob_train(tmp_path, *TRAIN, tmp_path, **node, MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    assert "rank 0 of 2" in said
    assert "rank 1 of 2" in said
    assert said.count("finished ") == 1
    told = {word for line in said.splitlines() if line.startswith("progress ") for word in line.split()}
    assert {word for word in told if word.startswith("rank=")} == {"rank=0", "rank=1"}
    assert [path.name for path in tmp_path.glob("step-*")] == ["step-00000022"]


@pytest.mark.full("--local-rank is read in tests/unit/rank/places/test_variables.py; torchrun starts the same agent")
def test_torch_distributed_launch_passes_a_local_rank_and_that_is_right(tmp_path: Path) -> None:
    said = said_by("torch.distributed.launch", hold_port(), "--workload", "random", *TRAIN, tmp_path)
    assert said.count("  In Model: input size torch.Size([30, 5]) output size torch.Size([30, 2])") == 2
    assert said.count("finished ") == 1


RESTARTED = """
import os
import re
import signal
import sys
import time
import ddpjob
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
rank, restart = (int(os.environ[name]) for name in ("RANK", "TORCHELASTIC_RESTART_COUNT"))
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
if rank == 0:  # gloo finds addresses of the former ranks there, and most restarts fail: pytorch#135712.
    for key in store.list_keys():
        if key.startswith("default_pg/") and "ddpjob" not in key:
            store.delete_key(key)
    store.set(f"swept/{restart}", "")
store.wait([f"swept/{restart}"])
dist.init_process_group("gloo")
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batches = [torch.ones(2, 4)] * 10
time.sleep(1 - rank)  # So rank 1 looks for rank 0 when the store has only what the former rank 0 has left there.
training = ddpjob.Training(model=model, optimizer=optimizer, loader=batches, directory=sys.argv[1], every_steps=5)
for epoch in training.epochs(3):
    for batch in training.batches():
        model(batch).mean().backward()
        optimizer.step()
        training.step()
        time.sleep(0.05)  # Otherwise saves are skipped.
        if (rank, restart, training.global_step) == (1, 0, 17):
            os.kill(os.getpid(), signal.SIGKILL)
dist.destroy_process_group()
"""


@pytest.mark.full(
    "tests/unit/rank/test_group_agreement.py has the key by which the ranks of a restart find each other"
)
def test_ranks_that_torchrun_starts_again_beside_the_same_store_resume_and_go_on_saving(tmp_path: Path) -> None:
    script, elsewhere = tmp_path / "restarted.py", tmp_path / "elsewhere"
    script.write_text(RESTARTED)
    elsewhere.mkdir()
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    done = subprocess.run(
        [*launch, os.path.relpath(script, elsewhere), "checkpoints"],
        cwd=elsewhere,
        env=without_a_place(),
        capture_output=True,
        text=True,
        timeout=patience(60),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    resumed = re.findall(r"^resumed step=(\d+) ", done.stdout, re.MULTILINE)
    saved = [int(step) for step in re.findall(r"^saved step=(\d+) ", done.stdout, re.MULTILINE)]
    assert resumed in (["10"], ["15"]), "the save of step 15 may not have been durable"
    assert saved[saved.index(int(resumed[0])) + 1 :] == [*range(int(resumed[0]) + 5, 31, 5)]
    assert "warning: " not in done.stdout + done.stderr
    assert max(path.name for path in (elsewhere / "checkpoints").glob("step-*")) == "step-00000030"
