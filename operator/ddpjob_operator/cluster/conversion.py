"""Kubernetes objects as the engine sees them: typed, and with only what decisions need."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from ddpjob_operator.api import ownership
from ddpjob_operator.api.contract import PRIORITY_LABEL, QUEUE_LABEL, TRAINER_CONTAINER
from ddpjob_operator.api.ownership import Controller, JobRef
from ddpjob_operator.engine import (
    POD_SET,
    VOLUMES_AND_NETWORK,
    WAIT_CONTAINER,
    WAITING_FOR_MASTER,
    Admission,
    Disruption,
    Exit,
    KueueWorkload,
    Placement,
    Pod,
    PodGroup,
    Queue,
    Waiting,
    document_of,
)

from .kube.objects import (
    ContainerState,
    ContainerStateTerminated,
    ContainerStatus,
    KueueWorkloadObject,
    NodeObject,
    Object,
    ObjectMeta,
    PodGroupObject,
    PodObject,
    PodStatus,
    StatusCondition,
)

STOPPED_SECONDS = 1
"""A pod with this `activeDeadlineSeconds` is told to stop and stay: a kubelet ends it and keeps its logs."""

EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)
"""No object of Kubernetes' is older; and whatever is later than that never happens."""

LONGEST_NAME = 253
"""Of an object, such as a node."""

Conditions = Mapping[str, StatusCondition]
"""A pod's conditions by their type."""

NO_CONDITION = StatusCondition("")
NO_TRAINER = ContainerStatus()


@dataclass(frozen=True, slots=True)
class Ref:
    """Which object it is, and how recent our knowledge of it is."""

    namespace: str
    name: str
    uid: str
    version: int
    """Its resource version. Versions of one resource can be compared: KEP-5504 promises it from Kubernetes 1.35 on,
    and with etcd it was true before."""

    @property
    def job(self) -> JobRef:
        """The job that it is, if it is one."""
        return JobRef(self.namespace, self.name, self.uid)


def ref_of(seen: Object) -> Ref:
    """The identity of an object that the API server returned."""
    metadata = seen.metadata
    return Ref(metadata.namespace, metadata.name, metadata.uid, int(metadata.resource_version))


def owner_of(seen: Object, named: ownership.Named) -> JobRef | None:
    """The job to which an object belongs; `named` knows what it is called then."""
    metadata = seen.metadata
    controller = next(
        (
            Controller(one.api_version, one.kind, one.name, one.uid)
            for one in metadata.owner_references
            if one.controller
        ),
        None,
    )
    return ownership.owner(controller, metadata.namespace, metadata.name, metadata.labels, named)


def pod_of(seen: PodObject) -> Pod | None:
    """The pod of a job; None if its labels do not say where it belongs."""
    metadata, spec, status = seen.metadata, seen.spec, seen.status
    place = ownership.place_of(metadata.labels)
    if place is None:
        return None
    node, incarnation = place
    trainers = (one for one in status.container_statuses if one.name == TRAINER_CONTAINER)
    state = next(trainers, NO_TRAINER).state
    ended = _exit(status, state)
    running = state.running is not None and ended is None
    conditions = {condition.type: condition for condition in status.conditions}
    return Pod(
        name=metadata.name,
        uid=metadata.uid,
        node=node,
        incarnation=incarnation,
        running=running,
        exit=ended,
        deleting=metadata.deletion_timestamp is not None,
        told_at=_told_at(metadata),
        told_by=_told_by(metadata),
        node_name=spec.node_name if len(spec.node_name or "") <= LONGEST_NAME else None,
        domain=metadata.annotations.domain,
        nominated=bool(status.nominated_node_name),
        priority=spec.priority,
        address=status.pod_ip if running else None,  # Before that, nobody is asked there: not worth a look.
        waiting=None if ended else _waiting(status, state, conditions),
        created_at=_within(metadata.creation_timestamp),
        scheduled_at=_scheduled_at(conditions),
        started_at=_within(state.running.started_at) if state.running else None,
        reason=status.reason,
        message=status.message,
        disruption=_disruption(conditions),
        sandbox_lost=_sandbox_lost(state, conditions),
        stopped=spec.active_deadline_seconds == STOPPED_SECONDS,
        gone_by=_within(metadata.deletion_timestamp),
        forced=metadata.deletion_grace_period_seconds == 0,
        lingering=ended is not None and any(one.state.running is not None for one in status.container_statuses),
    )


def pod_group_of(seen: PodGroupObject) -> PodGroup:
    """The PodGroup. Once its pods were placed the scheduler says no more, whatever becomes of them."""
    conditions = {condition.type: condition for condition in seen.status.conditions}
    placed = conditions.get("PodGroupInitiallyScheduled", NO_CONDITION)
    return PodGroup(
        name=seen.metadata.name,
        waiting=Waiting(placed.reason, placed.message) if placed.status == "False" else None,
        deleting=seen.metadata.deletion_timestamp is not None,
    )


def volcano_group_of(seen: PodGroupObject) -> PodGroup:
    """A PodGroup of Volcano's, whose condition Unschedulable stays true when its pods are placed."""
    conditions = {condition.type: condition for condition in seen.status.conditions}
    said, waits = conditions.get("Unschedulable", NO_CONDITION), seen.status.phase in {"", "Pending", "Inqueue"}
    return PodGroup(
        name=seen.metadata.name,
        waiting=Waiting(said.reason, said.message) if said.status == "True" and waits else None,
        deleting=seen.metadata.deletion_timestamp is not None,
    )


def queue_of(labels: Mapping[str, str]) -> Queue | None:
    """The queue that is to admit a job with these labels."""
    name = labels.get(QUEUE_LABEL)
    return Queue(name, labels.get(PRIORITY_LABEL, "")) if name else None


def kueue_workload_of(seen: KueueWorkloadObject) -> KueueWorkload:
    """A job's place in a queue. While Kueue evicts it, what it was admitted with still stands there."""
    spec, conditions = seen.spec, {condition.type: condition for condition in seen.status.conditions}
    reserved, admitted = (conditions.get(one, NO_CONDITION) for one in ("QuotaReserved", "Admitted"))
    evicted, is_reserved = conditions.get("Evicted", NO_CONDITION), reserved.status == "True"
    is_evicted = evicted.status == "True" and is_reserved
    # One that is deactivated before it was ever looked at has no other condition.
    why = evicted if is_evicted or not reserved.type else admitted if is_reserved else reserved
    return KueueWorkload(
        name=seen.metadata.name,
        queue=spec.queue_name,
        priority_class=spec.priority_class_ref.name,
        nodes=sum(pods.count for pods in spec.pod_sets),
        asked=seen.metadata.annotations.asked,
        least=next((pods.min_count for pods in spec.pod_sets), None),
        reserved=is_reserved,
        admission=_admission(seen) if admitted.status == "True" else None,
        evicted=is_evicted,
        waiting=Waiting(why.reason, why.message) if why.reason else None,
        ready=conditions.get("PodsReady", NO_CONDITION).status == "True",
        finished=conditions.get("Finished", NO_CONDITION).status == "True",
        deleting=seen.metadata.deletion_timestamp is not None,
    )


def _admission(seen: KueueWorkloadObject) -> Admission | None:
    """What all nodes of a job were admitted with, by the queue and by what else had to agree."""
    assignments = seen.status.admission.pod_set_assignments if seen.status.admission else ()
    given = next((one for one in assignments if one.name == POD_SET), None)
    if given is None:
        return None
    updates = [one for check in seen.status.admission_checks for one in check.pod_set_updates if one.name == POD_SET]
    placement = Placement(
        node_selector={key: value for one in updates for key, value in one.node_selector.items()},
        tolerations=tuple(toleration for one in updates for toleration in one.tolerations),
        labels={key: value for one in updates for key, value in one.labels.items()},
        annotations={key: value for one in updates for key, value in one.annotations.items()},
        topology=given.topology_assignment is not None,
    )
    count = sum(pods.count for pods in seen.spec.pod_sets) if given.count is None else given.count
    return Admission(count, frozenset(given.flavors.values()), placement)


def node_problem(node: NodeObject | None) -> str:
    """What is wrong with a Kubernetes node, in a sentence; empty if nothing is. None: it no longer exists."""
    if node is None:
        return "is gone"
    for condition in node.status.conditions:
        if condition.type == "Ready" and condition.status != "True":
            return f"is not ready: {condition.message or condition.reason}"
    return ""


def _told_at(metadata: ObjectMeta) -> datetime | None:
    """When its deletion was requested, if that can still be determined.

    A request that shortens the grace period keeps that moment, unless the shorter period is over already: then 1 s
    from now is left, or nothing once a kubelet is done with a pod that a finalizer keeps.
    """
    return _told_by(metadata) if (metadata.deletion_grace_period_seconds or 0) > 1 else None


def _told_by(metadata: ObjectMeta) -> datetime | None:
    """The same or, if it cannot be determined, the latest moment at which it can have been."""
    gone_by, grace = _within(metadata.deletion_timestamp), metadata.deletion_grace_period_seconds or 0
    if gone_by is None:
        return None
    # Whoever deletes a pod chooses its grace period: with 1e11 seconds the API server's own sum is wrong.
    return EARLIEST if grace > (gone_by - EARLIEST).total_seconds() else gone_by - timedelta(seconds=max(0, grace))


def _within(moment: datetime | None) -> datetime | None:
    """The moment, brought into the range in which any time that a spec may have can be added and taken off."""
    return None if moment is None else min(max(moment, EARLIEST), LATEST)


def _scheduled_at(conditions: Conditions) -> datetime | None:
    scheduled = conditions.get("PodScheduled", NO_CONDITION)
    return _within(scheduled.last_transition_time) if scheduled.status == "True" else None


def _disruption(conditions: Conditions) -> Disruption | None:
    said = conditions.get("DisruptionTarget", NO_CONDITION)
    return Disruption(said.reason, said.message) if said.status == "True" else None


def _sandbox_lost(state: ContainerState, conditions: Conditions) -> bool:
    """Whether the kubelet no longer found a sandbox while the trainer ran; it then ends the trainer.

    The sandbox is also removed after the trainer's own end, so the node's timestamps, in whole seconds, have to prove
    it.
    """
    sandbox, ran = conditions.get("PodReadyToStartContainers", NO_CONDITION), state.running or state.terminated
    lost_at = sandbox.last_transition_time if sandbox.status == "False" else None
    if lost_at is None or ran is None or ran.started_at is None or ran.started_at >= lost_at:
        return False
    ended_at = state.terminated.finished_at if state.terminated else None
    return state.terminated is None or (ended_at is not None and lost_at < ended_at)


def _exit(status: PodStatus, state: ContainerState) -> Exit | None:
    """How the trainer ended; a pod that failed around it (evicted, its node gone, an init container) has no code."""
    ended = state.terminated
    if ended is not None:
        return Exit(
            code=ended.exit_code, reason=ended.reason, message=ended.message, finished_at=_within(ended.finished_at)
        )
    if status.phase != "Failed":
        return None
    for container in status.init_container_statuses:
        ended = container.state.terminated
        if ended and ended.exit_code != 0:
            return _failed_init(container.name, ended)
    return Exit(code=None, reason=status.reason, message=status.message)


def _failed_init(name: str, ended: ContainerStateTerminated) -> Exit:
    words = ended.message or f"exit code {ended.exit_code}"
    is_report = "cause" in (document_of(words) or {})
    return Exit(
        code=None,
        reason="InitContainerFailed",
        message=words if is_report else f"init container {name}: {words}",
        finished_at=_within(ended.finished_at),
    )


def _waiting(status: PodStatus, state: ContainerState, conditions: Conditions) -> Waiting | None:
    """Why the trainer does not run yet, if the pod says so."""
    scheduled = conditions.get("PodScheduled", NO_CONDITION)
    if scheduled.status == "False":
        return Waiting(scheduled.reason, scheduled.message)
    inits = status.init_container_statuses
    for one in (*(init.state for init in inits), state):
        if one.waiting and one.waiting.reason not in {"", "PodInitializing", "ContainerCreating"}:
            return Waiting(one.waiting.reason, one.waiting.message)
    running = next((init.name for init in inits if init.state.running is not None), None)
    if running is not None:
        if running == WAIT_CONTAINER:
            return Waiting(WAITING_FOR_MASTER)
        return Waiting(f"init container {running} runs", busy=True)
    sandbox = conditions.get("PodReadyToStartContainers", NO_CONDITION)
    return Waiting(VOLUMES_AND_NETWORK) if sandbox.status == "False" else None
