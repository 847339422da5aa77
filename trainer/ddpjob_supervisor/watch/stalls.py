"""Decides from the beats of a gang's processes whether the gang has stalled. Pure: time is an argument.

A stall needs evidence: a supervisor that answers, and reports that no step has finished for longer than the limit of
the gang's present activity. If that is an evaluation, or another activity that takes long, it is also enough that the
program reports it again, as it may after each batch. Without an answer, the ranks may be doing anything. A program
that has never finished a step, in this attempt or an earlier one of the same kind, may have no steps, and does not
count as stalled unless firstStepTimeoutSeconds is set.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ddpjob_rank.limits import Activity, Learned, StallLimits
from ddpjob_rank.reporting.teller import ENDING, EVALUATION, SAVING, STARTING, TRAINING

from .beat import BeatDocument

OLD_SECONDS = 5.0
"""A process counts as not answering if its last beat is older than this."""

PAUSE_SECONDS = 5.0
"""If `look` has not been called for longer than this, all times start again, because this process was frozen, and
perhaps all others were, too."""

LATE_SECONDS = 2.0
"""How late a beat may arrive. If the time of the same step changes by more, the program has reported the step
twice."""

ACTIVITIES = {
    STARTING: Activity.STARTING,
    TRAINING: Activity.TRAINING,
    SAVING: Activity.SAVING,
    EVALUATION: Activity.EVALUATING,
    ENDING: Activity.FINISHING,
}

LONG = frozenset({Activity.SAVING, Activity.EVALUATING, Activity.OTHER})
"""Activities that a program announces because they take long."""


@dataclass(frozen=True, slots=True)
class _Process:
    beat: BeatDocument
    heard: float
    finished: float | None
    """When the process finished its last step, by this supervisor's clock; None: it has finished none."""
    went_on: float = 0.0
    """When the process last reported an activity that takes long, by the same clock; 0: it has not yet."""

    @property
    def step(self) -> int:
        return int(self.beat.get("step") or 0)

    @property
    def doing(self) -> Activity:
        total = self.beat.get("totalSteps")
        if total and self.step >= total:
            return Activity.FINISHING
        return ACTIVITIES.get(self.beat["activity"], Activity.OTHER)


class Stalls:
    """Follows the steps of a gang through its attempts."""

    def __init__(
        self, timeout: float | None, learned: Learned | None = None, first_step_timeout: float | None = None
    ) -> None:
        self._limits = StallLimits(timeout, learned, first_step_timeout)
        self._expects_steps = first_step_timeout is not None or (learned is not None and learned.first_step > 0)
        self._attempt = -1
        self._processes: dict[int, _Process] = {}
        self._looked = self._since = self._announced = 0.0
        self._began = 0.0
        """When `look` was first called in the present attempt."""
        self._doing: Activity | None = None
        self._stalled: float | None = None
        self.waited: float | None = None
        """For how many seconds the present attempt has waited for its first step; None if a step has finished."""

    @property
    def learned(self) -> Learned:
        """The limits to save for pods that start later."""
        return self._limits.learned

    @property
    def limit(self) -> float | None:
        """How many seconds the gang may now go without finishing a step; None before the first look at an attempt."""
        return None if self._doing is None else self._limits.seconds(self._doing)

    def look(self, now: float, beats: Mapping[int, BeatDocument]) -> float | None:
        """Takes the last beat of each process.

        Returns how many seconds a stall has lasted, or None if there is no stall.

        Call this about once a second while an attempt runs, even if the beats are not new. `now` is a monotonic time
        in seconds. After a stall was found, its duration is returned again until the first beat of the next attempt.
        """
        if now - self._looked > PAUSE_SECONDS:
            self._since = now
        self._looked = now
        attempt = max((beat["attempt"] for beat in beats.values()), default=self._attempt)
        if attempt > self._attempt:
            self._attempt, self._processes, self._doing, self._stalled = attempt, {}, None, None
            self._began = now
        present = {rank: beat for rank, beat in beats.items() if beat["attempt"] == self._attempt}
        if self._stalled is not None or not present:
            return self._stalled if present else None
        first = min(present)
        for rank, beat in present.items():
            self._hear(rank, beat, now, learn=rank == first)
        self._note_announcements(now)
        started = any(process.finished is not None for process in self._processes.values())
        self.waited = None if started else now - self._began
        self._stalled = self._judge(now)
        return self._stalled

    def _hear(self, rank: int, beat: BeatDocument, now: float, *, learn: bool) -> None:
        known, age = self._processes.get(rank), beat.get("stepAge")
        activity_age = beat.get("activityAge")
        if known is not None and known.beat == beat and (age is not None or activity_age is not None):
            return  # This is the same beat as before: in a new one, the ages would be different.
        heard = _Process(beat, now, None if age is None else now - age, known.went_on if known else 0.0)
        if activity_age is not None and ACTIVITIES.get(beat["activity"], Activity.OTHER) in LONG:
            heard = replace(heard, went_on=now - activity_age)
        if known is not None and known.finished is not None:
            heard = self._compared(known, heard, learn=learn)
        elif heard.finished is not None:
            self._limits.note_first_step(heard.finished - self._began)
        self._processes[rank] = heard

    def _compared(self, known: _Process, heard: _Process, *, learn: bool) -> _Process:
        """The new state of a process that has finished steps before. Corrects the time at which its step finished."""
        assert known.finished is not None, "the caller has seen to it"
        if heard.finished is None:
            return replace(heard, finished=known.finished)
        pause = heard.finished - known.finished
        if heard.step == known.step and pause < LATE_SECONDS:
            return replace(heard, finished=min(heard.finished, known.finished))
        # All ranks advance together, so it is enough to learn from one rank. A pause for a save is not part of a
        # step.
        if learn and known.finished > self._announced:
            self._limits.note_pause(pause)
        return heard

    def _note_announcements(self, now: float) -> None:
        processes = self._processes.values()
        if any(process.doing in LONG for process in processes):
            self._announced = now
        if any(process.beat.get("announces") for process in processes):
            self._limits.note_announcements()
        # A program that reports its total number of steps will also report each step.
        self._expects_steps |= any(
            process.finished is not None or process.beat.get("totalSteps") or process.beat.get("reports")
            for process in processes
        )

    def _judge(self, now: float) -> float | None:
        stepped = [process for process in self._processes.values() if process.finished is not None]
        answer = [process for process in stepped or self._processes.values() if now - process.heard < OLD_SECONDS]
        # The activity with the longest limit counts: if one rank saves, the others wait for it. Before its first
        # step, a program may already announce such an activity.
        announced = (process.doing for process in self._processes.values() if process.doing in LONG)
        doings = [process.doing for process in stepped] or [Activity.STARTING, *announced]
        doing = max(doings, key=self._limits.seconds)
        if doing is not self._doing:
            self._doing, self._since = doing, now
        if not answer or not self._expects_steps:
            return None
        # The time is counted only up to the oldest of the last reports, because nothing is known about the time after
        # it.
        seconds = min(process.heard for process in answer) - max(
            self._since, *(max(process.finished or 0.0, process.went_on) for process in answer)
        )
        if seconds <= self._limits.seconds(doing):
            return None
        self._limits.note_stall()
        return seconds
