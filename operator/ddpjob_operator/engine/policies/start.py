"""Policies by which a gang starts."""

from datetime import datetime

from ddpjob_operator.api import ConditionType, DDPJobStatus
from ddpjob_operator.api.reasons import Reason
from ddpjob_operator.api.words import counted
from ddpjob_operator.engine.changes import changed
from ddpjob_operator.engine.conditions import Say, updated
from ddpjob_operator.engine.decision import Action, Create, Delete
from ddpjob_operator.engine.incidents.ledger import culprit
from ddpjob_operator.engine.owned import SERVICE
from ddpjob_operator.engine.supervision import (
    comes_up,
    delay_message,
    hold_message,
    missed,
    stopped_message,
    supervision_message,
    training_warning,
    unreachable_message,
)
from ddpjob_operator.engine.view import View

from .avoidance import returned
from .drains import unprotected
from .obstacles import creation_obstacle, known, no_defaults, no_image, running_message, starts_again, ungrouped
from .size import lacking, reconcile_reserves
from .steps import creating, delete, ends_due, grace_between, short_grace, stop, waiting_to_end
from .verdict import Times, Verdict
from .way import wait_ends


def between_attempts(view: View) -> Verdict | None:
    """No attempt begins before its backoff is over, or while pods of a former attempt may still run."""
    # Once a gang exists, it does not wait for pods of earlier attempts to go away. If one turns up late, under_way
    # deletes it.
    if view.created:
        return None
    actions = stop(view, view.previous, {culprit(view.status)}, grace=grace_between(view))
    running = sum(view.lives(pod) for pod in view.previous)
    until = wait_ends(view)
    waiting = until is not None and until > view.now
    if not (actions or running or waiting):
        return None
    message = starts_again(view) or None if waiting else waiting_to_end(view, running)
    # If the cluster refused pods of the last attempt, that obstacle is shown until the next attempt creates pods.
    return Verdict(view.status, message, actions, blocked=known(view))


def between_due(view: View) -> Times:
    """When the backoff is over, and when pods that were told to stop will count as lost."""
    yield wait_ends(view)
    yield from ends_due(view)


def obstructed(view: View) -> Verdict | None:
    """A job is blocked until somebody sets its image, and until its defaults are known. Its deadlines count down."""
    # A gang that exists continues, and its incidents are answered, even if its image is no longer set anywhere.
    if view.created or (obstacle := no_defaults(view) or no_image(view)) is None:
        return None
    status = changed(_seen(view), start_time=view.status.start_time or view.now)
    return Verdict(status, obstacle.message, blocked=obstacle)


def children(view: View) -> Verdict | None:
    """Creates everything that this attempt still lacks, in one round.

    If the cluster refuses an object, the job reports the refusal in the cluster's words until the object is created,
    and retries after a while. This continues even if another process of the operator takes over.
    """
    actions = creating(view, view.status, view.missing)
    if not actions:
        return None
    obstacle, refusal = creation_obstacle(view), view.snapshot.refusal
    if refusal is not None and view.now < refusal.retry_at:
        return Verdict(_seen(view), refusal.message, blocked=obstacle)
    # The gang is already running, and the object may not really be missing: the watch may just not have reported it
    # yet.
    if view.up and obstacle is None:
        return Verdict(_seen(view), None, actions)
    pods = f"Creating {len(view.missing)} of {view.pods(view.nodes)}"
    message = obstacle.message if obstacle else pods if view.missing else _beside(actions)
    return Verdict(_seen(view), message, actions, blocked=obstacle)


def _beside(actions: tuple[Action, ...]) -> str:
    """Returns the message for a round that creates or deletes objects, but no pods."""
    kinds = [action.kind for action in actions if isinstance(action, Create | Delete)]
    if SERVICE in kinds:
        return "Creating the Service"
    return f"Updating the {kinds[-1].kind}"


def children_due(view: View) -> Times:
    """When to retry creating an object that the cluster refused."""
    refusal = view.snapshot.refusal
    if refusal is not None and (creating(view, view.status, view.missing) or lacking(view)):
        yield refusal.retry_at


def under_way(view: View) -> Verdict | None:
    """Handles a gang whose pods all exist, until they have finished. Late pods of former attempts are deleted."""
    late = delete(view, view.previous, grace=short_grace(view))
    made = f"{counted(view.nodes, 'node')} created"  # Nodes are pods on a cluster, but processes on one machine.
    made = "; ".join(part for part in (made, ungrouped(view)) if part)
    created = Say(ConditionType.CREATED, value=True, reason=Reason.PODS_CREATED, message=made)
    if not view.up:
        message = running_message(view)
        starting = Say(ConditionType.RUNNING, value=False, reason=Reason.PODS_STARTING, message=message)
        return Verdict(updated(view, created, starting), message, late)
    if comes_up(view):
        return Verdict(updated(view, created), missed(view) or starts_again(view) or None, late)
    all_run = f"{counted(view.nodes, 'node')} running"
    message = _finished(view) if view.succeeded else all_run
    message = supervision_message(view) or "; ".join(
        part
        for part in (
            *(message, hold_message(view), stopped_message(view), delay_message(view), training_warning(view)),
            *(unreachable_message(view), unprotected(view), returned(view)),
        )
        if part
    )
    running = Say(ConditionType.RUNNING, value=True, reason=Reason.ALL_PODS_RUNNING, message=all_run)
    attempt = f"Attempt {view.status.attempt} is running"
    recovered = Say(ConditionType.RESTARTING, value=False, reason=Reason.RESTARTED, message=attempt)
    status = updated(view, created, running, recovered, backoff_until=None, first_run_time=_first_run(view))
    obstacle = creation_obstacle(view) if lacking(view) else None
    if obstacle is not None:
        message = f"{message}; the gang cannot grow: {obstacle.message}"
    return Verdict(status, message, (*late, *reconcile_reserves(view)), blocked=obstacle)


def _finished(view: View) -> str:
    return f"{view.succeeded} of {counted(view.nodes, 'node')} finished: {view.finished_text}"


def _seen(view: View) -> DDPJobStatus:
    """Returns the last status, with the time when all ranks first ran, even if an object is missing."""
    return updated(view, first_run_time=_first_run(view))


def _first_run(view: View) -> datetime | None:
    return view.status.first_run_time or (view.now if view.up else None)
