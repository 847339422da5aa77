"""Measures what `ddpjob.Training` costs a script: in each step, compared with a step without it, and in each save.

Both loops run in one process, and take turns of some steps each. The one with the library reports its progress as in
a job, and checks in each step whether a save is due. The stall is compared with a save for which training waits.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path

import ddpjob
import torch
from ddpjob.checkpoint.checkpoint_directory import CheckpointDirectory
from ddpjob.checkpoint.encoding import encode
from ddpjob_rank.environment import Env
from ddpjob_rank.manifests.manifest import Manifest
from ddpjob_rank.reporting.heartbeat import EMPTY
from torch import Tensor, nn
from torch.optim import Adam, AdamW
from torch.utils.data import DataLoader, TensorDataset

from bench import pairs
from bench.table import Row

WIDTH, BATCH, SAMPLES = 512, 80, 80 * 200
"""With these sizes, a step takes about 10 ms."""
STEPS = 60
"""The number of steps of a turn."""
MOST, HIGHEST = 1.01, 1.02
"""The limits for the median ratio, and for the upper end of its interval."""
MOST_OF_A_SAVE = 0.10
"""The limit for the stall of a save, relative to a save for which training waits."""
STATE_BYTES_PER_WEIGHT = 3 * 4
"""The bytes of a weight and of its two moments in Adam."""
NEVER = 1e9
"""Seconds between two saves, so many that nothing is saved."""


class Script:
    """What both loops have in common."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        layers = [module for _ in range(4) for module in (nn.Linear(WIDTH, WIDTH), nn.Tanh())]
        self.model = nn.Sequential(*layers, nn.Linear(WIDTH, 1))
        self.optimizer = AdamW(self.model.parameters())
        inputs = torch.rand(SAMPLES, WIDTH)
        self.loader = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=BATCH, shuffle=True)

    def update(self, x: Tensor, y: Tensor) -> Tensor:
        """Makes a step; returns its loss."""
        loss = nn.functional.mse_loss(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss


def without() -> Iterator[None]:
    """Trains, and yields after each step."""
    script = Script()
    while True:
        for x, y in script.loader:
            script.update(x, y)
            yield


def with_library(directory: Path) -> Iterator[None]:
    """The same with the library."""
    script = Script()
    training = ddpjob.Training(
        model=script.model,
        optimizer=script.optimizer,
        loader=script.loader,
        directory=directory,
        every_seconds=NEVER,
    )
    for _ in training.epochs(10**9):
        for x, y in training.batches():
            training.step(script.update(x, y))
            yield


def rows(count: int) -> list[Row]:
    """A row for the wall time and one for the CPU time of a step, from `count` pairs of turns."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="bench-library-") as name, Path(os.devnull).open("w") as nowhere:
        heartbeat = Path(name) / "heartbeat"
        heartbeat.write_bytes(EMPTY)
        os.environ[Env.HEARTBEAT] = str(heartbeat)
        with redirect_stdout(nowhere):
            ours, theirs = with_library(Path(name) / "checkpoints"), without()
            for loop in (ours, theirs):
                turn(loop)  # Not counted, because the first turn includes one-time costs.
        found = pairs.in_turn(count, lambda: turn(ours), lambda: turn(theirs))
    return [
        _judged(
            f"a script's step with `ddpjob.Training` beside without: {what}",
            [(mine[place], other[place]) for mine, other in found],
        )
        for place, what in enumerate(("time", "CPU time"))
    ]


def stall(directory: Path, count: int, *, megabytes: float) -> Row:
    """A row for the stall of a save of that size, from `count` pairs of saves."""
    weights = megabytes * 1_000_000 / STATE_BYTES_PER_WEIGHT
    model = nn.Linear(round(weights**0.5), round(weights**0.5))
    optimizer = Adam(model.parameters())
    model(torch.rand(1, model.in_features)).sum().backward()
    optimizer.step()
    storage = CheckpointDirectory(directory / "waiting", keep=2)
    training = ddpjob.Training(
        model=model, optimizer=optimizer, loader=range(10**9), directory=directory / "beside", every_steps=1, keep=2
    )
    numbers = iter(range(10**9))

    def waiting() -> float:
        state = {"shared": {"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "ranks": [{}]}
        manifest = Manifest(next(numbers), 1, 0, 1, 1, "", (0,))
        began = time.perf_counter()
        storage.write(manifest, lambda file: encode(state, file))
        return time.perf_counter() - began

    def beside() -> float:
        training.step()
        began = time.perf_counter()
        next(batches)
        seconds = time.perf_counter() - began
        training._saver.finish()
        return seconds

    with Path(os.devnull).open("w") as nowhere:
        for _ in training.epochs(1):
            batches = training.batches()
            next(batches)
            with redirect_stdout(nowhere):
                beside()  # Not counted, because the first save includes one-time costs.
                found = pairs.in_turn(count, beside, waiting)
            break
    milliseconds = [(ours * 1000, theirs * 1000) for ours, theirs in found]
    what = f"a save of {megabytes:g} MB with `ddpjob.Training`: its stall beside a save for which training waits"
    return pairs.ratio(what, milliseconds, "ms", most=MOST_OF_A_SAVE)


def turn(loop: Iterator[None]) -> tuple[float, float]:
    """Makes some steps. Returns the milliseconds, and the CPU milliseconds, of one step."""
    began, began_cpu = time.perf_counter(), time.process_time()
    for _ in range(STEPS):
        next(loop)
    return (time.perf_counter() - began) / STEPS * 1000, (time.process_time() - began_cpu) / STEPS * 1000


def _judged(what: str, milliseconds: list[tuple[float, float]]) -> Row:
    row = pairs.ratio(what, milliseconds, "ms", most=MOST)
    _, highest = pairs.interval([mine / other for mine, other in milliseconds])
    return replace(row, target=f"{row.target}, interval up to {HIGHEST}", met=row.met and highest <= HIGHEST)
