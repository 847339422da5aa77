"""What is known of an incident only after it was answered: the last words of the other pods, and their silence."""

from datetime import timedelta

from ddpjob_operator.api import AvoidedNode, Budget, Cause, ConditionType, Incident, RestartAction
from ddpjob_operator.api.status import MAX_AVOIDED
from ddpjob_operator.engine.changes import StatusChanges, amended
from ddpjob_operator.engine.conditions import Say
from ddpjob_operator.engine.incidents.evidence import attempt_told, failure_of, lost_with_its_node
from ddpjob_operator.engine.incidents.facts import corrected, enlightened, told
from ddpjob_operator.engine.incidents.judgement import evidence, ruled
from ddpjob_operator.engine.incidents.price import excused, too_many_disruptions
from ddpjob_operator.engine.manifests.names import pod_name
from ddpjob_operator.engine.snapshot import Pod
from ddpjob_operator.engine.view import View

from .steps import restarting, short_grace, start_again, wait_after
from .verdict import Verdict

AVOIDED_FOR = timedelta(hours=1)
"""So long pods keep away from a node that was lost."""


def hindsight(view: View) -> StatusChanges:
    """The fields of the status that are to change by what is known now; none where nothing is.

    A pod that went with its node says nothing: it is overdue. That explains the loss of a peer, and nothing else: a
    pod that hangs in its end is overdue as well.
    """
    fields: StatusChanges = {}
    silent = tuple(pod.node for pod in view.overdue if pod.node)
    # They displace none: of a lost rack each look would have others displace those of the look before.
    if avoided := avoiding(view, silent, at_most=MAX_AVOIDED - len(view.avoided)):
        fields["avoided_nodes"] = avoided
    known = view.status.last_failure
    if known is None:
        return fields
    return fields | learned(view, enlightened(known, _said_since(view, known)))


def learned(view: View, incident: Incident) -> StatusChanges:
    """The fields that are to change since this is what the last incident was; none where it was known so."""
    known = view.status.last_failure
    assert known is not None, "it is about the last incident"
    incident = _judged(view, known, incident)
    if incident == known:
        return {}
    fields = corrected(view.status, incident)
    was_counted = known.action is RestartAction.RESTART and view.status.restarts > 0
    if was_counted and incident.action is RestartAction.RESTART_FREE and _was_answered(view):
        status = view.status
        fields["restarts"], fields["disruptions"] = status.restarts - 1, status.disruptions + 1
        fields["budget"] = excused(status.budget)
    return fields


def excuse(view: View, incident: Incident, spent: Budget) -> Verdict:
    """The job was about to fail by an incident that turns out to be free: it goes on, with this budget."""
    status = view.status
    wait = wait_after(view, spent)
    message = f"{told(incident)}; restart not counted in {wait.total_seconds():.1f} s"
    changes: StatusChanges = {**hindsight(view), "disruptions": status.disruptions + 1, "budget": spent}
    not_failing = Say(ConditionType.FAILURE_TARGET, value=False, reason=incident.cause, message=message)
    says = (*restarting(incident.cause, message), not_failing)
    return start_again(view, says, message, grace=short_grace(view), wait=wait, **changes)


def avoiding(view: View, nodes: tuple[str, ...], *, at_most: int = MAX_AVOIDED) -> tuple[AvoidedNode, ...]:
    """Nodes to keep away from, with the first `at_most` new ones of these, the newest last; none if none is new."""
    known = {one.node for one in view.avoided}
    new = [node for node in dict.fromkeys(nodes) if node not in known][:at_most]
    added = (AvoidedNode(node=node, until=view.now + AVOIDED_FOR) for node in new)
    return (*view.avoided, *added)[-MAX_AVOIDED:] if new else ()


def _said_since(view: View, known: Incident) -> list[Incident]:
    """What the other pods of the attempt that failed have come to say."""
    attempt, now = known.attempt, view.now
    present = (pod for rank, pod in view.current.items() if rank not in view.finished)
    pods = _gang_of(view, known) if _was_answered(view) else tuple(present)
    later = [failure_of(pod, attempt, now, by_us=True) for pod in pods if pod.failed]
    if known.cause is Cause.PEER_LOST:
        later += [lost_with_its_node(pod, attempt, now) for pod in view.overdue if pod in pods]
    return later


def _gang_of(view: View, known: Incident) -> tuple[Pod, ...]:
    """The last pods of the gang before, where the incident ended it; a gang that lives on has nothing more to say.

    Nor has one that went for another reason, after an incident that was answered in place. Pods that older incidents
    are about do not speak of this one, unless they lived on and say that they do.
    """
    said = view.status.condition(ConditionType.RESTARTING)
    if said is None or (said.status, said.reason) != ("True", known.cause):
        return ()
    job, incarnations = view.snapshot.job, view.status.incarnations
    gang = range(incarnations.former, incarnations.default)
    if all(known.pod != pod_name(job, known.rank, incarnation) for incarnation in gang):
        return ()
    older = {failure.pod: failure.attempt for failure in reversed(view.status.history[1:])}
    ours = [
        pod
        for pod in view.snapshot.pods
        if pod.incarnation in gang and (pod.name not in older or older[pod.name] < (attempt_told(pod) or 0))
    ]
    return tuple({pod.rank: pod for pod in sorted(ours, key=lambda pod: pod.incarnation)}.values())


def _judged(view: View, known: Incident, incident: Incident) -> Incident:
    """What the rules say of an incident of which more is known; the rest was judged by the rules of its moment.

    One that was answered by a restart is never charged afterwards, and the restart is given back only where another
    disruption is allowed.
    """
    if evidence(incident) == evidence(known):
        return amended(incident, action=known.action, rule=known.rule)
    judged = ruled(view.spec.restart, incident, has_run=view.has_run)
    if judged.action in {known.action, RestartAction.FAIL} or not _was_answered(view):
        return judged
    given_back = judged.action is RestartAction.RESTART_FREE
    if given_back and not too_many_disruptions(view.spec.restart, excused(view.status.budget)):
        return judged
    return amended(judged, action=known.action, rule=known.rule)


def _was_answered(view: View) -> bool:
    """Whether the last incident was answered by a restart, and so has cost one."""
    known = view.status.last_failure
    return known is not None and view.status.attempt > known.attempt
