"""Policies for incidents: what went wrong, what it costs, and whether the gang starts again."""

from dataclasses import replace
from datetime import datetime, timedelta

from ddpjob_operator.api import Cause, ConditionType, RestartAction, SuccessPolicy
from ddpjob_operator.engine.changes import StatusChanges
from ddpjob_operator.engine.conditions import updated
from ddpjob_operator.engine.foreign import text_of
from ddpjob_operator.engine.incidents.evidence import (
    facts_of,
    lacks_image,
    lost_pod,
    missed_supervisor_facts,
    reported_incident,
    stalled,
    unstartable_at,
    was_rejected,
    with_pod,
)
from ddpjob_operator.engine.incidents.facts import RESOLUTION, Facts, first_of, incident_sentence
from ddpjob_operator.engine.incidents.ledger import Entry, account, final, with_rank
from ddpjob_operator.engine.incidents.price import present
from ddpjob_operator.engine.manifests.names import present_pod_name
from ddpjob_operator.engine.snapshot import Pod
from ddpjob_operator.engine.supervision import MEMBER_LOST_AFTER, lost_at, members_lost
from ddpjob_operator.engine.view import View, after

from .avoidance import avoiding
from .end import fail
from .going_back import gone_back
from .hindsight import amended_last_incident, hindsight
from .in_place import lost_alone, lost_together, replaced, waits_in_vain
from .steps import ANNOUNCED, attempt_after, restarting, short_grace, start_again, wait_after
from .verdict import Times, Verdict

HEARING_OUT = timedelta(seconds=10)
"""How long to wait for the end of the pod that failed first, which may be reported last. Deleting the pod earlier
would delete its log, which is the evidence."""

TICK = timedelta(microseconds=1)


def incident(view: View) -> Verdict | None:
    """Answers an incident: a pod that failed, or a replacement pod that no other node is waiting for any more."""
    return _failed(view) or waits_in_vain(view)


def incident_due(view: View) -> Times:
    """When a pod that cannot start, does not finish, or no longer answers will count as failed."""
    yield _finish_timeout(view)
    yield from (unstartable_at(pod) for pod in view.current_unsteady.values())
    yield from lost_at(view).values()


def _failed(view: View) -> Verdict | None:
    """When a pod has failed or is lost, starts the gang again or lets the job fail.

    The gang starts again as a whole, unless its supervisors can wait for a new pod in place of the lost pod.
    """
    failures = _failures(view)
    if not failures:
        return None
    lost = lost_alone(view, failures)
    if verdict := lost_together(view, lost, failures):
        return verdict
    first = with_rank(view, _naming_finished(view, first_of(failures)))
    if not lost and (until := _all_reported_at(view, first)):
        return Verdict(
            view.status,
            f"{incident_sentence(first, view.called)}; waiting for the other ranks' reports",
            wake_at=until,
        )
    # The clock of a Kubernetes node may be ahead of ours. A time in the future must not make a window look longer.
    entry = account(view, first, present(view.spec, view.status, min(first.time, view.now)))
    if back := gone_back(view, entry):
        return back
    if why := final(view, entry):
        return fail(view, *why, **entry.noted)
    avoided, grace = _avoiding(view, first), _grace(view, first)
    return replaced(view, lost, entry, avoided, grace=grace) if lost else _restart(view, entry, avoided, grace=grace)


def corrected(view: View) -> Verdict | None:
    """Corrects the last incident with late reports of the failed attempt's pods, which may make it free or final."""
    # Once new pods have been created, the former pods have ended or are lost, and have nothing more to report.
    if view.created:
        return None
    entry = amended_last_incident(view)
    fields = hindsight(view, entry)
    if not fields:
        return None
    if entry is not None and entry.judgement.action is RestartAction.FAIL:
        return fail(view, entry.facts.cause, incident_sentence(entry.facts, view.called), **fields)
    known, restart = view.status.last_incident, view.status.condition(ConditionType.RESTARTING)
    if entry is None or known is None or restart is None or restart.reason != known.cause:
        return Verdict(updated(view, **fields), None)
    facts = entry.facts
    if (known.node, known.cause, known.message) == (facts.node, facts.cause, facts.message):
        return Verdict(updated(view, **fields), None)
    return Verdict(updated(view, *restarting(facts.cause, entry.said), **fields), entry.said)


def _restart(view: View, entry: Entry, avoided: StatusChanges, *, grace: int | None) -> Verdict:
    wait = wait_after(view, entry.price.budget)
    message = f"{entry.said} in {wait.total_seconds():.1f} s"
    attempt = attempt_after(view, entry.facts.attempt)
    changes: StatusChanges = {**entry.recorded, **avoided, "attempt": attempt}
    says = restarting(entry.facts.cause, message)
    return start_again(view, says, message, grace=grace, wait=wait, **changes)


def _failures(view: View) -> list[Facts]:
    """Returns a failure for each pod that failed, cannot start, does not finish, is deleted by others, or vanished.

    Pods that are running, but whose supervisors are missing, have failed as well.
    """
    attempt, now, problems, noun = view.status.attempt, view.now, view.snapshot.kubernetes_node_problems, view.noun
    troubled = [pod for pod in view.current_unsteady.values() if _is_in_trouble(view, pod)]
    ends = [pod.exit.finished_at + TICK for pod in troubled if pod.exit and pod.exit.finished_at]
    # Failures of pods that are still active must be sorted after those of ended pods. `now` alone does not ensure
    # that, because it may be earlier than the recorded end of a pod.
    later = max([now, *ends])
    supervised = view.spec.supervisor is not None
    found = [
        facts_of(pod, attempt, later if pod.active else now, problems, noun=noun, supervised=supervised)
        for pod in troubled
    ]
    if view.is_due(_finish_timeout(view)):
        seconds = view.spec.finish_timeout_seconds
        found += [stalled(pod, attempt, now, seconds) for pod in view.current.values() if pod.active]
    if view.created:
        job, incarnations = view.snapshot.job, view.status.bookkeeping.incarnations
        gone = (lost_pod(present_pod_name(job, node), node, incarnations.of(node)) for node in view.missing)
        found += [facts_of(pod, attempt, now, noun=noun) for pod in gone]
    known, patience = {failure.node for failure in found}, MEMBER_LOST_AFTER.total_seconds()
    missed = (view.current[node] for node in members_lost(view) if node not in known)
    found += [missed_supervisor_facts(view, pod, patience) for pod in missed]
    return found + _blamed(view, found)


def _finish_timeout(view: View) -> datetime | None:
    """Returns when the remaining nodes will count as stalled, if other nodes have finished."""
    if not 0 < view.succeeded < view.nodes or view.spec.success_policy is not SuccessPolicy.ALL_RANKS:
        return None
    return after(max(view.finish_times, default=None), view.spec.finish_timeout_seconds)


def _naming_finished(view: View, first: Facts) -> Facts:
    """If a rank lost a peer that did not fail, adds the finished nodes to the message: they may be the cause."""
    if first.cause is not Cause.PEER_LOST or not view.succeeded:
        return first
    return replace(first, message=text_of(f"{view.finished_text} had already exited with code 0: {first.message}"))


def _blamed(view: View, found: list[Facts]) -> list[Facts]:
    """Returns the failures of nodes whose pods have not ended yet, but which others report as the first to fail."""
    known = {failure.node for failure in found}
    reported = (reported_incident(pod, view.now) for pod in view.current_unsteady.values() if pod.failed)
    named = {facts.node: facts for facts in reported if facts is not None and facts.node not in known}
    waiting = (facts for node, facts in named.items() if node in view.current and view.current[node].active)
    return [with_pod(view, facts) for facts in waiting]


def _all_reported_at(view: View, first: Facts) -> datetime | None:
    """Returns the time until which no pod is deleted, because the pod that failed first is unknown or still running.

    None if that pod has ended, or if the wait has been long enough.
    """
    pods = view.current.values()
    ends = [pod.exit.finished_at for pod in pods if pod.failed and pod.exit and pod.exit.finished_at]
    ending = [pod for pod in pods if pod.running and pod.active and not pod.deleting]
    unknown = first.cause is Cause.PEER_LOST
    if not ends or not any(unknown or pod.node == first.node for pod in ending):
        return None
    until = min(ends) + HEARING_OUT
    ahead = min(ends) > view.now + RESOLUTION  # Do not wait for a future time from a wrong clock.
    return None if ahead or view.is_due(until) else until


def _is_in_trouble(view: View, pod: Pod) -> bool:
    if pod.node in view.finished:
        return False
    ends = pod.active and (pod.deleting or pod.sandbox_lost)
    return pod.failed or ends or lacks_image(pod) or view.is_due(unstartable_at(pod))


def _avoiding(view: View, incident: Facts) -> StatusChanges:
    first = view.current.get(incident.node)
    if first is None or not (incident.cause in {Cause.NODE_LOST, Cause.DEVICE_FAILED} or was_rejected(first)):
        return {}
    return avoiding(view, [(first, incident.cause)])


def _grace(view: View, incident: Facts) -> int | None:
    """Returns the grace period. After a failure the other ranks have nothing to save, so it is short.

    If a pod is taken away with notice, all ranks save, so they keep their own grace period (None).
    """
    first = view.current.get(incident.node)
    notice = first is not None and first.active and first.deleting
    return None if notice and incident.cause in ANNOUNCED else short_grace(view)
