"""The engine: what is there -> what to do and what to say, or what it has to know first."""

from datetime import datetime

from ddpjob_operator.api import Bookkeeping, ConditionType, DDPJobStatus

from .afterwards import AFTERWARDS, Step
from .conditions import REPORTED, events
from .decision import Decision
from .kstatus import CONDITIONS as KSTATUS
from .left_alone import left_alone
from .policies import CHAIN, Policy, Verdict
from .policies.way import in_line
from .questions import unmet
from .snapshot import Snapshot
from .view import View


def decide(
    snapshot: Snapshot, chain: tuple[Policy, ...] = CHAIN, afterwards: tuple[Step, ...] = AFTERWARDS
) -> Decision:
    """Decides everything from what is true now, and carries out nothing.

    Reads no clock and keeps no memory: the same snapshot gives the same decision, and when nothing is left to do for
    a job, the decision is empty.
    """
    if (former := left_alone(snapshot)) is not None:
        return former
    view = View(snapshot)
    if needs := unmet(view):
        return Decision(needs=needs)
    # Always found: the last policy of the chain has a verdict for every moment.
    place, verdict = next((n, said) for n, policy in enumerate(chain) if (said := policy.decides(view)) is not None)
    for step in afterwards:
        verdict = step.takes(view, verdict)
    status = verdict.status
    news = status != view.status
    # By the new status: what it begins, such as a backoff, has an end of its own.
    then = view if status is view.status else view.with_status(status)
    return Decision(
        status=status if news else None,
        actions=verdict.actions,
        events=(*verdict.events, *events(view.status, status)) if news else (),
        wake_at=_next_look(then, verdict, (*chain[: place + 1], *afterwards)),
        can_wait=news and not verdict.actions and _is_minor(view.status, status),
        in_line=in_line(then),
    )


def _next_look(then: View, verdict: Verdict, asked: tuple[Policy | Step, ...]) -> datetime | None:
    """The next moment at which time alone may change the decision.

    `then` is the moment with the new status. `asked` are the policies up to the one that decided, and the steps that
    follow. The policies between are not asked while that one has a verdict.
    """
    dues = {one.due for one in asked}  # Some have the same.
    times = (verdict.wake_at, *(time for due in dues for time in due(then)))
    return min(filter(None, map(then.next_look, times)), default=None)


UNIMPORTANT = KSTATUS | {ConditionType.CREATED}
"""Conditions that may be written with what matters. Those of kstatus follow from the rest. That all pods run follows
within seconds as a rule: written with it, that they were created costs no status of its own."""

COUNTING = REPORTED | {ConditionType.RUNNING, ConditionType.QUEUED}
"""Conditions whose messages change with each pod, with what others use, or with what a program reports."""

# "supervised" as well: if an operator dies before it is written, the next one hears the supervisor itself.
MINOR = {
    *("message", "display", "ready_nodes", "state", "reason", "supervised", "progress", "steps", "checkpoint"),
    *("stragglers", "completed_indexes", "last_completed_time"),
}


def _is_minor(before: DDPJobStatus, after: DDPJobStatus) -> bool:
    """Whether the new status only adds that all pods exist, which of them run or have finished, or the progress.

    Or says the same in other words, if the words are a program's.
    """
    changes = _differences(before, after) | _differences(before.bookkeeping, after.bookkeeping)
    return changes <= MINOR | {"conditions", "bookkeeping"} and _what_matters(before) == _what_matters(after)


def _differences(before: DDPJobStatus | Bookkeeping, after: DDPJobStatus | Bookkeeping) -> set[str]:
    old = vars(before)
    return {name for name, value in vars(after).items() if value != old[name]}


def _what_matters(status: DDPJobStatus) -> list[tuple[object, ...]]:
    """Of the conditions."""
    return [
        (one.type, one.status, one.reason, one.last_transition_time, "" if one.type in COUNTING else one.message)
        for one in status.conditions
        if one.type not in UNIMPORTANT
    ]
