"""A gang's progress and pace, computed from the beats of its processes. Pure: time is an argument."""

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median
from typing import Any

from ddpjob_rank.reporting.teller import EVALUATION, SAVING

from ddpjob_supervisor.watch.beat import BeatDocument

POINT_SECONDS = 1.0
"""The shortest time between two computations of the progress: about a thousand nodes may each send a beat per
second."""

PAUSES = {EVALUATION: "Evaluating", SAVING: "Saving"}
"""What a gang does between two steps, by the activity that a process reports. The first one of several counts."""

POINTS = 61
"""How many points the pace is computed from. They cover a minute, or sixty steps if a step takes over a second."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a gang is. Fields that depend on the pace are None until this attempt has finished some steps."""

    step: int
    """The number of steps that every process has finished: in all attempts or, if `anew`, since the last restart."""
    epoch: int | None = None
    total_steps: int | None = None
    loss: float | None = None
    last_step_time: float | None = None
    """When the last process finished `step`, in seconds since the epoch."""
    step_seconds: float | None = None
    """The median time of the recent steps, on which rare pauses between steps, such as evaluations, have no
    effect."""
    samples_per_second: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Metrics that the program itself reports."""
    anew: bool = False
    """Whether steps are counted from the last restart, because it is unknown at which step the program continued."""
    not_finite_since: int | None = None
    """The step at which the loss was first NaN or infinite; None if the loss is finite or unknown."""
    attempt: int = 0
    """The attempt that finished these steps."""
    since: float | None = None
    """When the first step of that attempt was seen, in seconds since the epoch."""
    first: int | None = None
    """The first step that was finished in that attempt; None if its number is unknown."""
    begins: str | None = None
    """Where the program says that it began in that attempt, as in `Beat.begins`."""
    activity: str | None = None
    """What the gang does between two steps, a value of PAUSES; None: it trains, or does something else."""
    activity_time: float | None = None
    """When a process last reported an activity that takes long, in seconds since the epoch; None: none has in this
    attempt."""
    recounts: bool = False
    """Whether a process has counted its steps again from a lower number within an attempt."""

    @property
    def percent(self) -> float | None:
        """The percentage of steps that are finished, rounded down, so that it is 100 only when all are finished."""
        if not self.total_steps or self.anew:
            return None
        return min(1000, 1000 * self.step // self.total_steps) / 10

    @property
    def eta_seconds(self) -> float | None:
        """Seconds that the remaining steps will take at the present pace."""
        if self.total_steps is None or self.step_seconds is None or self.anew:
            return None
        return max(0, self.total_steps - self.step) * self.step_seconds


@dataclass(slots=True)
class _Process:
    beat: BeatDocument
    step: int
    finished: float | None
    """When the process finished `step`, on the coordinator's monotonic clock; None if that was in an earlier
    attempt."""
    first: int | None = None
    """The first step of this attempt, as reported, or else the first that was seen; None if steps are only
    counted."""


class GangProgress:
    """Follows a gang's steps.

    Keeps the last progress, even if an earlier attempt made it, and the pace of the present attempt.
    """

    def __init__(self) -> None:
        self.checkpoint: Mapping[str, Any] | None = None
        """The newest checkpoint that any process has reported: its `step` and `time`."""
        self._attempt: int | None = None
        self._saved = 0
        """The step of the newest checkpoint of the present attempt. Every process has finished this step."""
        self._processes: dict[int, _Process] = {}
        self._points: deque[tuple[int, float]] = deque(maxlen=POINTS)
        self._last: Progress | None = None
        self._recounts = False
        self._began: float | None = None
        self._since: float | None = None
        self._last_finished: float | None = None
        self._went_on = 0.0
        """When a process last reported an activity that takes long, on the coordinator's monotonic clock."""
        self._not_finite_since: int | None = None
        self._looked: float | None = None

    def add(self, attempt: int, beats: Iterable[BeatDocument], now: float) -> None:
        """Takes the beats that have just arrived from any of the processes. `now` is a monotonic time in seconds."""
        if attempt != self._attempt:
            self._begin(attempt)
        for beat in beats:
            self.note_checkpoint(beat)
            self._note_step(beat, now)
            if (age := beat.get("activityAge")) is not None:
                self._went_on = max(self._went_on, now - age)
        if self._looked is None or now - self._looked >= POINT_SECONDS:
            self._looked = now
            self.look()

    def look(self) -> None:
        """Computes the progress from the beats so far. To be called about once a second, and after the last beat."""
        if self._processes:
            self._look()

    def progress(self, now: float, wall: float, *, over: bool = False) -> Progress | None:
        """The progress at `now`, which is `wall` in seconds since the epoch; None before any step is known.

        `over` means that rank 0 is done, so every process has finished all steps, even if it has not reported them
        yet.
        """
        if over and self._processes:
            self._look(over=True)
        if self._last is None or self._last_finished is None:
            return self._last
        if self._began is not None and self._since is None:
            self._since = wall - (
                now - self._began
            )  # Computed only once, so that it stays the same when the clocks drift apart.
        told = wall - (now - self._went_on) if self._went_on else None
        finished = wall - (now - self._last_finished)
        return replace(self._last, last_step_time=finished, activity_time=told, since=self._since)

    def forget(self) -> None:
        """Forgets all steps, but not the checkpoint."""
        self._processes.clear()
        self._last = None

    def _begin(self, attempt: int) -> None:
        """Starts a new attempt: discards the steps and the pace of the former one, but keeps its last progress."""
        self._attempt, self._saved = attempt, 0
        self._processes.clear()
        self._points.clear()
        self._looked = self._not_finite_since = self._began = self._since = None
        self._went_on = 0.0
        if self._last is not None:
            self._last = replace(self._last, step_seconds=None, samples_per_second=None, activity=None)

    def _note_step(self, beat: BeatDocument, now: float) -> None:
        step, age = beat.get("step"), beat.get("stepAge")
        if step is None:
            return
        known = self._processes.get(beat["rank"])
        if known is not None and known.step == step and known.finished is not None:
            known.beat = beat  # `finished` is kept, because the first report of a step has the most accurate time.
            return
        if known is not None and step < known.step and beat.get("counted") == known.beat.get("counted"):
            self._recounts = True
        finished = None if age is None else now - age
        first_seen = known.first if known and known.first is not None else step
        first = beat.get("firstStep", None if beat.get("counted") else first_seen)
        self._processes[beat["rank"]] = _Process(beat, step, finished, first)

    def note_checkpoint(self, beat: BeatDocument) -> None:
        """Takes the checkpoint from a beat, if it is newer than those that are known."""
        checkpoint = beat.get("checkpoint")
        if checkpoint and (self.checkpoint is None or checkpoint["time"] > self.checkpoint["time"]):
            self.checkpoint = checkpoint
            self._saved = checkpoint["step"]

    def _look(self, *, over: bool = False) -> None:
        processes = self._processes.values()
        # Usually only rank 0 reports steps. For other ranks, optimizer steps are counted, and the numbers may differ.
        reporting = [process for process in processes if not process.beat.get("counted")] or list(processes)
        anew = any(process.beat.get("anew") for process in reporting)
        step = (max if over else min)(process.step for process in reporting)
        step = step if anew else max(step, self._saved)
        moments = (process.finished for process in reporting if process.step == step)
        finished = max((moment for moment in moments if moment is not None), default=None)
        if finished is not None:
            self._last_finished = finished
            self._add_point(step, finished)
            self._began = finished if self._began is None else self._began
        doing = {process.beat.get("activity") for process in processes}
        step_seconds, samples, loss = self._step_seconds(), self._told("samples"), self._loss(step)
        self._last = Progress(
            step=step,
            epoch=self._told("epoch"),
            total_steps=self._told("totalSteps"),
            loss=loss,
            step_seconds=step_seconds,
            samples_per_second=samples / step_seconds if samples and step_seconds else None,
            metrics={name: float(number) for name, number in (self._told("metrics") or {}).items()},
            anew=anew,
            not_finite_since=self._not_finite_since,
            attempt=self._attempt or 0,
            since=self._since,
            first=None
            if anew
            else min((reporter.first for reporter in reporting if reporter.first is not None), default=None),
            begins=self._told("begins"),
            activity=next((word for activity, word in PAUSES.items() if activity in doing), None),
            recounts=self._recounts,
        )

    def _loss(self, step: int) -> float | None:
        """Returns the last loss. Also records the step since which the loss has not been finite."""
        reported = self._told("loss")
        loss = None if reported is None else float(reported)
        if loss is None or math.isfinite(loss):
            self._not_finite_since = None
        elif self._not_finite_since is None:  # The process that reports the loss may be ahead of the others.
            self._not_finite_since = max([step, *(process.step for process in self._processes.values())])
        return loss

    def _add_point(self, step: int, finished: float) -> None:
        if self._points and step < self._points[-1][0]:
            self._points.clear()  # The program has started to count its steps anew.
        if not self._points or (step > self._points[-1][0] and finished > self._points[-1][1]):
            self._points.append((step, finished))

    def _step_seconds(self) -> float | None:
        """The median of the times per step between neighbouring points, on which rare pauses have no effect."""
        times = [(later - former) / (above - below) for (below, former), (above, later) in pairwise(self._points)]
        return median(times) if times else None

    def _told(self, name: str) -> Any:
        """The value of a beat's field from the process with the lowest rank that reports it; otherwise None."""
        values = ((rank, process.beat.get(name)) for rank, process in self._processes.items())
        return min(((rank, value) for rank, value in values if value is not None), default=(0, None))[1]
