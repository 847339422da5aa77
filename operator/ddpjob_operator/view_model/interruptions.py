"""Lists a run's interruptions: when and why each happened, and from which step training went on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from ddpjob_operator.api import Cause, Incident

from .records import Records, Start

STOPPED_ON_REQUEST = "StoppedOnRequest"
"""The `error` in the `ended` record of a trainer that saved and stopped because it was asked to."""


@dataclass(frozen=True, slots=True)
class Interruption:
    """One interruption of a run. Interruptions are numbered in the order in which they happened."""

    number: int
    time: datetime
    attempt: int
    """The attempt that the interruption ended."""
    cause: str
    message: str
    step: int | None
    """The last step that is known to have been finished before the interruption."""
    resumed: int | None
    """The step from which training went on; None if it did not go on, or if the step is unknown."""
    failed: bool = True
    """Whether something went wrong, as far as it is known. A run that was stopped on request has not failed."""


def interruptions_of(history: Sequence[Incident], recorded: Records) -> list[Interruption]:
    """Lists the incidents that are known, and any other restarts that the records show.

    A start after the end of training, for example with more epochs, does not count as an interruption.
    """
    found = [_of_incident(incident, recorded.starts) for incident in history]
    for before, after in pairwise(recorded.starts):
        in_history = any(before.began.attempt <= incident.attempt < after.began.attempt for incident in history)
        # On a held job, the next start is another program. Another rank may have failed after rank 0 had finished.
        if not in_history and not before.of("program_ended") and (before.of("incident") or not before.of("finished")):
            found.append(_of_start(before, after))
    ordered = sorted(found, key=lambda one: one[0])
    return [Interruption(number, *rest) for number, rest in enumerate(ordered, 1)]


_Parts = tuple[datetime, int, str, str, int | None, int | None, bool]


def _of_incident(incident: Incident, starts: Sequence[Start]) -> _Parts:
    later = (start.resumed_step for start in starts if start.began.attempt > incident.attempt)
    before = (_last_step(start) for start in reversed(starts) if start.began.attempt <= incident.attempt)
    step = next(before, None) if incident.step is None else incident.step
    cause = f"{incident.who}: {incident.cause}"
    failed = incident.cause != Cause.STOPPED
    return incident.time, incident.attempt, cause, incident.message, step, next(later, None), failed


def _of_start(before: Start, after: Start) -> _Parts:
    time, cause, message, failed = after.began.time, "started again", "", False
    if told := [one for entry in before.of("incident") if isinstance(one := entry.values.get("incident"), Mapping)]:
        time, message, failed = before.of("incident")[-1].time, str(told[-1].get("message")), True
        cause = f"rank {told[-1].get('rank')}: {told[-1].get('cause')}"
    elif ended := before.of("ended"):
        time, error, message = ended[-1].time, ended[-1].values.get("error"), str(ended[-1].values.get("message"))
        failed = error != STOPPED_ON_REQUEST
        cause = f"rank 0: {error}" if failed else "stopped on request"
    return time, before.began.attempt, cause, message, _last_step(before), after.resumed_step, failed


def _last_step(start: Start) -> int:
    return max((entry.step for entry in start.entries), default=start.began.step)
