"""Whether an attempt started over, and how many steps are lost by that. Pure.

The operator's engine applies the same rule (`starting_over.py` there), also to attempts in former pods.
"""

from dataclasses import dataclass, replace

from ddpjob_rank.console import counted

from .progress import Progress

FAR_STEPS, FAR_SECONDS = 100, 60.0
"""A loss of at least this many steps or seconds is reported if it is unknown how often the program saves."""

KNOWS_WHERE = frozenset({"FromCheckpoint", "AsAsked"})
NOTHING_SAVED = "NothingSaved"
"""A value of `Beat.begins`. If the value is this or one of KNOWS_WHERE, the program began there for a reason."""


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


class Beginnings:
    """Follows the progress of a gang, and detects when an attempt has started over."""

    def __init__(self, every: Interval) -> None:
        self._every = every
        self._past: Former | None = None
        self._last: Progress | None = None

    def note(self, now: Progress, saved: int | None, told: int | None = None) -> str:
        """Takes the progress. Returns a warning, only once, if the attempt has started over; otherwise "".

        `saved` is the step of the last known checkpoint. `told` is the last step of the rank that failed in the last
        incident, according to its failure report. It may be higher than the progress shows.
        """
        before, past, self._last = self._last, self._past, now
        if past is not None and told is not None:
            past = replace(past, furthest=max(past.furthest, told))
        self._past = _after(past, now, saved)
        if before is None or past is None or now.first is None or now.recounts:
            return ""
        is_new = now.attempt > before.attempt or (now.attempt == before.attempt and before.first is None)
        lost = steps_lost(past, now.first, now.begins, self._every) if is_new else 0
        if not lost:
            return ""
        time = "" if past.step_seconds is None else f" (about {lost * past.step_seconds:.0f} s)"
        return (
            f"attempt {now.attempt} started over: its first step is {now.first}, although step {past.furthest} had "
            f"finished before. That loses {counted(lost, 'step')}{time}, and new checkpoints may overwrite older "
            "ones. Make the program load its last checkpoint when it starts, as the tutorial"
            ' "Make your script resume" shows'
        )


def _after(past: Former | None, now: Progress, saved: int | None) -> Former | None:
    """Adds the progress of an attempt to `past`."""
    if now.first is None:
        return past
    passed = 0.0 if now.since is None or now.last_step_time is None else now.last_step_time - now.since
    pace = passed / (now.step - now.first) if now.step > now.first and passed > 0 else None
    known = past or Former(now.first, now.step)
    known_saved = known.saved if saved is None else saved
    return Former(min(known.earliest, now.first), max(known.furthest, now.step), known_saved, pace)
