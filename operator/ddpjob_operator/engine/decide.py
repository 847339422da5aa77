"""The engine's entry point: turns a job's snapshot into actions, a status and events, or requests missing facts."""

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
    """Decides what to do for a job from its snapshot alone, without carrying anything out.

    Reads no clock and keeps no memory: the same snapshot gives the same decision, and when nothing is left to do for
    a job, the decision is empty.
    """
    if (former := left_alone(snapshot)) is not None:
        return former
    view = View(snapshot)
    if needs := unmet(view):
        return Decision(needs=needs)
    # A verdict is always found, because the chain's last policy always returns one.
    place, verdict = next((n, found) for n, policy in enumerate(chain) if (found := policy.decides(view)) is not None)
    for step in afterwards:
        verdict = step.takes(view, verdict)
    status = verdict.status
    news = status != view.status
    # The next look depends on the new status, which may begin something that ends at a set time, such as a backoff.
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
    """Returns the next moment at which the decision may change merely because time has passed.

    `then` is the view with the new status. `asked` are the policies up to and including the one that decided, and all
    steps that follow a verdict. Later policies do not matter as long as an earlier policy returns a verdict.
    """
    dues = {source.due for source in asked}  # A set, because several policies share a function.
    times = (verdict.wake_at, *(time for due in dues for time in due(then)))
    return min(filter(None, map(then.next_look, times)), default=None)


UNIMPORTANT = KSTATUS | {ConditionType.CREATED}
"""Conditions whose changes can wait for the next write of the status. The kstatus conditions are derived from the
others. `Running` usually follows `Created` within seconds, so that one write is enough for both."""

COUNTING = REPORTED | {ConditionType.RUNNING, ConditionType.QUEUED}
"""Conditions whose messages change with each pod, with what other jobs use, or with what a program reports."""

# Even "supervised" is minor: if this operator dies before it has written that field, the next operator gets it from
# the supervisor.
MINOR = {
    *("message", "display", "ready_nodes", "state", "reason", "supervised", "progress", "steps", "checkpoint"),
    *("stragglers", "completed_indexes", "last_completed_time"),
}


def _is_minor(before: DDPJobStatus, after: DDPJobStatus) -> bool:
    """True if no change to the status is urgent.

    Progress, the existence and state of pods, and messages that come from a program are not urgent.
    """
    changes = _differences(before, after) | _differences(before.bookkeeping, after.bookkeeping)
    return changes <= MINOR | {"conditions", "bookkeeping"} and _what_matters(before) == _what_matters(after)


def _differences(before: DDPJobStatus | Bookkeeping, after: DDPJobStatus | Bookkeeping) -> set[str]:
    old = vars(before)
    return {name for name, value in vars(after).items() if value != old[name]}


def _what_matters(status: DDPJobStatus) -> list[tuple[object, ...]]:
    """Returns the parts of a status whose changes must be written immediately: important conditions and messages."""
    return [
        (
            item.type,
            item.status,
            item.reason,
            item.last_transition_time,
            "" if item.type in COUNTING else item.message,
        )
        for item in status.conditions
        if item.type not in UNIMPORTANT
    ]
