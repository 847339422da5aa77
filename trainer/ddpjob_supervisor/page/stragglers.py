"""Finds the processes that hold up the others, from the beats of all processes. Pure: time is an argument.

In DDP every step lasts until the slowest process has done its part: all processes have the same step time, and the
fast ones wait in the collective. So processes are compared by their own work, which is the time in which they do not
wait for others: data + forward + optimizer, plus backward - communication if every process reports how long it waited
for communication. If any process does not, its backward includes the wait, so backward is left out for all. If
processes report only whole steps, no straggler can be found.

Let x be the median of a process's own work over a window, and m the median of all x. A process is a straggler if

    x >= 1.3 m,   x - m >= 0.1 of its step,   and   0.6745 (x - m) / median(|x - m|) > 3.5

The last condition is the modified z-score with its usual limit (Iglewicz and Hoaglin: How to Detect and Handle
Outliers, ASQC 1993, pages 11-13): a few slow processes do not change the medians. This requires at least three
processes. If there are only two processes, or two nodes, each side is compared with the median of the other side, and
must be 1.5 times as slow. If half of the processes of a larger gang are slow, none is named.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median

from ddpjob_supervisor.watch.beat import BeatDocument

WINDOW_SECONDS = 30.0
SAMPLE_SECONDS = 3.0
"""Seconds between two samples of a process's own work, and between two comparisons."""

RATIO = 1.3
RATIO_OF_TWO = 1.5
SHARE_OF_STEP = 0.1
"""If the excess is below this share of the step, it is ignored, even if the work is many times the usual work."""
Z_SCALE = 0.6745
Z_LIMIT = 3.5

NAMED = 8


@dataclass(frozen=True, slots=True)
class Straggler:
    """A process that is slower than the others."""

    node: int
    rank: int
    slowdown: float
    """The process's own work per step, as a multiple of the usual work."""
    slowed: str | None = None
    """Why the clocks of the process's GPU are held down; None if they are not."""


@dataclass(frozen=True, slots=True)
class Work:
    """A process's own work in a step."""

    node: int
    seconds: float
    """Seconds of the process's own work."""
    step_seconds: float | None = None
    """Seconds of the whole step; None if they are not reported."""
    slowed: str | None = None
    """Why the clocks of the process's GPU are held down; None if they are not."""


def stragglers(works: Mapping[int, Work]) -> tuple[Straggler, ...]:
    """The processes that hold up the others, at most NAMED, the slowest first. `works` has all processes, by rank."""
    several_nodes = len({work.node for work in works.values()}) > 1
    side = {rank: work.node if several_nodes else rank for rank, work in works.items()}
    sides: dict[int, list[float]] = {}
    for rank, work in works.items():
        sides.setdefault(side[rank], []).append(work.seconds)
    usual = _usual(sides)
    slow = (
        Straggler(work.node, rank, work.seconds / usual[side[rank]].seconds, work.slowed)
        for rank, work in works.items()
        if usual[side[rank]].is_exceeded_by(work)
    )
    return tuple(sorted(slow, key=lambda straggler: (-straggler.slowdown, straggler.rank))[:NAMED])


@dataclass(frozen=True, slots=True)
class _Usual:
    """The usual work, with which a process's own work is compared."""

    seconds: float
    spread: float
    """The median of the absolute deviations; 0 if all are equal, or if there are only two sides."""
    ratio: float
    """A process is a straggler only if its work is at least this many times the usual work."""

    def is_exceeded_by(self, work: Work) -> bool:
        excess = work.seconds - self.seconds
        return (
            self.seconds > 0
            and work.seconds >= self.ratio * self.seconds
            and excess >= SHARE_OF_STEP * (work.step_seconds or 0.0)
            and Z_SCALE * excess > Z_LIMIT * self.spread
        )


def _usual(sides: Mapping[int, list[float]]) -> dict[int, _Usual]:
    """The usual work for each side: with two sides, the median of the other side; with more, the median of all."""
    match list(sides):
        case [first, second]:
            return {
                first: _Usual(median(sides[second]), 0.0, RATIO_OF_TWO),
                second: _Usual(median(sides[first]), 0.0, RATIO_OF_TWO),
            }
    everyone = [seconds for side in sides.values() for seconds in side] or [0.0]
    middle = median(everyone)
    return dict.fromkeys(sides, _Usual(middle, median(abs(seconds - middle) for seconds in everyone), RATIO))


@dataclass(frozen=True, slots=True)
class _Sample:
    """Seconds per step that one process reports, as means over its recent steps."""

    at: float
    alone: float
    """data + forward + optimizer."""
    backward: float | None
    """backward - communication; None if unknown."""
    step: float | None
    slowed: str | None = None


@dataclass(slots=True)
class _Process:
    node: int
    window: deque[_Sample] = field(default_factory=deque)

    def is_due(self, now: float) -> bool:
        """Whether another sample is due. Most beats are not sampled, so that they cost next to nothing."""
        return not self.window or now - self.window[-1].at >= SAMPLE_SECONDS

    def note(self, sample: _Sample) -> None:
        self.window.append(sample)
        while sample.at - self.window[0].at > WINDOW_SECONDS:
            self.window.popleft()

    def work(self, *, with_backward: bool) -> Work:
        seconds = (sample.alone + (sample.backward or 0.0 if with_backward else 0.0) for sample in self.window)
        return Work(self.node, median(seconds), self.window[-1].step, self.window[-1].slowed)


class Comparison:
    """Compares the work of the processes of an attempt while it runs."""

    def __init__(self) -> None:
        self.stragglers: tuple[Straggler, ...] = ()
        """The present stragglers; empty until the present attempt has run for WINDOW_SECONDS."""
        self.slowest: int | None = None
        """The number of the node whose process has the most own work; None if unknown, or if there is only one
        node."""
        self._attempt: int | None = None
        self._processes: dict[int, _Process] = {}
        self._began = 0.0
        self._compared = 0.0

    def add(self, attempt: int, beats: Iterable[BeatDocument], now: float) -> None:
        """Takes beats that have just arrived from any of the processes. `now` is a monotonic time in seconds."""
        if attempt != self._attempt:
            self._attempt, self.stragglers, self.slowest = attempt, (), None
            self._processes.clear()
        for beat in beats:
            known = self._processes.get(beat["rank"])
            if known is not None and not known.is_due(now):
                continue
            sample = _sample(beat, now)
            if sample is not None:
                if not self._processes:
                    self._began = self._compared = now
                self._processes.setdefault(beat["rank"], _Process(beat["node"])).note(sample)
        if self._processes and now - self._compared >= SAMPLE_SECONDS:
            self._compared = now
            self._compare(window_full=now - self._began >= WINDOW_SECONDS)

    def _compare(self, *, window_full: bool) -> None:
        samples = (sample for process in self._processes.values() for sample in process.window)
        with_backward = all(sample.backward is not None for sample in samples)
        works = {rank: process.work(with_backward=with_backward) for rank, process in self._processes.items()}
        busiest = max(works.values(), key=lambda work: work.seconds)
        self.slowest = busiest.node if any(work.node != busiest.node for work in works.values()) else None
        if window_full:
            self.stragglers = stragglers(works)


def _sample(beat: BeatDocument, now: float) -> _Sample | None:
    parts = beat.get("seconds") or {}
    alone = [parts[part] for part in ("data", "forward", "optimizer") if parts.get(part) is not None]
    backward, waited = parts.get("backward"), parts.get("communication")
    working_backward = None if backward is None or waited is None else max(0.0, backward - waited)
    step, slowed = beat.get("stepSeconds"), beat.get("slowed")
    return _Sample(now, sum(alone), working_backward, step, slowed) if alone else None
