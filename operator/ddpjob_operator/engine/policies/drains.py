"""Drain protection: a PodDisruptionBudget refuses evictions until the gang has saved a checkpoint.

The budget exists only for a limited time, because the program may report no checkpoints, or may have stopped saving.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from ddpjob_operator.api import DisruptionPolicy
from ddpjob_operator.engine.decision import Create, Delete, DeleteJob
from ddpjob_operator.engine.manifests.children import build_disruption_budget
from ddpjob_operator.engine.owned import DISRUPTION_BUDGET
from ddpjob_operator.engine.view import View, after

from .verdict import Times, Verdict

OPEN = timedelta(seconds=30)
"""How long pods may be evicted after each save. `kubectl drain` retries every five seconds, Karpenter at least every
ten, and Cluster API every twenty."""

UNPROTECTED = "spec.disruption has no effect: "
MAY_NOT = "the operator is not permitted to create PodDisruptionBudgets"
SWITCHED_OFF = "the operator's administrator has disabled drain protection (drainProtectionSeconds: 0)"


def protected(view: View, verdict: Verdict) -> Verdict:
    """Allows evictions of pods only shortly after a checkpoint was saved, if the job requests that.

    The PodDisruptionBudget exists exactly while evictions are refused. So people can see whether they are, and after
    its deletion no eviction has to wait until a controller has noticed.
    """
    there = view.snapshot.has(DISRUPTION_BUDGET)
    if not (there or _is_asked_for(view)) or there is None or DeleteJob() in verdict.actions:
        return verdict
    then = view.with_status(verdict.status)
    wanted = is_protected(then)
    if wanted == there or view.refused:
        return verdict
    job = then.snapshot.job
    create = Create(DISRUPTION_BUDGET, build_disruption_budget(job))
    action = create if wanted else Delete(DISRUPTION_BUDGET, create.name)
    return replace(verdict, actions=(*verdict.actions, action))


def protected_due(view: View) -> Times:
    """When evictions will be refused, when they will be allowed because nothing was saved, and when to retry."""
    refusal, there = view.snapshot.refusal, view.snapshot.has(DISRUPTION_BUDGET)
    if there is None:
        return
    if _is_worth_it(view):
        yield _closes(view)
        yield _gives_up(view)
    if refusal is not None and is_protected(view) != there:
        yield refusal.retry_at


def is_protected(view: View) -> bool:
    """Whether an eviction would lose what the gang has not saved yet."""
    if not _is_worth_it(view):
        return False
    closes, gives_up = _closes(view), _gives_up(view)
    if closes is not None and view.now < closes:
        return False
    # While it is uncertain whether `gives_up` has passed, an existing budget is kept, but no new one is created.
    held_up = view.snapshot.has(DISRUPTION_BUDGET) and not view.is_due(gives_up)
    return gives_up is not None and (view.now < gives_up or bool(held_up))


def unprotected(view: View) -> str:
    """Returns why drains do not wait for a checkpoint although the job requests that; empty if they do wait."""
    refusal, there = view.snapshot.refusal, view.snapshot.has(DISRUPTION_BUDGET)
    if there or not _is_asked_for(view):
        return ""
    if there is None:
        return UNPROTECTED + MAY_NOT
    if not view.snapshot.settings.drain_protection_seconds:
        return UNPROTECTED + SWITCHED_OFF
    return UNPROTECTED + refusal.message if refusal is not None else ""


def _is_asked_for(view: View) -> bool:
    return view.spec.disruption is DisruptionPolicy.AFTER_CHECKPOINT


def _is_worth_it(view: View) -> bool:
    """Whether there is a running gang that should be protected."""
    asked = _is_asked_for(view) and view.snapshot.settings.drain_protection_seconds > 0
    return asked and view.up and not (view.winds_down or view.status.finished)


def _closes(view: View) -> datetime | None:
    """When evictions will be refused again after the last save; None if nothing was saved."""
    return after(_saved_at(view), OPEN.total_seconds())


def _gives_up(view: View) -> datetime | None:
    """When a gang that has stopped saving will no longer hold up drains; None if it has not run yet."""
    since = max(filter(None, (_saved_at(view), view.status.first_run_time)), default=None)
    return after(since, view.snapshot.settings.drain_protection_seconds)


def _saved_at(view: View) -> datetime | None:
    return view.status.checkpoint.time if view.status.checkpoint is not None else None
