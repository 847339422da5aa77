"""Nodes that are drained: a PodDisruptionBudget refuses evictions until the gang has saved a checkpoint."""

from dataclasses import replace
from datetime import datetime, timedelta

from ddpjob_operator.api import DisruptionPolicy
from ddpjob_operator.engine.decision import CreateDisruptionBudget, DeleteDisruptionBudget, DeleteJob
from ddpjob_operator.engine.manifests.names import disruption_budget_name
from ddpjob_operator.engine.view import View

from .verdict import Times, Verdict

OPEN = timedelta(seconds=30)
"""For how long after a save pods may be evicted. `kubectl drain` tries again every five seconds, Karpenter at least
every ten, and Cluster API every twenty."""

LONGEST = timedelta(hours=1)
"""How long a job that has never saved a checkpoint holds up drains: it may be a program that reports none."""

UNPROTECTED = "spec.disruption has no effect: "
MAY_NOT = "the operator may not make PodDisruptionBudgets"


def protected(view: View, verdict: Verdict) -> Verdict:
    """Lets pods be evicted only after a checkpoint was saved, if the job asks for that.

    The budget exists exactly while evictions are refused: whoever reads it sees that, and once it is deleted nobody
    has to wait for a controller to take notice.
    """
    there = view.snapshot.disruption_budget
    if not (there or _is_asked_for(view)) or there is None or DeleteJob() in verdict.actions:
        return verdict
    then = view.with_status(verdict.status)
    wanted = is_protected(then)
    if wanted == there or view.refused:
        return verdict
    job = then.snapshot.job
    action = CreateDisruptionBudget(job) if wanted else DeleteDisruptionBudget(disruption_budget_name(job))
    return replace(verdict, actions=(*verdict.actions, action))


def protected_due(view: View) -> Times:
    """When evictions are refused again or, since nothing is ever saved, no longer; and after a refusal."""
    if view.snapshot.disruption_budget is None or not _is_asked_for(view):
        return
    yield _closes(view) or _gives_up(view)
    refusal = view.snapshot.refusal
    if refusal is not None and is_protected(view) != view.snapshot.disruption_budget:
        yield refusal.retry_at


def is_protected(view: View) -> bool:
    """Whether an eviction would lose what the gang has not saved yet."""
    if not _is_asked_for(view) or not view.up or view.winds_down or view.status.finished:
        return False
    closes, gives_up = _closes(view), _gives_up(view)
    if closes is not None:
        return view.now >= closes
    # Once evictions are no longer refused, nobody begins again because the time is in doubt.
    held_up = view.snapshot.disruption_budget and not view.is_due(gives_up)
    return gives_up is not None and (view.now < gives_up or bool(held_up))


def unprotected(view: View) -> str:
    """Why drains do not wait for a checkpoint although the job asks for that; empty if they do."""
    refusal, there = view.snapshot.refusal, view.snapshot.disruption_budget
    if there or not _is_asked_for(view):
        return ""
    if there is None:
        return UNPROTECTED + MAY_NOT
    return UNPROTECTED + refusal.message if refusal is not None else ""


def _is_asked_for(view: View) -> bool:
    return view.spec.disruption is DisruptionPolicy.AFTER_CHECKPOINT


def _closes(view: View) -> datetime | None:
    """When the time after the last save is over; None if there was none."""
    saved = view.status.checkpoint
    return saved.time + OPEN if saved is not None and saved.time is not None else None


def _gives_up(view: View) -> datetime | None:
    """When a gang that never saves stops holding up drains; None if it has not run yet."""
    since = view.status.first_run_time
    return since + LONGEST if since is not None else None
