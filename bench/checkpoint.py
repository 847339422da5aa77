"""Measures what a save costs training: a save for which training waits, and the trainer's save in the background.

Two processes over gloo train a perceptron with Adam, whose state has the requested size. In turn they measure some
undisturbed steps, a save for which training waits, and a save in the background, so that other load on the machine
affects all three. Exits with 1 if a save in the background stalls training for more than a given share of the time
that the other save takes.
"""

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from ddpjob.checkpoint.checkpoint_directory import CheckpointDirectory
from ddpjob.checkpoint.encoding import encode
from ddpjob.group.collectives import gather
from ddpjob.training.saver import Where
from ddpjob_rank.manifests.manifest import Manifest
from ddpjob_rank.reporting.group_agreement import agreement_of_group
from ddpjob_rank.world import World
from ddpjob_trainer.checkpoint import saving, state
from ddpjob_trainer.config import TrainConfig
from ddpjob_trainer.model.learner import Learner
from ddpjob_trainer.options import CheckpointConfig
from ddpjob_trainer.recording.position import Position
from ddpjob_trainer.recording.recorder import Recorder
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Adam

from bench import library, table
from bench.rounds import RANKS, flags_of, measured

BOUND = 0.20
WIDTH, BATCH = 1024, 32
STATE_BYTES_PER_WEIGHT = 3 * 4
"""The bytes of a weight and of Adam's two moments of it."""
CALM_STEPS = 20
LIBRARY_MEGABYTES = (10, 500)
"""The sizes of the saves with `ddpjob.Training`."""


@dataclass(frozen=True)
class Round:
    """The figures of one round on rank 0. Times are in seconds."""

    step: float
    """The time of an undisturbed step."""
    waiting: float
    """The time of a save for which training waits."""
    stall: float
    """The time of the call that starts a save in the background."""
    writing: float
    """The time from the end of that call until the checkpoint is durable."""
    steps: int
    """How many steps were finished while the checkpoint was written."""

    @property
    def pace(self) -> float:
        """The pace of training while a checkpoint is written, relative to the undisturbed pace."""
        return self.steps * self.step / self.writing

    @property
    def lost(self) -> float:
        """How many seconds a save in the background costs in all, including the slower steps while it is written."""
        return self.stall + self.writing - self.steps * self.step


class Bench:
    """One process of the training."""

    def __init__(self, place: World, directory: Path, size: int) -> None:
        layers = max(1, size // (STATE_BYTES_PER_WEIGHT * WIDTH * WIDTH))
        model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(layers)))
        self.world, self.position, self.model = place, Position(), DistributedDataParallel(model)
        self.learner = Learner(model, self.model, Adam(model.parameters()), None)
        self.files = CheckpointDirectory(directory / "waiting", keep=2)
        settings = CheckpointConfig(directory=directory / "beside", every_steps=1, keep=2)
        self.saver = saving.open_saver(
            TrainConfig(checkpoint=settings),
            place,
            agreement_of_group("bench", "step()"),
            global_batch=BATCH * RANKS,
            position=self.position,
            recorder=Recorder(None, 0),
        )
        self.saver.find()

    def step(self) -> None:
        """Makes one step of training."""
        self.learner.optimizer.zero_grad(set_to_none=True)
        self.model(torch.randn(BATCH, WIDTH)).square().mean().backward()
        self.learner.optimizer.step()
        self.position.advance(BATCH * RANKS)

    def save_and_wait(self) -> None:
        """Saves like a trainer that neither copies its state nor has a thread for saving."""
        states = gather(state.of_rank(self.learner), self.world)
        if self.world.leads:
            whole = {"shared": state.shared(self.learner), "ranks": states, "position": (self.position.step, 1, 0)}
            manifest = Manifest(self.position.step, 1, 0, RANKS, BATCH, "", (0,))
            self.files.write(manifest, lambda file: encode(whole, file))

    def save_beside(self) -> None:
        """Begins a save in the background."""
        step, learner = self.position.step, self.learner
        self.saver.reached(step, Where(step, 1), lambda: state.shared(learner), lambda: state.of_rank(learner))

    def round(self) -> Round:
        """Measures each part once. All processes start each part together."""
        step = self.timed(self.some_steps) / CALM_STEPS
        waiting = self.timed(self.save_and_wait)
        stall = self.timed(self.save_beside)
        began, before = time.perf_counter(), self.position.step
        while self.all_know(self.writes()):
            self.step()
        return Round(step, waiting, stall, time.perf_counter() - began, self.position.step - before)

    def timed(self, action: Callable[[], None]) -> float:
        """Returns the seconds that `action` takes in this process, after a barrier."""
        dist.barrier()
        began = time.perf_counter()
        action()
        return time.perf_counter() - began

    def some_steps(self) -> None:
        """Makes CALM_STEPS undisturbed steps."""
        for _ in range(CALM_STEPS):
            self.all_know(self.writes())
            self.step()

    def writes(self) -> bool:
        """Whether this process is writing a checkpoint."""
        self.saver.settle()
        writer = self.saver._writer
        return writer is not None and writer._writing is not None

    def all_know(self, answer: bool) -> bool:  # noqa: FBT001  (a value, not an option)
        """Returns rank 0's `answer` on all ranks."""
        shared = torch.tensor([int(answer)])
        dist.broadcast(shared, src=0)
        return bool(shared.item())


def main() -> None:
    """Measures and prints the figures. Exits with 1 if the bound is exceeded."""
    with flags_of(__doc__, megabytes=100) as flags:
        rounds = measured(Bench, flags)
        sizes = [flags.directory / f"{megabytes}" for megabytes in LIBRARY_MEGABYTES]
        rows = [row for size in sizes for row in library.stalls(size, flags.rounds, megabytes=int(size.name))]
    code = judge(rounds)
    table.show(rows)
    sys.exit(code or any(row.met is False for row in rows))


def judge(rounds: Sequence[Round]) -> int:
    """Prints the figures, and returns the exit code."""

    def middle(of: Callable[[Round], float]) -> float:
        return statistics.median(map(of, rounds))

    for one in rounds:
        print(
            f"step {one.step * 1000:.1f} ms; waiting {one.waiting * 1000:.0f} ms; stall {one.stall * 1000:.1f} ms,"
            f" then {one.steps} steps in the {one.writing * 1000:.0f} ms of writing"
        )
    ratio = middle(lambda one: one.stall / one.waiting)
    print(
        f"medians: a save for which training waits {middle(lambda one: one.waiting) * 1000:.0f} ms;"
        f" stall of one beside it {middle(lambda one: one.stall) * 1000:.1f} ms, ratio {ratio:.3f} (bound {BOUND})"
    )
    print(
        f"training while it is written: {middle(lambda one: one.pace):.0%} of its pace;"
        f" lost by a save in all {middle(lambda one: one.lost) * 1000:.0f} ms,"
        f" ratio {middle(lambda one: one.lost / one.waiting):.2f}"
    )
    return int(ratio > BOUND)


if __name__ == "__main__":
    main()
