"""What becomes known of an incident only after it was answered: the other pods' last reports, and their silence."""

from ddpjob_operator.api import Cause, ConditionType, Incident
from ddpjob_operator.api.status import MAX_AVOIDED
from ddpjob_operator.engine.changes import StatusChanges
from ddpjob_operator.engine.incidents.evidence import facts_of, lost_with_its_node, reported_attempt
from ddpjob_operator.engine.incidents.facts import Facts, with_later_reports
from ddpjob_operator.engine.incidents.ledger import Entry, amended, was_answered
from ddpjob_operator.engine.manifests.names import pod_name
from ddpjob_operator.engine.snapshot import Pod
from ddpjob_operator.engine.view import View

from .avoidance import Useless, avoiding


def amended_last_incident(view: View) -> Entry | None:
    """The last incident, amended by what is known of it now; None if the status already says the same."""
    known = view.status.last_incident
    return None if known is None else amended(view, with_later_reports(Facts.of(known), _reported_since(view, known)))


def hindsight(view: View, entry: Entry | None) -> StatusChanges:
    """The fields of the status for this entry and for lost Kubernetes nodes; empty if nothing is new.

    A pod that was lost with its Kubernetes node reports nothing and becomes overdue. Being overdue explains why
    another rank lost a peer, and nothing else, because a pod that hangs while it stops becomes overdue as well.
    """
    useless: list[Useless] = [(pod, Cause.NODE_LOST) for pod in view.overdue]
    if entry is not None and entry.facts.cause == Cause.DEVICE_FAILED:
        useless += ((pod, entry.facts.cause) for pod in view.snapshot.pods if pod.name == entry.facts.pod)
    # Adds only as many as there is room for. Otherwise, after the loss of a rack, each look would displace the nodes
    # that the previous look had added.
    fields = avoiding(view, useless, at_most=MAX_AVOIDED - len(view.avoided))
    return fields if entry is None else {**fields, **entry.recorded}


def _reported_since(view: View, known: Incident) -> list[Facts]:
    """The failures that the other pods of the failed attempt have reported since."""
    attempt, now = known.attempt, view.now
    present = (pod for node, pod in view.current_unsteady.items() if node not in view.finished)
    pods = _gang_of(view, known) if was_answered(view) else tuple(present)
    supervised = view.spec.supervisor is not None
    later = [facts_of(pod, attempt, now, by_us=True, supervised=supervised) for pod in pods if pod.failed]
    if known.cause is Cause.PEER_LOST:
        later += [lost_with_its_node(pod, attempt, now) for pod in view.overdue if pod in pods]
    return later


def _gang_of(view: View, known: Incident) -> tuple[Pod, ...]:
    """The last pods of the previous gang, if the incident `known` ended that gang; else empty.

    If the incident was answered in place, the gang has no more to say about it, whether it lives on or has ended for
    another reason since. Pods that older incidents name are not evidence of this one, unless they lived on and report
    a later attempt than that of their incident.
    """
    restarting = view.status.condition(ConditionType.RESTARTING)
    if restarting is None or (restarting.status, restarting.reason) != ("True", known.cause):
        return ()
    job, incarnations = view.snapshot.job, view.status.bookkeeping.incarnations
    gang = range(incarnations.former, incarnations.default)
    if all(known.pod != pod_name(job, known.node, incarnation) for incarnation in gang):
        return ()
    # The newest incident comes last, so that it is the one that counts if a pod has several.
    older = {incident.pod: incident.attempt for incident in reversed(view.status.incidents[1:])}
    ours = [
        pod
        for pod in view.snapshot.pods
        if pod.incarnation in gang and (pod.name not in older or older[pod.name] < (reported_attempt(pod) or 0))
    ]
    return tuple({pod.node: pod for pod in sorted(ours, key=lambda pod: pod.incarnation)}.values())
