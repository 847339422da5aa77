"""Restarts in place: incidents that supervisors answered, and pods that were lost while the others live on."""

from datetime import timedelta

from ddpjob_operator.api import Budget, Cause, ConditionType, Incident, RestartAction, RestartMode, SuccessPolicy
from ddpjob_operator.api.reasons import Reason
from ddpjob_operator.api.status import MAX_EXCEPTIONS
from ddpjob_operator.engine.changes import StatusChanges
from ddpjob_operator.engine.conditions import Say, updated
from ddpjob_operator.engine.decision import Event
from ddpjob_operator.engine.incidents.evidence import killed, with_pod
from ddpjob_operator.engine.incidents.facts import RESOLUTION, TAKEN_AWAY, Facts, incident_sentence, joined
from ddpjob_operator.engine.incidents.ledger import Entry, account, amended, as_recorded, final
from ddpjob_operator.engine.incidents.price import present
from ddpjob_operator.engine.reports import Phase, SupervisorReport
from ddpjob_operator.engine.snapshot import Pod
from ddpjob_operator.engine.supervision import comes_up, is_silent
from ddpjob_operator.engine.view import View

from .end import fail
from .steps import attempt_after, grace_after, replace_alone, restarting, start_again, wait_after
from .verdict import Verdict


def restarted_in_place(view: View) -> Verdict | None:
    """Counts an incident after which supervisors restarted in place. Unlike after other incidents, no pod is touched.

    Each round counts one incident, beginning with the oldest. An incident's attempt shows whether it was counted
    before.
    """
    report, attempt = view.report, view.status.attempt
    # A report of an older attempt was made before the gang was started again, and has been accounted for.
    if report is None or report.attempt < attempt:
        return None
    # While supervisors gather, the report still names the attempt that the incident ended.
    last = report.attempt if report.phase is Phase.GATHERING else report.attempt - 1
    new = next((incident for incident in report.incidents if attempt <= incident.attempt <= last), None)
    if new is not None:
        return _charge(view, new)
    if report.attempt == attempt:
        return None
    return Verdict(updated(view, attempt=report.attempt, supervised=True), None, events=_new_code(report))


def _new_code(report: SupervisorReport) -> tuple[Event, ...]:
    """Returns the event of a planned restart with new code; nothing if the attempt has another reason."""
    code = report.code
    if code is None or code.attempt != report.attempt:
        return ()
    message = f"Attempt {report.attempt} runs new code in place: {code.digest[:12]}, sent by {code.by}"
    return (Event(warning=False, reason=Reason.CODE_REPLACED, message=message),)


def lost_alone(view: View, failures: list[Facts]) -> tuple[int, ...]:
    """Returns the nodes whose pods were lost; empty if all pods of the gang must be replaced, not only these."""
    nodes = {failure.node for failure in failures}
    others = [pod for node, pod in view.current.items() if node not in nodes]
    # At least one of the other pods must be running, so that the new pods can join it. No node may have finished,
    # because a finished node would not take part in another attempt.
    wait = not view.succeeded and all(pod.active for pod in others) and any(pod.running for pod in others)
    possible = view.spec.restart.mode is RestartMode.IN_PLACE and view.supervised
    # The status lists replaced nodes one by one, up to a limit. Beyond the limit, all pods are replaced.
    few = len(view.status.bookkeeping.incarnations.replaced(nodes).exceptions) <= MAX_EXCEPTIONS
    alone = possible and wait and few and all(_took_its_pod(view, failure) for failure in failures)
    return tuple(sorted(nodes)) if alone else ()


def replaced(
    view: View, nodes: tuple[int, ...], entry: Entry, avoided: StatusChanges, *, grace: int | None
) -> Verdict:
    """Replaces only the lost pods, without a backoff if this is a disruption that follows no other incident."""
    budget, free = entry.price.budget, entry.judgement.action is RestartAction.RESTART_FREE
    wait = timedelta(0) if free and budget.streak == 1 else wait_after(view, budget)
    when = f" in {wait.total_seconds():.1f} s" if wait else ""
    message = f"{entry.said}; {_replacing(view, nodes)}{when}"
    attempt = attempt_after(view, entry.facts.attempt)
    changes: StatusChanges = {**entry.recorded, **avoided, "attempt": attempt}
    says = restarting(entry.facts.cause, message)
    until = view.now + wait if wait else None
    return replace_alone(view, nodes, says, message, grace=grace, until=until, **changes)


def lost_together(view: View, alone: tuple[int, ...], failures: list[Facts]) -> Verdict | None:
    """Adds pods that are lost before the gang has started again to the previous incident, at no further cost.

    This applies only to pods that existed before that incident. The loss of a newer pod is another incident. If the
    lost pods can no longer be replaced alone, for example because the last pod that waited for them is lost as well,
    the whole gang starts again.
    """
    if not all(_took_its_pod(view, failure) for failure in failures):
        return None
    nodes = {failure.node for failure in failures}
    known, said = view.status.last_incident, view.status.condition(ConditionType.RESTARTING)
    if known is None or said is None or (said.status, said.reason) != ("True", known.cause):
        return None
    made = [pod.created_at for node, pod in view.current.items() if node in nodes]
    there = len(made) == len(nodes) and all(
        at is not None and at + RESOLUTION <= said.last_transition_time for at in made
    )
    # The loss of a Kubernetes node stalls the other ranks, and the stall may be noticed before the loss.
    held_up = known.cause is Cause.STALLED and known.node in nodes
    if not there or not (held_up or known.cause in TAKEN_AWAY | {Cause.PEER_LOST}):
        return None
    entry = amended(view, joined(Facts.of(known), failures)) or as_recorded(view, known)
    cause = entry.facts.cause
    if entry.judgement.action is RestartAction.FAIL:
        return fail(view, cause, incident_sentence(entry.facts, view.called), **entry.recorded)
    grace = grace_after(view, cause)
    if not alone:
        says, wait = restarting(cause, entry.said), _backoff_left(view)
        return start_again(view, says, entry.said, grace=grace, wait=wait, **entry.recorded)
    message = f"{entry.said}; {_replacing(view, alone)}"
    says, until = restarting(cause, message), view.status.backoff_until
    return replace_alone(view, alone, says, message, grace=grace, until=until, **entry.recorded)


def waits_in_vain(view: View) -> Verdict | None:
    """Restarts the whole gang at no further cost if a replacement pod is useless because another node has finished.

    When the replacement was decided, it was not known that the other node would finish. If the job's success depends
    only on rank 0 and rank 0 is done, nothing starts again.
    """
    known = view.status.last_incident
    exceptions = view.status.bookkeeping.incarnations.exceptions
    new = [view.current.get(exception.node) for exception in exceptions if exception.node not in view.finished]
    if known is None or not view.finished or _rank_zero_is_done(view):
        return None
    if not any(_in_vain(view, known, pod) for pod in new):
        return None
    done = f"{view.called} {min(view.finished)} has finished"
    message = f"{as_recorded(view, known).said}; {done}, so the whole gang starts again"
    says, grace = restarting(known.cause, message), grace_after(view, known.cause)
    return start_again(view, says, message, grace=grace, wait=_backoff_left(view))


def _backoff_left(view: View) -> timedelta:
    """Returns the rest of the last incident's backoff."""
    until = view.status.backoff_until
    return max(until - view.now, timedelta(0)) if until else timedelta(0)


def _rank_zero_is_done(view: View) -> bool:
    """Whether the job succeeds as soon as rank 0's pod ends."""
    counts_alone = view.spec.success_policy is SuccessPolicy.RANK_ZERO
    return counts_alone and view.report is not None and view.report.phase is Phase.DONE


def _in_vain(view: View, known: Incident, pod: Pod | None) -> bool:
    """Whether a node's new pod comes too late to train with the nodes that have finished.

    This is judged by the last report, so an attempt that was too short to be reported is repeated. If the operator
    cannot read reports, or has not read any yet, it compares the pods' times.
    """
    if pod is not None and not pod.active:
        return False
    if pod is None or pod.started_at is None:
        return True
    report = view.report
    if report is None or is_silent(view):
        return any(end < pod.started_at for end in view.finish_times)
    misses = report.phase is Phase.GATHERING and not view.finished.isdisjoint(report.missing)
    is_new = pod.created_at is not None and pod.created_at + RESOLUTION > known.time
    return misses or (is_new and comes_up(view))


def _charge(view: View, said: Facts) -> Verdict:
    facts = with_pod(view, said)
    entry = account(view, facts, _before(view, facts))
    if why := final(view, entry):
        return fail(view, *why, **entry.noted)
    message = f"{entry.said}, in place"
    says = (
        Say(ConditionType.RESTARTING, value=True, reason=facts.cause, message=message),
        Say(ConditionType.RUNNING, value=False, reason=facts.cause, message=message),
    )
    changes: StatusChanges = {**entry.recorded, "attempt": facts.attempt + 1, "supervised": True}
    return Verdict(updated(view, *says, **changes), message)


def _before(view: View, incident: Facts) -> Budget:
    """Returns the budget before the incident.

    If two incidents are reported at the same time, the interval between them decides whether the budget is restored.
    """
    last = view.status.last_incident
    window = timedelta(seconds=view.spec.restart.window_seconds)
    reported_together = last is not None and not view.status.is_true(ConditionType.RUNNING)
    # The operator did not see the gang run between the two incidents, so the condition Running does not show how long
    # the gang was healthy.
    if last is not None and reported_together and incident.time - last.time >= window:
        return Budget()
    return present(view.spec, view.status, min(incident.time, view.now))


def _took_its_pod(view: View, failure: Facts) -> bool:
    """Whether a failure removed a pod or killed its supervisor. Any other failure means that supervisors gave up."""
    pod = view.current.get(failure.node)
    return failure.cause in TAKEN_AWAY or (pod is not None and killed(pod))


def _replacing(view: View, nodes: tuple[int, ...]) -> str:
    return f"replacing {f'its {view.noun}' if len(nodes) == 1 else view.pods(len(nodes))}"
