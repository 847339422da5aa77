"""Scripts that train with `ddpjob.Training`, composed at random, and what a killed script has to compute.

A line of TEMPLATE that ends with `#: FEATURE` is only in scripts with this feature. A script notes each batch, each
step and each evaluation, with its random numbers. So the notes of an attempt after a kill have to be, word for word,
a part of the notes of an undisturbed run.
"""

import inspect
import random
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Self

import ddpjob
import torch

TEMPLATE = """
import os
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, TensorDataset

import ddpjob

torch.set_num_threads(1)
rank, size = 0, 1
dist.init_process_group("gloo")                                                                  #: ranks
rank, size = dist.get_rank(), dist.get_world_size()                                              #: ranks
history = os.open(f"{os.environ['HERE']}/history-{rank}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def note(*words):
    os.write(history, " ".join(map(str, (*words, "\\n"))).encode())


note("started")
torch.manual_seed(7)
random.seed(7)
network = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 1))
ema = None
ema = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(0.9))                             #: ema
model = network
model = nn.parallel.DistributedDataParallel(network)                                             #: ranks
torch.manual_seed(100 + rank)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scheduler = None
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, gamma=0.9)                             #: per step
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.9)                             #: per epoch
inputs = torch.arange(24.0)
data = TensorDataset(inputs, torch.stack([inputs, inputs.sin(), inputs.cos(), -inputs], 1) / 24)
sampler = DistributedSampler(data, size, rank, seed=3)
sampler = RandomSampler(data)                                                                    #: shuffle
loader = DataLoader(data, batch_size=12 // size // 2, sampler=sampler)
training = ddpjob.Training(
    model=model, optimizer=optimizer, scheduler=scheduler, ema=ema, loader=loader, directory=os.environ["DIRECTORY"],
    every_steps=3,                                                                               #: steps
    every_seconds=0.01,                                                                          #: seconds
)


def evaluate():
    with torch.no_grad():
        return sum(model(torch.rand(4, 4)).sum().item() for _ in range(3)) + random.random()


evaluate()                                                                                       #: evaluates first
for epoch in training.epochs(3):
    noise = 0
    noise = torch.rand(1, 4)                                                                     #: noise per epoch
    made = 0
    for ids, x in training.batches():
        loss = (model(x + noise) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        made += 1
        note("seen", epoch, training.global_step, *map(int, ids))
        if made % 2:                                                                             #: accumulates
            continue                                                                             #: accumulates
        optimizer.step()
        optimizer.zero_grad()
        training.step(loss)
        scheduler.step()                                                                         #: per step
        ema.update_parameters(network)                                                           #: ema
        note("stepped", epoch, training.global_step)
    if scheduler and epoch % 2:                                                                  #: per epoch
        optimizer.param_groups[0]["betas"] = (0.8, 0.99)                                         #: per epoch
    scheduler.step()                                                                             #: per epoch
    with training.evaluation():                                                                  #: evaluates
        note("evaluated", epoch, evaluate())                                                     #: evaluates
result = [network.state_dict(), optimizer.state_dict(), scheduler and scheduler.state_dict(),
          ema and ema.state_dict(), torch.get_rng_state(), random.getstate()]
torch.save(result, f"{os.environ['HERE']}/result-{rank}")
note("ended")
dist.barrier()                                                                                   #: ranks
dist.destroy_process_group()                                                                     #: ranks
"""

FEATURES = frozenset(re.findall("#: (.*)$", TEMPLATE, re.MULTILINE)) - {"ranks"}
EXCLUSIVE = (("steps", "seconds"), ("per step", "per epoch"))
"""Of each pair, a script has at most one."""
LIBRARY = str(Path(ddpjob.__file__).parent)


def draw_features() -> frozenset[str]:
    """The features of a script, at random."""
    features = {feature for feature in sorted(FEATURES) if random.random() < 0.5}
    for pair in EXCLUSIVE:
        if features.issuperset(pair):
            features.remove(random.choice(pair))
    return frozenset(features)


def script_of(features: frozenset[str]) -> str:
    """The script with these features."""
    parts = (line.partition("#: ") for line in TEMPLATE.strip().splitlines())
    return "\n".join(code.rstrip() for code, _, feature in parts if not feature or feature in features) + "\n"


class Fuse:
    """Counts the executed lines of files whose names begin with `files`, and acts after `lines` lines.

    Functions that run already count as well.
    """

    def __init__(self, files: str, lines: int, act: Callable[[], object], *, in_threads: bool = False) -> None:
        self._files = files
        self.lines = lines
        self._act = act
        self._in_threads = in_threads

    def __enter__(self) -> Self:
        self._before = sys.gettrace(), threading.gettrace()  # Coverage traces too.
        if self._in_threads:
            threading.settrace(self._enter)
        sys.settrace(self._enter)
        frame = inspect.currentframe()
        while frame := frame and frame.f_back:
            frame.f_trace = self._enter(frame, "", None)
        return self

    def __exit__(self, *_: object) -> None:
        own, of_threads = self._before
        sys.settrace(own)
        threading.settrace(of_threads)  # type: ignore[arg-type]

    def _enter(self, frame: FrameType, _: str, __: object) -> Any:
        return self._line if frame.f_code.co_filename.startswith(self._files) else None

    def _line(self, _: FrameType, event: str, __: object) -> Any:
        if event == "line":
            self.lines -= 1
            if self.lines == 0:
                self._act()
        return self._line


class Attempts:
    """What a rank's attempts have noted."""

    def __init__(self, directory: Path, rank: int = 0) -> None:
        noted = (directory / f"history-{rank}").read_text().splitlines()
        starts = [number for number, line in enumerate(noted) if line == "started "]
        ends = [*starts[1:], len(noted)]
        self.attempts = [noted[start + 1 : end] for start, end in zip(starts, ends, strict=True)]
        self.result = directory / f"result-{rank}"

    def check(self, calm: "Attempts") -> None:
        """Compares all attempts, and the result, with those of an undisturbed run."""
        (whole,) = calm.attempts
        reached = 0
        for attempt in self.attempts:
            first = whole.index(attempt[0]) if attempt else reached
            assert first <= reached, f"lost: {whole[reached:first]}"
            assert attempt == whole[first : first + len(attempt)]
            reached = max(reached, first + len(attempt))
        assert reached == len(whole)
        mine, theirs = (torch.load(each.result, weights_only=False) for each in (self, calm))
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
