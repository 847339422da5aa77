"""Whether an attempt started over, and what is lost by that.

A supervisor that no operator started judges by the same rule, in `page/starting_over.py` of the trainer.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from ddpjob_operator.api import Checkpoint, Progress, Steps
from ddpjob_operator.api.words import counted, duration

from .reports import AS_ASKED, FROM_CHECKPOINT, NOTHING_SAVED

FAR_STEPS, FAR_SECONDS = 100, 60.0
"""What is lost is worth a word from here on, where nobody knows when the program saves."""

KNOWS_WHERE = frozenset({FROM_CHECKPOINT, AS_ASKED})
"""Where a program begins if it knows why."""


@dataclass(frozen=True, slots=True)
class Interval:
    """How often a program is asked to save; None: not by this."""

    steps: int | None = None
    seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Former:
    """What is known of the attempts before one."""

    earliest: int
    """The smallest number of a first step."""
    furthest: int
    """The largest number of a step."""
    saved: int | None = None
    """The step of the last checkpoint that was known of, though it may be lost."""
    step_seconds: float | None = None
    """What a step took in the last one, with all that was done between steps; None if it made too few."""


def steps_lost(past: Former, first: int, begins: str | None, every: Interval) -> int:
    """How many steps are lost by an attempt that starts over; 0 if it does not, or if that loses next to nothing.

    It starts over if its first step is no later than that of any other attempt, unless the program knows why. If a
    checkpoint of that step or a later one was known of, there was a better way; if the program says that nothing had
    been saved, there was none. If neither is known, no more than what lies between two saves counts for nothing.
    """
    lost = past.furthest - max(0, first - 1)
    if begins in KNOWS_WHERE or first > past.earliest or lost <= 0:
        return 0
    if past.saved is not None:
        return lost if first <= past.saved else 0
    seconds = 0.0 if past.step_seconds is None else lost * past.step_seconds
    if begins == NOTHING_SAVED:
        far = False
    elif every.steps is not None:
        far = lost > every.steps
    elif every.seconds is not None:
        far = seconds > every.seconds
    else:
        far = lost >= FAR_STEPS or seconds >= FAR_SECONDS
    return lost if far else 0


def over_or_on(
    before: Progress | None,
    steps: Steps,
    present: Progress | None,
    checkpoint: Checkpoint | None,
    told: Iterable[int] = (),
) -> str | None:
    """What is to be said of an attempt's beginning that has just become known; empty if it went on; None: nothing.

    `steps`: what is remembered of those of all attempts. `told`: steps that ranks had finished when they failed,
    which may be more than was known of them before.
    """
    past = None if before is None or before.recounts else _past(before, steps, told)
    if past is None or before is None or present is None or present.recounts or not _is_new(before, present):
        return None
    assert present.first_step is not None, "it is new"
    lost = steps_lost(past, present.first_step, present.begins, _interval(checkpoint))
    return _told(past, present, lost) if lost else ""


def remembered(steps: Steps, present: Progress, saved: int | None) -> Steps:
    """What is remembered of the steps of all attempts; `saved`: that of the last checkpoint, if known."""
    earliest = [step for step in (steps.earliest, present.first_step) if step is not None]
    furthest = [step for step in (steps.furthest, present.step) if step is not None]
    return Steps(
        earliest=min(earliest, default=None),
        furthest=max(furthest, default=None),
        saved=steps.saved if saved is None else saved,
    )


def _is_new(before: Progress, present: Progress) -> bool:
    """Whether it has just become known where an attempt began: only now, or other than was thought at first."""
    if before.attempt is None or present.attempt is None or present.first_step is None:
        return False
    later = before.first_step is None or present.first_step > before.first_step
    return present.attempt > before.attempt or (present.attempt == before.attempt and later)


def _past(before: Progress, steps: Steps, told: Iterable[int]) -> Former | None:
    if steps.earliest is None or steps.furthest is None:
        return None
    return Former(steps.earliest, max([steps.furthest, *told]), steps.saved, _pace(before))


def _pace(before: Progress) -> float | None:
    """What a step of that attempt took in seconds."""
    first, last, since, until = before.first_step, before.step, before.since, before.last_step_time
    if first is None or last is None or since is None or until is None or last <= first or until <= since:
        return None
    return (until - since).total_seconds() / (last - first)


def _interval(checkpoint: Checkpoint | None) -> Interval:
    return Interval(checkpoint.every_steps, checkpoint.every_seconds) if checkpoint else Interval()


def _told(past: Former, present: Progress, lost: int) -> str:
    time = "" if past.step_seconds is None else f" (about {duration(round(lost * past.step_seconds))})"
    saved = "" if past.saved is None else f" A checkpoint of step {past.saved} was not loaded."
    return (
        f"Attempt {present.attempt} started over: its first step is {present.first_step}, and step {past.furthest} "
        f"was finished before. {counted(lost, 'step')}{time} are lost, and what is saved now may replace what was "
        f"saved before.{saved} Have the program load its last checkpoint when it starts"
    )
