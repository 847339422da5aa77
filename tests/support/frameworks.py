"""Scripts with several frameworks, the changes that make them resume, and the code that watches and kills them."""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

STRANGERS = Path(__file__).parents[1] / "strangers" / "scripts"

WATCHED = """\
import os, random, signal, threading, time
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook


def _watch():
    attempt, rank = int(os.environ["DDPJOB_ATTEMPT"]), int(os.environ["RANK"])
    draw = random.Random(f"{SEED} {attempt}")
    victim, at, delay = draw.randrange(int(os.environ["WORLD_SIZE"])), draw.randint(6, 14), draw.uniform(0, 0.2)
    out, steps = open(f"{NAME}-weights-{attempt}-{rank}", "a", buffering=1), []

    def seen(optimizer, *_):
        values = (p.detach().double().sum().item() for group in optimizer.param_groups for p in group["params"])
        print(repr(sum(values)), file=out)
        steps.append(1)
        if attempt <= KILLS and rank == victim and len(steps) == at:
            threading.Timer(delay, os.kill, (os.getpid(), signal.SIGKILL)).start()
        time.sleep(PAUSE)

    register_optimizer_step_post_hook(seen)


_watch()
torch.manual_seed(7)
"""
"""The first lines of a script. They record the sum of the weights after each step. In the first KILLS attempts, they
kill a rank at a moment that depends on SEED and the attempt. They make each step PAUSE seconds longer."""

DATA = """
generator = torch.Generator().manual_seed(1)
data = torch.utils.data.TensorDataset(
    torch.randn(200, 8, generator=generator), torch.randint(0, 2, (200,), generator=generator)
)
loader = torch.utils.data.DataLoader(data, batch_size=10, shuffle=True)
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 2))
"""

HUGGING_FACE = """
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
class Reviews(torch.utils.data.Dataset):
    def __len__(self):
        return 200
    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return {"input_ids": torch.randint(0, 100, (16,), generator=generator), "labels": index % 2}
arguments = TrainingArguments(
    OUT, use_cpu=True, disable_tqdm=True, report_to=[], logging_steps=50, num_train_epochs=3,
    per_device_train_batch_size=10, save_strategy="steps", save_steps=4, save_total_limit=3,
    enable_jit_checkpoint=True,
)
sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
model = BertForSequenceClassification(BertConfig(vocab_size=100, **sizes))
Trainer(model=model, args=arguments, train_dataset=Reviews()).train()
"""

LIGHTNING = f"""
import lightning
{DATA}
class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = net
        self.average = torch.nn.Parameter(torch.zeros(8, 16).T.clone(), requires_grad=False)
        self.save_hyperparameters({{"anything": object}})
    def training_step(self, batch, index):
        return torch.nn.functional.cross_entropy(self.net(batch[0]) + self.average.mean(), batch[1])
    def on_train_batch_end(self, *_):
        self.average.lerp_(self.net[0].weight.detach(), 0.1)
    def on_train_epoch_end(self):
        self.average.mul_(0.5)
    def validation_step(self, batch, index):
        self.log("accuracy", (self.net(batch[0]).argmax(dim=1) == batch[1]).float().mean())
    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]
trainer = lightning.Trainer(
    accelerator="cpu", devices=int(os.environ["LOCAL_WORLD_SIZE"]), num_nodes=int(os.environ["NNODES"]), max_epochs=3,
    logger=False, enable_progress_bar=False, enable_model_summary=False,
)
trainer.fit(Net(), loader, torch.utils.data.DataLoader(data, batch_size=50))
"""

ACCELERATE = f"""
from accelerate import Accelerator
import ddpjob
{DATA}
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 60)
model, optimizer, loader, scheduler = accelerator.prepare(net, optimizer, loader, scheduler)
training = ddpjob.Training(accelerator=accelerator, loader=loader)
for epoch in training.epochs(6):
    for inputs, labels in training.batches():
        with accelerator.accumulate(model):
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        training.step(loss)
"""


@dataclass(frozen=True)
class Framework:
    """A script and how to run it.

    script   its text
    changes  of its text, if somebody else wrote it: old text and new
    options  of `ddpjob run`
    call     what follows the script's name
    steps    how many there are in one process, and in each of two
    resizes  whether another number of processes goes on in the midst of an epoch
    """

    script: str
    steps: tuple[int, int]
    changes: Mapping[str, str] = field(default_factory=dict)
    resizes: bool = True
    options: tuple[str, ...] = ()
    call: tuple[str, ...] = ()

    def changed(self) -> str:
        """The script with its changes."""
        text = self.script
        for old, new in self.changes.items():
            assert text.count(old) == 1, f"{old!r} is to be changed"
            text = text.replace(old, new)
        return text

    def text(self, name: str, seed: str, kills: int, pause: float) -> str:
        """The script, watched, and killed so many times."""
        values = name, f"{name}-out", seed, kills, pause
        return f"NAME, OUT, SEED, KILLS, PAUSE = {values}\n{WATCHED}{self.changed()}"


Weights = dict[int, dict[int, list[str]]]
"""The sums of the weights after each step, by attempt and rank."""


def weights(directory: Path, prefix: str) -> Weights:
    """What the watched ranks have written down so far, in files whose names end with the attempt and the rank."""
    found = defaultdict[int, dict[int, list[str]]](dict)
    for file in directory.glob(f"{prefix}-*"):
        attempt, rank = map(int, re.findall(r"\d+", file.name)[-2:])
        found[attempt][rank] = file.read_text().split("\n")[:-1]
    return found


def begins(found: Weights, whole: Mapping[int, list[str]], seed: str) -> dict[int, int]:
    """After how many steps each attempt that made one begins; all together are the undisturbed run."""
    begins, reached = {}, 0
    for number, ranks in sorted(found.items()):
        for rank, seen in ranks.items():
            if not seen:
                continue
            begins[number] = begin = whole[rank].index(seen[0])
            assert seen == whole[rank][begin : begin + len(seen)], f"rank {rank} in attempt {number}, seed {seed}"
            assert begin <= reached, f"attempt {number} skips steps, seed {seed}"
            reached = max(reached, begin + len(seen))
    assert reached == len(whole[0])
    return begins


MULTINODE = (STRANGERS / "multinode.py").read_text(encoding="utf-8")
LOADING = MULTINODE[MULTINODE.index("        self.epochs_run = 0\n") : MULTINODE.index("        self.model = DDP(")]
SAVING = MULTINODE[MULTINODE.index("            if self.local_rank == 0 and") : MULTINODE.index("\n\ndef main")]

FRAMEWORKS = {
    "Hugging Face, unchanged": Framework(
        HUGGING_FACE, (60, 30), resizes=False, options=("--preload", "transformers.trainer")
    ),
    "Lightning, unchanged": Framework(LIGHTNING, (60, 30), options=("--preload", "lightning.pytorch")),
    "Accelerate, with Training": Framework(ACCELERATE, (60, 30), resizes=False, options=("--preload", "accelerate")),
    "PyTorch's tutorial, with Training": Framework(
        MULTINODE,
        (192, 96),
        {
            "import torch\n": "import ddpjob\nimport torch\n",
            "model, train_data, optimizer": "model, loader, optimizer",
            "self.train_data = train_data": "self.train_data = loader",
            LOADING: "",
            "if torch.cuda.is_available() else None)\n\n": (
                "if torch.cuda.is_available() else None)\n"
                "        self.training = ddpjob.Training(model=self.model, optimizer=optimizer, loader=loader)\n\n"
            ),
            "in self.train_data:\n": "in self.training.batches():\n",
            "targets.to(self.device))\n": "targets.to(self.device))\n            self.training.step()\n",
            "range(self.epochs_run, max_epochs)": "self.training.epochs(max_epochs)",
            SAVING: "",
        },
        call=("3", "1"),
    ),
    "nanoGPT's loop, with Checkpoints": Framework(
        (STRANGERS / "nano.py").read_text(encoding="utf-8"),
        (61, 61),
        {
            "import torch\nfrom": "import ddpjob\nimport torch\nfrom",
            '\nX, Y = get_batch("train")\nt0': (
                "\ncheckpoints = ddpjob.Checkpoints(model=model, optimizer=optimizer)\n"
                "iter_num = resumed.step if (resumed := checkpoints.resume()) else 0\nt0"
            ),
            "            logits, loss": '            X, Y = get_batch("train")\n            logits, loss',
            '            X, Y = get_batch("train")\n            loss.backward()': "            loss.backward()",
            "    iter_num += 1\n    if": (
                "    iter_num += 1\n    checkpoints.save_if_due(iter_num)\n    if ddpjob.stop_requested() or"
            ),
        },
    ),
}
