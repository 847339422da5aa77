"""Measures what faults cost a job: the steps that it makes in spite of them, the time lost by each kind, the result.

A job of `ddpjob run` trains undisturbed, then with faults, then undisturbed again. The paces of the undisturbed parts
show how many steps the disturbed part would have made without faults. A second, undisturbed job trains up to the step
of the first job's last checkpoint, and the two checkpoints are compared.
"""

import os
import random
import signal
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

import torch
from ddpjob_examples.handwriting import load
from ddpjob_trainer.config import TrainConfig

from bench.jobs import Job, a_place, start
from bench.notes import DEADLINE_SECONDS, LOOK_SECONDS, NotGoneOnError, Step
from bench.table import Row

BATCH = 32
"""The batch size of each rank, as in the workload."""
CHECKPOINT_SECONDS = 1
STALL_SECONDS = 5
STEP_SECONDS = 0.02
TARGET_SECONDS = 600
DRIFT = 0.05
"""The largest relative difference between two paces, or between two measures of goodput, that count as equal."""
REFERENCE_SECONDS = 900
"""The limit for the undisturbed run, whose steps contain no artificial wait."""

Fault = Callable[[Job, int], None]


def kill(job: Job, rank: int) -> None:
    """Sends SIGKILL to the rank's process."""
    os.kill(job.notes.last[rank].pid, signal.SIGKILL)


def stop(job: Job, rank: int) -> None:
    """Sends SIGSTOP to the rank's process, so that it hangs."""
    os.kill(job.notes.last[rank].pid, signal.SIGSTOP)


def delete(job: Job, rank: int) -> None:
    """Kills the process that represents the container of the rank's pod."""
    container = job.here.trainers(job.name)[rank].parent()
    assert container is not None, "a container has its own process"
    container.kill()


@dataclass(frozen=True)
class Plan:
    """The faults of a job."""

    name: str
    faults: dict[str, Fault]
    """The faults by kind. They are used in turn."""
    nodes: int
    times: int
    """How many faults are caused."""
    every: float
    """The seconds from one fault to the next."""
    calm: float
    """The seconds of each of the two undisturbed parts."""

    @property
    def seconds(self) -> float:
        """The seconds of the disturbed part."""
        return self.times * self.every


@dataclass(frozen=True)
class Outcome:
    """The result of a plan."""

    plan: Plan
    paces: tuple[float, float]
    """Undisturbed steps per second, before and after the disturbed part."""
    steps: int
    """The number of steps in the disturbed part."""
    lost: dict[str, list[float]]
    """For each kind of fault, the seconds that each fault cost until training was back where it had been."""
    trained: list[Step]
    saved: int
    tensors: int
    """The number of tensors in the checkpoint."""
    unequal: list[str]
    """The names of the tensors that differ from those of the undisturbed run at the same step."""

    @property
    def by_steps(self) -> float:
        """Goodput by steps: the steps of the disturbed part, divided by the steps at the mean undisturbed pace."""
        return self.steps / (statistics.mean(self.paces) * self.plan.seconds)

    @property
    def by_time(self) -> float:
        """Goodput by time: the share of time that faults did not take.

        It does not depend on the undisturbed paces.
        """
        return 1 - sum(sum(seconds) for seconds in self.lost.values()) / self.plan.seconds

    @property
    def comparable(self) -> bool:
        """Whether the machine was equally fast throughout. If it was not, other load may explain lost steps."""
        before, after = self.paces
        same = abs(before - after) <= DRIFT * statistics.mean(self.paces)
        return same and abs(self.by_steps - self.by_time) <= DRIFT


def carry_out(plan: Plan, directory: Path) -> Outcome:
    """Runs the disturbed and the undisturbed job, one after the other."""
    with a_place(directory) as here:
        checkpoint = {"path": "/checkpoints", "everySeconds": CHECKPOINT_SECONDS}
        job = start(
            here,
            "disturbed",
            plan.nodes,
            step_seconds=STEP_SECONDS,
            checkpoint=checkpoint,
            stallTimeoutSeconds=STALL_SECONDS,
        )
        job.notes.others((), job.over)
        before = _pace(job, plan.calm)
        first = _reached(job)
        lost = _disturb(job, plan)
        steps = _reached(job) - first
        after = _pace(job, plan.calm)
        saved = _newest_checkpoint(job)
        job.run.kill()
        for process in here.processes(job.name):
            process.kill()
        unequal = _compare(job, plan.nodes, saved)
        tensors = len(job.weights(saved))
        return Outcome(plan, (before, after), steps, lost, job.notes.steps, saved, tensors, unequal)


def _reached(job: Job) -> int:
    """The last step that all ranks have finished."""
    job.notes.read()
    return min(step.step for step in job.notes.last.values())


def _pace(job: Job, seconds: float) -> float:
    """Measures the steps per second over some seconds; 0 if `seconds` is 0."""
    began, before = time.monotonic(), _reached(job)
    job.notes.watch(seconds)
    return (_reached(job) - before) / (time.monotonic() - began) if seconds else 0.0


def _disturb(job: Job, plan: Plan) -> dict[str, list[float]]:
    """Causes the faults of a plan. Returns the seconds that each has cost, by kind."""
    lost: dict[str, list[float]] = defaultdict(list)
    began = time.monotonic()
    for number, (kind, offset) in enumerate(zip(islice(cycle(plan.faults), plan.times), offsets(plan), strict=True)):
        job.notes.watch(began + number * plan.every + offset - time.monotonic())
        rank = number // len(plan.faults) % plan.nodes
        seconds = _lost(job, lambda kind=kind, rank=rank: plan.faults[kind](job, rank))  # type: ignore[misc]
        lost[kind].append(seconds)
        print(f"  {plan.name}: {kind} of rank {rank}: {seconds:.2f} s", flush=True)
    job.notes.watch(began + plan.seconds - time.monotonic())
    return lost


def offsets(plan: Plan) -> list[float]:
    """When each fault comes, in seconds after its period begins.

    The times are spread evenly over a checkpoint interval, in random order. So the work that is lost since the last
    checkpoint is half an interval on average, and depends neither on chance nor on a common rhythm.
    """
    spread = [plan.every / 4 + CHECKPOINT_SECONDS * (number + 0.5) / plan.times for number in range(plan.times)]
    random.Random(0).shuffle(spread)
    return spread


def _lost(job: Job, happen: Callable[[], None]) -> float:
    """Seconds by which a fault sets training back: the time without training, and the time of repeated steps.

    The time begins at the end of the last step that all ranks had finished, and ends at the end of the next step,
    which a later attempt makes.
    """
    job.notes.read()
    seen, attempt = len(job.notes.steps), job.notes.last[0].attempt
    last = dict(job.notes.last)
    happen()
    back: dict[int, Step] = {}
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(back) < job.notes.world:
        if job.over() or time.monotonic() > deadline:
            raise NotGoneOnError(f"step {_common(last).step + 1} was not made again: see {job.here.directory}")
        time.sleep(LOOK_SECONDS)
        job.notes.read()
        fresh, seen = job.notes.steps[seen:], len(job.notes.steps)
        last |= {step.rank: step for step in fresh if step.attempt == attempt}
        for step in fresh:
            if step.attempt > attempt and step.step > _common(last).step:
                back.setdefault(step.rank, step)
    return max(step.time for step in back.values()) - _common(last).time


def _common(last: dict[int, Step]) -> Step:
    """The last step that all ranks have finished."""
    return min(last.values(), key=lambda step: step.step)


def _newest_checkpoint(job: Job) -> int:
    """Waits for a checkpoint that was begun after the last fault. Returns its step."""
    before = _reached(job)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while (saved := job.saved()) < before:
        if job.over() or time.monotonic() > deadline:
            raise NotGoneOnError(f"no checkpoint after step {before}: see {job.here.directory}")
        job.notes.watch(1.0)
    return saved


def _compare(job: Job, nodes: int, saved: int) -> list[str]:
    """Trains an undisturbed job up to step `saved`. Returns the names of tensors that differ from the first job's."""
    checkpoint = {"path": "/checkpoints", "everySteps": saved}
    calm = start(job.here, "calm", nodes, step_seconds=0, noting=False, checkpoint=checkpoint)
    deadline = time.monotonic() + REFERENCE_SECONDS
    while calm.saved() < saved:
        if calm.over() or time.monotonic() > deadline:
            raise NotGoneOnError(f"the undisturbed run did not come to step {saved}: see {job.here.directory}")
        time.sleep(0.1)
    theirs, ours = calm.weights(saved), job.weights(saved)
    if theirs.keys() != ours.keys():
        return sorted(theirs.keys() ^ ours.keys())
    return [name for name in ours if not torch.equal(ours[name], theirs[name])]


@dataclass(frozen=True)
class Samples:
    """How often samples were used in whole epochs."""

    epochs: int
    wrong: int
    """How many epochs lacked a sample or used a sample twice, plus how many steps were repeated with other
    samples."""
    again: int
    """How many steps a rank repeated after a fault."""


def samples_of(trained: Sequence[Step], nodes: int) -> Samples:
    """Checks the samples of each finished epoch."""
    used: dict[tuple[int, int], tuple[int, ...]] = {}
    again = wrong = 0
    for step in trained:
        place = step.step, step.rank
        again += place in used
        wrong += used.setdefault(place, step.samples) != step.samples
    size = len(load(TrainConfig()).train)
    per_epoch = size // (BATCH * nodes)
    epochs = min(max(step.step for step in trained if step.rank == rank) for rank in range(nodes)) // per_epoch
    for epoch in range(epochs):
        steps = range(epoch * per_epoch + 1, (epoch + 1) * per_epoch + 1)
        counts = Counter(sample for step in steps for rank in range(nodes) for sample in used.get((step, rank), ()))
        wrong += len(counts) != per_epoch * BATCH * nodes or max(counts.values()) > 1
    return Samples(epochs, wrong, again)


def rows(outcome: Outcome, target: float | None) -> list[Row]:
    """The rows of an outcome. `target` is the least goodput; with None there is no row for goodput."""
    plan, samples = outcome.plan, samples_of(outcome.trained, outcome.plan.nodes)
    what = f"{plan.name}, {plan.nodes} ranks: {plan.times} faults in {plan.seconds / 60:.1f} min"
    found = []
    if target is not None:
        found.append(goodput_row(outcome, what, target))
    for kind, seconds in outcome.lost.items():
        told = f"mean {statistics.mean(seconds):.1f} s, worst {max(seconds):.1f} s of {len(seconds)}"
        found.append(Row(f"lost by a fault, {plan.name}, {plan.nodes} ranks: {kind}", told))
    bits = f"{len(outcome.unequal)} of {outcome.tensors} tensors differ"
    found.append(
        Row(
            f"{what}: checkpoint beside an undisturbed run's",
            f"{bits} at step {outcome.saved}",
            "bit-equal",
            outcome.tensors > 0 and not outcome.unequal,
        )
    )
    told = f"{samples.epochs} whole epochs, {samples.wrong} of them wrong; {samples.again} steps made again"
    found.append(Row(f"{what}: samples of each epoch", told, "each once", samples.epochs > 0 and not samples.wrong))
    return found


def goodput_row(outcome: Outcome, what: str, target: float) -> Row:
    """A row with both measures of goodput.

    It has no verdict if the run was short, or if other load changed meanwhile.
    """
    before, after = outcome.paces
    told = (
        f"{outcome.by_steps:.3f} by steps ({before:.1f} steps/s undisturbed before, {after:.1f} after),"
        f" {outcome.by_time:.3f} by time"
    )
    met: bool | None = None
    if outcome.plan.seconds < TARGET_SECONDS:
        told += "; too short to be judged"
    elif not outcome.comparable:
        told += f"; not judged: paces, or both ways to see it, differ by more than {DRIFT:.0%}"
    else:
        met = min(outcome.by_steps, outcome.by_time) >= target
    return Row(f"goodput, {what}", told, f"≥ {target:.2f} over {TARGET_SECONDS / 60:.0f} min", met)


KILLS: dict[str, Fault] = {"SIGKILL of a rank": kill}
MIXED: dict[str, Fault] = {**KILLS, "SIGSTOP of a rank": stop, "pod deleted": delete}


def kills(directory: Path, *, minutes: float, every: float, calm: float) -> list[Row]:
    """Measures kills only, with two ranks and, for a shorter time, with three."""
    times = max(1, round(minutes * 60 / every))
    found = rows(carry_out(Plan("kills only", KILLS, 2, times, every, calm), directory / "two"), 0.97)
    short = Plan("kills only", KILLS, 3, min(times, 4), min(every, 20), 0)
    return found + rows(carry_out(short, directory / "three"), None)


def mixed(directory: Path, *, minutes: float, every: float, calm: float) -> list[Row]:
    """Measures all kinds of faults in turn, with two ranks."""
    times = max(len(MIXED), round(minutes * 60 / every))
    return rows(carry_out(Plan("all kinds", MIXED, 2, times, every, calm), directory), 0.80)
