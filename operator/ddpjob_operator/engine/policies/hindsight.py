"""Corrects incidents with facts that become known only afterwards: other pods' last reports, or their silence."""

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
    """Returns the last incident, amended with later reports; None if the status already contains all of them."""
    known = view.status.last_incident
    return None if known is None else amended(view, with_later_reports(Facts.of(known), _reported_since(view, known)))


def hindsight(view: View, entry: Entry | None) -> StatusChanges:
    """Returns the fields of the status that record this entry and lost Kubernetes nodes; empty if nothing is new.

    Pods that were lost with their Kubernetes nodes become overdue, but so do pods that hang while they stop. So an
    overdue pod is only used to explain why another rank lost a peer.
    """
    useless: list[Useless] = [(pod, Cause.NODE_LOST) for pod in view.overdue]
    if entry is not None and entry.facts.cause == Cause.DEVICE_FAILED:
        useless += ((pod, entry.facts.cause) for pod in view.snapshot.pods if pod.name == entry.facts.pod)
    # Add only as many as there is room for. Otherwise, after the loss of a rack, each round would displace the nodes
    # that the previous round added.
    fields = avoiding(view, useless, at_most=MAX_AVOIDED - len(view.avoided))
    return fields if entry is None else {**fields, **entry.recorded}


def _reported_since(view: View, known: Incident) -> list[Facts]:
    """Returns the failures that the other pods of the failed attempt have reported since the incident."""
    attempt, now = known.attempt, view.now
    present = (pod for node, pod in view.current_unsteady.items() if node not in view.finished)
    pods = _gang_of(view, known) if was_answered(view) else tuple(present)
    supervised = view.spec.supervisor is not None
    later = [facts_of(pod, attempt, now, by_us=True, supervised=supervised) for pod in pods if pod.failed]
    if known.cause is Cause.PEER_LOST:
        later += [lost_with_its_node(pod, attempt, now) for pod in view.overdue if pod in pods]
    return later


def _gang_of(view: View, known: Incident) -> tuple[Pod, ...]:
    """Returns the last pods of the previous gang, if the incident `known` ended that gang; else empty.

    After a restart in place, the gang's pods are no longer evidence of the incident, even if they end later. A pod
    that an older incident names is evidence only if its own report is about a later attempt than that incident.
    """
    restarting = view.status.condition(ConditionType.RESTARTING)
    if restarting is None or (restarting.status, restarting.reason) != ("True", known.cause):
        return ()
    job, incarnations = view.snapshot.job, view.status.bookkeeping.incarnations
    gang = range(incarnations.former, incarnations.default)
    if all(known.pod != pod_name(job, known.node, incarnation) for incarnation in gang):
        return ()
    # The newest incident comes last, so that it wins if a pod has several.
    older = {incident.pod: incident.attempt for incident in reversed(view.status.incidents[1:])}
    ours = [
        pod
        for pod in view.snapshot.pods
        if pod.incarnation in gang and (pod.name not in older or older[pod.name] < (reported_attempt(pod) or 0))
    ]
    return tuple({pod.node: pod for pod in sorted(ours, key=lambda pod: pod.incarnation)}.values())
