"""Whether an attempt started over, and what is lost by that. Pure.

The operator's engine judges by the same rule, `starting_over.py` there, and knows what was before this pod.
"""

from dataclasses import dataclass, replace

from ddpjob_rank.console import counted

from .progress import Progress

FAR_STEPS, FAR_SECONDS = 100, 60.0
"""What is lost is worth a word from here on, where nobody knows when the program saves."""

KNOWS_WHERE = frozenset({"FromCheckpoint", "AsAsked"})
NOTHING_SAVED = "NothingSaved"
"""Words of a beat for where its program begins."""


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


class Beginnings:
    """Follows how far a gang is, and says when one of its attempts has started over."""

    def __init__(self, every: Interval) -> None:
        self._every = every
        self._past: Former | None = None
        self._last: Progress | None = None

    def note(self, now: Progress, saved: int | None, told: int | None = None) -> str:
        """Takes note of how far it is, with the last checkpoint known; what there is to say of it, mostly nothing.

        `told`: the step that a rank had finished when it failed last, which may be more than was known of it before.
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
            f"attempt {now.attempt} started over: its first step is {now.first}, and step {past.furthest} was "
            f"finished before. {counted(lost, 'step')}{time} are lost, and what is saved now may replace what was "
            "saved before. Have the program load its last checkpoint when it starts"
        )


def _after(past: Former | None, now: Progress, saved: int | None) -> Former | None:
    """What is known once an attempt is this far."""
    if now.first is None:
        return past
    passed = 0.0 if now.since is None or now.last_step_time is None else now.last_step_time - now.since
    pace = passed / (now.step - now.first) if now.step > now.first and passed > 0 else None
    known = past or Former(now.first, now.step)
    known_saved = known.saved if saved is None else saved
    return Former(min(known.earliest, now.first), max(known.furthest, now.step), known_saved, pace)
