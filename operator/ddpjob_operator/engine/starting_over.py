"""Detects that an attempt started over, and how many steps that loses.

Supervisors that run without an operator use the same rule, in `page/starting_over.py` of the trainer.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from ddpjob_operator.api import Checkpoint, Progress, Steps
from ddpjob_operator.api.words import counted, duration

from .reports import AS_ASKED, FROM_CHECKPOINT, NOTHING_SAVED

FAR_STEPS, FAR_SECONDS = 100, 60.0
"""If it is not known how often the program saves, a loss of this many steps or seconds is worth reporting."""

KNOWS_WHERE = frozenset({FROM_CHECKPOINT, AS_ASKED})
"""The values of `Progress.begins` with which a program reports that it chose its first step on purpose."""


@dataclass(frozen=True, slots=True)
class Interval:
    """How often a program is asked to save: every so many steps or seconds. The other unit is None."""

    steps: int | None = None
    seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Former:
    """What is known of all earlier attempts."""

    earliest: int
    """The lowest step with which any attempt has begun."""
    furthest: int
    """The largest step that an attempt has finished."""
    saved: int | None = None
    """The step of the last known checkpoint, which may have been lost since."""
    step_seconds: float | None = None
    """Seconds from step to step in the last attempt, all included; None if it made too few steps."""


def steps_lost(past: Former, first: int, begins: str | None, every: Interval) -> int:
    """Returns how many steps an attempt loses by starting over; 0 if it does not, or loses next to nothing.

    An attempt has started over if its first step, `first`, is no later than that of any earlier attempt, unless the
    program was asked to begin there. If a checkpoint of that step or a later one is known, the program could have
    loaded it, so every step counts. If the program reports that nothing had been saved, no step counts. If neither is
    the case, a loss counts only if it is larger than the interval between two saves (`every`).
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


def start_over_message(
    before: Progress | None,
    steps: Steps,
    present: Progress | None,
    checkpoint: Checkpoint | None,
    reported: Iterable[int] = (),
) -> str | None:
    """Returns the message that an attempt has started over; empty if it has not, None if it has no new first step.

    `steps` are the steps remembered from all attempts. `reported` are the steps that ranks reported when they failed,
    which may be later than any step that was known before.
    """
    past = None if before is None or before.recounts else _past(before, steps, reported)
    if past is None or before is None or present is None or present.recounts or not _is_new(before, present):
        return None
    assert present.first_step is not None, "it is new"
    lost = steps_lost(past, present.first_step, present.begins, _interval(checkpoint))
    return _message(past, present, lost) if lost else ""


def remembered(steps: Steps, present: Progress, saved: int | None, time: datetime | None) -> Steps:
    """Returns the steps to remember from all attempts up to the present.

    `saved` is the last checkpoint's step. `time` is when the operator heard of the present progress.
    """
    earliest = [step for step in (steps.earliest, present.first_step) if step is not None]
    furthest = [step for step in (steps.furthest, present.step) if step is not None]
    return Steps(
        earliest=min(earliest, default=None),
        furthest=max(furthest, default=None),
        saved=steps.saved if saved is None else saved,
        time=time,
    )


def _is_new(before: Progress, present: Progress) -> bool:
    """Whether an attempt's first step has just become known, or is later than first reported."""
    if before.attempt is None or present.attempt is None or present.first_step is None:
        return False
    later = before.first_step is None or present.first_step > before.first_step
    return present.attempt > before.attempt or (present.attempt == before.attempt and later)


def _past(before: Progress, steps: Steps, reported: Iterable[int]) -> Former | None:
    if steps.earliest is None or steps.furthest is None:
        return None
    return Former(steps.earliest, max([steps.furthest, *reported]), steps.saved, _pace(before))


def _pace(before: Progress) -> float | None:
    """Returns the attempt's seconds per step; None if it made too few steps."""
    first, last, since, until = before.first_step, before.step, before.since, before.last_step_time
    if first is None or last is None or since is None or until is None or last <= first or until <= since:
        return None
    return (until - since).total_seconds() / (last - first)


def _interval(checkpoint: Checkpoint | None) -> Interval:
    return Interval(checkpoint.every_steps, checkpoint.every_seconds) if checkpoint else Interval()


def _message(past: Former, present: Progress, lost: int) -> str:
    time = "" if past.step_seconds is None else f" (about {duration(round(lost * past.step_seconds))})"
    saved = "" if past.saved is None else f" The checkpoint of step {past.saved} was not loaded."
    return (
        f"Attempt {present.attempt} started over: its first step is {present.first_step}, although step "
        f"{past.furthest} had finished before. That loses {counted(lost, 'step')}{time}, and new checkpoints may "
        f"overwrite older ones.{saved} Make the program load its last checkpoint when it starts, as the tutorial"
        ' "Make your script resume" shows'
    )
