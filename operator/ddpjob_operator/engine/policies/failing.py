"""Incidents: what went wrong, what it costs, and whether the gang starts again."""

from typing import Any

from ddpjob_operator.api import Budget, Cause, ConditionType, Failure, RestartAction
from ddpjob_operator.api.reasons import Reason
from ddpjob_operator.engine.budget import charged, present, too_many_disruptions
from ddpjob_operator.engine.causes import failure_of, lost_pod, stalled, unstartable_at, was_turned_away
from ddpjob_operator.engine.incident import first_of, is_crash_loop, remembered, told
from ddpjob_operator.engine.naming import pod_name
from ddpjob_operator.engine.rules import ruled
from ddpjob_operator.engine.saying import updated
from ddpjob_operator.engine.snapshot import Pod
from ddpjob_operator.engine.timers import finish_timeout
from ddpjob_operator.engine.view import View

from .ending import fail
from .hindsight import avoiding, hindsight
from .steps import ANNOUNCED, restarting, short_grace, start_again, wait_after
from .verdict import Verdict


def pods_failed(view: View) -> Verdict | None:
    """An incident: at the first failed or lost pod the gang starts again as a whole, or the job fails."""
    failures = _failures(view)
    if not failures:
        return None
    incident = ruled(view.spec.restart, first_of(failures), has_run=view.has_run)
    budget = charged(present(view.spec, view.status, min(incident.time, view.now)), incident.action)
    past = remembered(view.status, incident)
    if final := _why_final(view, incident, budget):
        return fail(view, *final, **past)
    return _restart(view, incident, budget, {**past, **_avoiding(view, incident)})


def seen_clearer(view: View) -> Verdict | None:
    """What pods of the attempt that failed say at last may tell more of the incident: that it was free, or final."""
    if view.created:
        return None
    learned = hindsight(view)
    if not learned:
        return None
    incident = learned.get("last_failure")
    if incident is not None and incident.action is RestartAction.FAIL:
        return fail(view, incident.cause, told(incident), **learned)
    said = view.status.condition(ConditionType.RESTARTING)
    known = view.status.last_failure
    if (
        incident is None
        or known is None
        or said is None
        or said.reason != known.cause
        or known.cause == incident.cause
    ):
        return Verdict(updated(view, **learned), view.status.message)
    message = f"{told(incident)}; {_cost(view, incident, learned.get('budget', view.status.budget))}"
    says = restarting(view, incident.cause, message)
    return Verdict(updated(view, *says, **learned), message)


def _cost(view: View, incident: Failure, budget: Budget) -> str:
    counted = incident.action is RestartAction.RESTART
    return f"restart {budget.used} of {view.spec.restart.max_restarts}" if counted else "restart not counted"


def _restart(view: View, incident: Failure, budget: Budget, fields: dict[str, Any]) -> Verdict:
    counted = incident.action is RestartAction.RESTART
    wait = wait_after(view, budget)
    message = f"{told(incident)}; {_cost(view, incident, budget)} in {wait.total_seconds():.1f} s"
    counts = {
        "restarts": view.status.restarts + counted,
        "disruptions": view.status.disruptions + (not counted),
        "budget": budget,
    }
    says = restarting(view, incident.cause, message)
    return start_again(view, says, message, grace=_grace(view, incident), wait=wait, **counts, **fields)


def _why_final(view: View, incident: Failure, budget: Budget) -> tuple[str, str] | None:
    """Reason and message where the job cannot go on after an incident."""
    restart, said = view.spec.restart, told(incident)
    if incident.action is RestartAction.FAIL:
        return incident.cause, said if incident.rule == "default" else f"{said} ({incident.rule} says Fail)"
    if incident.action is RestartAction.RESTART_FREE:
        message = f"{said}; more than {restart.max_disruptions} disruptions (maxDisruptions)"
        return (Reason.MAX_DISRUPTIONS_EXCEEDED, message) if too_many_disruptions(restart, budget) else None
    if budget.used > restart.max_restarts:
        return Reason.MAX_RESTARTS_EXCEEDED, f"{said}; no restart is left of {restart.max_restarts} (maxRestarts)"
    if is_crash_loop(view.status, incident):
        return Reason.CRASH_LOOP, f"{said}; three times in a row training got no further than step {_furthest(view)}"
    return None


def _furthest(view: View) -> int | None:
    return view.status.history[1].step


def _failures(view: View) -> list[Failure]:
    """Of present pods that failed, cannot start, hang at the end, that somebody else deletes, or that vanished."""
    attempt, now, nodes = view.status.attempt, view.now, view.snapshot.node_problems
    found = [failure_of(pod, attempt, now, nodes) for pod in view.current.values() if _is_in_trouble(view, pod)]
    limit = finish_timeout(view)
    if limit is not None and now >= limit:
        seconds = view.spec.finish_timeout_seconds
        found += [stalled(pod, attempt, now, seconds) for pod in view.current.values() if pod.active]
    if view.created:
        job, incarnation = view.snapshot.job, view.status.incarnations.default
        lost = (lost_pod(pod_name(job, rank, incarnation), rank, incarnation) for rank in view.missing)
        found += [failure_of(pod, attempt, now) for pod in lost]
    return found


def _is_in_trouble(view: View, pod: Pod) -> bool:
    limit = unstartable_at(pod)
    return pod.failed or (pod.deleting and pod.active) or (limit is not None and view.now >= limit)


def _avoiding(view: View, incident: Failure) -> dict[str, Any]:
    first = view.current.get(incident.rank)
    useless = incident.cause is Cause.NODE_LOST or (first is not None and was_turned_away(first))
    lost = (incident.node,) if useless and incident.node else ()
    avoided = avoiding(view, lost)
    return {"avoided_nodes": avoided} if avoided else {}


def _grace(view: View, incident: Failure) -> int | None:
    """Survivors of a failure have nothing to save; a gang that loses a rank with notice saves together with it."""
    first = view.current.get(incident.rank)
    notice = first is not None and first.active and first.deleting
    return None if notice and incident.cause in ANNOUNCED else short_grace(view)
