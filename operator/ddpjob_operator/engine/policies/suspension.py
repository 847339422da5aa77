"""Policies for suspension and resumption."""

from dataclasses import replace
from datetime import timedelta

from ddpjob_operator.api import Cause, ConditionType, RestartAction
from ddpjob_operator.api.contract import QUEUE_LABEL
from ddpjob_operator.api.reasons import Reason
from ddpjob_operator.api.words import duration
from ddpjob_operator.engine.changes import StatusChanges
from ddpjob_operator.engine.conditions import Say, updated
from ddpjob_operator.engine.decision import Event
from ddpjob_operator.engine.incidents.evidence import facts_of
from ddpjob_operator.engine.incidents.facts import first_of
from ddpjob_operator.engine.incidents.judgement import Judgement
from ddpjob_operator.engine.incidents.ledger import noted
from ddpjob_operator.engine.manifests.volumes import lost_with_pods
from ddpjob_operator.engine.view import View

from .beside import outdated
from .steps import budget, delete, last_attempt, start, waiting_to_end
from .verdict import Verdict

RESUMED = Say(ConditionType.SUSPENDED, value=False, reason=Reason.JOB_RESUMED, message="Resumed")
UNDONE_WITHIN = timedelta(minutes=15)
"""A GitOps tool undoes a change within this time: Argo CD syncs every three minutes, Flux usually every ten. If more
time has passed, the job was more likely resumed on purpose in its repository."""
NOT_RUNNING = tuple(
    Say(kind, value=False, reason=Reason.SUSPENDED, message="Suspended")
    for kind in (ConditionType.CREATED, ConditionType.RUNNING, ConditionType.RESTARTING)
)


def suspended(view: View) -> Verdict | None:
    """Suspends a job: each pod may save within its own grace period. This does not use up the restart budget."""
    if not view.spec.suspend:
        return None
    fields = halted(view)
    if view.active:
        message = f"Waiting for {view.pods(len(view.active))} to save and stop"
        return Verdict(updated(view, *NOT_RUNNING, **fields), message, delete(view, view.active, grace=None))
    message = "Nothing runs until the job is resumed"
    if view.started and view.spec.checkpoint and (lost := lost_with_pods(view.spec)):
        message = f"{message}; then it starts over: {lost}"
    condition = Say(ConditionType.SUSPENDED, value=True, reason=Reason.JOB_SUSPENDED, message=message)
    return Verdict(updated(view, *NOT_RUNNING, condition, **fields), message)


def halted(view: View) -> StatusChanges:
    """Returns the fields of the status of a gang that saves and stops, to start again later at no cost."""
    return {
        "suspend_time": view.suspended_since or view.now,
        "start_time": None,
        "first_run_time": None,
        "backoff_until": None,
        "budget": budget(view),
        # Includes attempts that supervisors started in place, so that no incident of these attempts is charged after
        # the resumption.
        "attempt": last_attempt(view),
        **_forestalled(view),
    }


def _forestalled(view: View) -> StatusChanges:
    """Records a failure from before the suspension, at no cost, unless the attempt has an incident already.

    A rank that ended because it was told to stop has not failed, nor has a rank that ended because it lost a peer.
    """
    known, attempt = view.status.last_incident, last_attempt(view)
    if known is not None and known.attempt >= attempt:
        return {}
    failed = [pod for pod in view.current.values() if pod.failed and pod.node not in view.finished]
    # If in doubt, assume that a pod ended because it was told to stop, because suspension must cost nothing.
    by_itself = [pod for pod in failed if pod.exit and not pod.was_told_before(pod.exit.finished_at)]
    problems, supervised = view.snapshot.kubernetes_node_problems, view.spec.supervisor is not None
    failures = [facts_of(pod, attempt, view.now, problems, supervised=supervised) for pod in by_itself]
    first = first_of(failures) if failures else None
    if first is None or first.cause in {Cause.STOPPED, Cause.PEER_LOST}:
        return {}
    answered = Judgement(RestartAction.RESTART_FREE, "spec.suspend" if view.spec.suspend else QUEUE_LABEL)
    return {"attempt": first.attempt, **noted(view, first, answered)}


def started(view: View) -> Verdict | None:
    """Starts a job that was never started, or that is resumed."""
    if view.suspended:
        return _resumed(view)
    return None if view.started else start(view)


def _resumed(view: View) -> Verdict:
    """Starts the gang again, as a new attempt with its deadlines reset, even if some pods have not stopped yet."""
    if replaced := outdated(view):
        if view.active:  # The NetworkPolicy must protect pods for as long as they run.
            return Verdict(view.status, waiting_to_end(view, len(view.active)), delete(view, view.active, grace=None))
        return Verdict(view.status, f"Replacing the {replaced[0].kind.kind}", replaced)
    undone = _undone(view)
    if not undone:
        return start(view, RESUMED)
    verdict = start(view, replace(RESUMED, message=undone))
    return replace(verdict, events=(Event(warning=True, reason=Reason.JOB_RESUMED, message=undone),))


def _undone(view: View) -> str:
    """Returns the message that a GitOps tool has probably undone the suspension; empty if that is unlikely."""
    keeper, since = view.snapshot.keeper, view.suspended_since
    # If the queue stopped the job, it was the queue, and not a tool, that resumed the job.
    by_queue = view.snapshot.queue is not None and not view.status.is_true(ConditionType.SUSPENDED)
    if not keeper or since is None or by_queue or view.now >= since + UNDONE_WITHIN:
        return ""
    after = duration(int((view.now - since).total_seconds()))
    return (
        f"Resumed: spec.suspend is false again after {after}. {keeper} resets this job to what its repository "
        "says: to suspend the job, set spec.suspend there"
    )
