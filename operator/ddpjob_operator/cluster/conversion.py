"""Converts Kubernetes objects into the engine's types, which hold only what decisions need."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from ddpjob_operator.api import ownership
from ddpjob_operator.api.contract import LONGEST_REQUEST, PRIORITY_LABEL, QUEUE_LABEL, TRAINER_CONTAINER
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
)
from ddpjob_operator.text.foreign_json import parsed_object

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
"""The operator stops a pod by setting its `activeDeadlineSeconds` to this: the kubelet then ends the pod but keeps
its logs."""

EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)
"""The range to which times are limited. No Kubernetes object is older, and a later time means never."""

LONGEST_NAME = 253
"""The longest name of a Kubernetes object, such as a node, in characters."""

Conditions = Mapping[str, StatusCondition]
"""A pod's conditions by their type."""

NO_CONDITION = StatusCondition("")
NO_TRAINER = ContainerStatus()


@dataclass(frozen=True, slots=True)
class Ref:
    """The identity of an object, with the version of the object that was read."""

    namespace: str
    name: str
    uid: str
    version: int
    """The resource version. Versions of objects of the same kind can be compared: KEP-5504 promises this since
    Kubernetes 1.35, and with etcd it was true even before."""

    @property
    def job(self) -> JobRef:
        """The same reference as a JobRef. The object must be a job."""
        return JobRef(self.namespace, self.name, self.uid)


def ref_of(seen: Object) -> Ref:
    """Returns the identity of an object that the API server sent."""
    metadata = seen.metadata
    return Ref(metadata.namespace, metadata.name, metadata.uid, int(metadata.resource_version))


def owner_of(seen: Object, named: ownership.Named) -> JobRef | None:
    """Returns the job that an object belongs to, or None. `named` checks whether the name is the engine's."""
    metadata = seen.metadata
    controller = next(
        (
            Controller(owner.api_version, owner.kind, owner.name, owner.uid)
            for owner in metadata.owner_references
            if owner.controller
        ),
        None,
    )
    return ownership.owner(controller, metadata.namespace, metadata.name, metadata.labels, named)


def pod_of(seen: PodObject) -> Pod | None:
    """Converts a job's pod; None if the pod's labels lack its node or its incarnation."""
    metadata, spec, status = seen.metadata, seen.spec, seen.status
    place = ownership.place_of(metadata.labels)
    if place is None:
        return None
    node, incarnation = place
    trainers = (container for container in status.container_statuses if container.name == TRAINER_CONTAINER)
    state = next(trainers, NO_TRAINER).state
    sidecars = {container.name for container in spec.init_containers if container.restart_policy == "Always"}
    inits = tuple(init for init in status.init_container_statuses if init.name not in sidecars or not init.started)
    ended = _exit(status, state, sidecars)
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
        checkpoint_request=metadata.annotations.checkpoint_request[: LONGEST_REQUEST + 1],
        nominated=bool(status.nominated_node_name),
        priority=spec.priority,
        # Nobody connects to the pod before its trainer runs, and until then a new address would only cause a round.
        address=status.pod_ip if running else None,
        waiting=None if ended or running else _waiting(inits, state, conditions),
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
        lingering=ended is not None
        and any(container.state.running is not None for container in status.container_statuses),
    )


def pod_group_of(seen: PodGroupObject) -> PodGroup:
    """Converts a Kubernetes PodGroup. After its pods were placed, PodGroupInitiallyScheduled stays true."""
    conditions = {condition.type: condition for condition in seen.status.conditions}
    placed = conditions.get("PodGroupInitiallyScheduled", NO_CONDITION)
    return PodGroup(
        name=seen.metadata.name,
        waiting=Waiting(placed.reason, placed.message) if placed.status == "False" else None,
        deleting=seen.metadata.deletion_timestamp is not None,
    )


def volcano_group_of(seen: PodGroupObject) -> PodGroup:
    """Converts a Volcano PodGroup. The phase matters too, because Unschedulable stays true after pods were placed."""
    conditions = {condition.type: condition for condition in seen.status.conditions}
    unplaced, waits = conditions.get("Unschedulable", NO_CONDITION), seen.status.phase in {"", "Pending", "Inqueue"}
    return PodGroup(
        name=seen.metadata.name,
        waiting=Waiting(unplaced.reason, unplaced.message) if unplaced.status == "True" and waits else None,
        deleting=seen.metadata.deletion_timestamp is not None,
    )


def queue_of(labels: Mapping[str, str], usual: str | None = None) -> Queue | None:
    """Returns the Kueue queue that has to admit a job: the one that its labels name, else `usual`; None: no queue."""
    name = labels.get(QUEUE_LABEL) or usual
    return Queue(name, labels.get(PRIORITY_LABEL, "")) if name else None


def kueue_workload_of(seen: KueueWorkloadObject) -> KueueWorkload:
    """Converts a Kueue Workload. The Workload keeps its admission while Kueue is evicting it."""
    spec, conditions = seen.spec, {condition.type: condition for condition in seen.status.conditions}
    reserved, admitted = (conditions.get(kind, NO_CONDITION) for kind in ("QuotaReserved", "Admitted"))
    evicted, is_reserved = conditions.get("Evicted", NO_CONDITION), reserved.status == "True"
    is_evicted = evicted.status == "True" and is_reserved
    # If a Workload was deactivated before Kueue ever considered it, its only condition is Evicted.
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
    """Returns the admission of a job's pods: the queue's flavors, and the changes that admission checks demand."""
    assignments = seen.status.admission.pod_set_assignments if seen.status.admission else ()
    assigned = next((assignment for assignment in assignments if assignment.name == POD_SET), None)
    if assigned is None:
        return None
    updates = [
        update for check in seen.status.admission_checks for update in check.pod_set_updates if update.name == POD_SET
    ]
    placement = Placement(
        node_selector={key: value for update in updates for key, value in update.node_selector.items()},
        tolerations=tuple(toleration for update in updates for toleration in update.tolerations),
        labels={key: value for update in updates for key, value in update.labels.items()},
        annotations={key: value for update in updates for key, value in update.annotations.items()},
        topology=assigned.topology_assignment is not None,
    )
    count = sum(pods.count for pods in seen.spec.pod_sets) if assigned.count is None else assigned.count
    return Admission(count, frozenset(assigned.flavors.values()), placement)


def node_problem(node: NodeObject | None) -> str:
    """Returns the problem of a Kubernetes node as the end of a sentence; empty if there is none.

    `node` is None if the node no longer exists.
    """
    if node is None:
        return "is gone"
    for condition in node.status.conditions:
        if condition.type == "Ready" and condition.status != "True":
            return f"is not ready: {condition.message or condition.reason}"
    return ""


def _told_at(metadata: ObjectMeta) -> datetime | None:
    """Returns when the object's deletion was requested; None if that can no longer be determined.

    The time is the deletionTimestamp minus the grace period. A second request with a shorter grace period does not
    change this difference, unless the shorter period has already passed. In that case the API server sets a period
    that ends in 1 s or, if the kubelet has ended the pod and only a finalizer keeps it, a period of 0 s.
    """
    return _told_by(metadata) if (metadata.deletion_grace_period_seconds or 0) > 1 else None


def _told_by(metadata: ObjectMeta) -> datetime | None:
    """Returns when the object's deletion was requested, or the latest moment at which it can have been requested."""
    gone_by, grace = _within(metadata.deletion_timestamp), metadata.deletion_grace_period_seconds or 0
    if gone_by is None:
        return None
    # Whoever deletes a pod can choose any grace period. With 1e11 s even the API server's addition overflows.
    return EARLIEST if grace > (gone_by - EARLIEST).total_seconds() else gone_by - timedelta(seconds=max(0, grace))


def _within(moment: datetime | None) -> datetime | None:
    """Limits a moment to a range in which adding or subtracting any duration of a spec cannot overflow."""
    return None if moment is None else min(max(moment, EARLIEST), LATEST)


def _scheduled_at(conditions: Conditions) -> datetime | None:
    scheduled = conditions.get("PodScheduled", NO_CONDITION)
    return _within(scheduled.last_transition_time) if scheduled.status == "True" else None


def _disruption(conditions: Conditions) -> Disruption | None:
    target = conditions.get("DisruptionTarget", NO_CONDITION)
    return Disruption(target.reason, target.message) if target.status == "True" else None


def _sandbox_lost(state: ContainerState, conditions: Conditions) -> bool:
    """Whether the pod's sandbox was lost while the trainer ran, after which the kubelet ends the trainer.

    A sandbox is also removed after the trainer has ended. So the sandbox counts as lost only if the kubelet's
    timestamps, which are in whole seconds, prove that it disappeared before the trainer ended.
    """
    sandbox, ran = conditions.get("PodReadyToStartContainers", NO_CONDITION), state.running or state.terminated
    lost_at = sandbox.last_transition_time if sandbox.status == "False" else None
    if lost_at is None or ran is None or ran.started_at is None or ran.started_at >= lost_at:
        return False
    ended_at = state.terminated.finished_at if state.terminated else None
    return state.terminated is None or (ended_at is not None and lost_at < ended_at)


def _exit(status: PodStatus, state: ContainerState, sidecars: Collection[str]) -> Exit | None:
    """Returns how the trainer ended; None if it has not ended.

    There is no exit code if the pod failed for another reason: an eviction, a lost node, a failed init container.
    """
    ended = state.terminated
    if ended is not None:
        return Exit(
            code=ended.exit_code, reason=ended.reason, message=ended.message, finished_at=_within(ended.finished_at)
        )
    if status.phase != "Failed":
        return None
    for container in status.init_container_statuses:
        ended = container.state.terminated
        # Sidecars do not count: they are killed at the end of the pod, and restarted if they fail earlier.
        if ended and ended.exit_code != 0 and container.name not in sidecars:
            return _failed_init(container.name, ended)
    return Exit(code=None, reason=status.reason, message=status.message)


def _failed_init(name: str, ended: ContainerStateTerminated) -> Exit:
    message = ended.message or f"exit code {ended.exit_code}"
    is_report = "cause" in (parsed_object(message) or {})
    return Exit(
        code=None,
        reason="InitContainerFailed",
        message=message if is_report else f"init container {name}: {message}",
        finished_at=_within(ended.finished_at),
    )


def _waiting(inits: tuple[ContainerStatus, ...], state: ContainerState, conditions: Conditions) -> Waiting | None:
    """Returns why the trainer is not running yet; None if the pod's status gives no reason.

    `inits` are the init containers, without sidecars that have started.
    """
    scheduled = conditions.get("PodScheduled", NO_CONDITION)
    if scheduled.status == "False":
        return Waiting(scheduled.reason, scheduled.message)
    for container in (*(init.state for init in inits), state):
        if container.waiting and container.waiting.reason not in {"", "PodInitializing", "ContainerCreating"}:
            return Waiting(container.waiting.reason, container.waiting.message)
    running = next((init.name for init in inits if init.state.running is not None), None)
    if running is not None:
        if running == WAIT_CONTAINER:
            return Waiting(WAITING_FOR_MASTER)
        return Waiting(f"init container {running} runs", busy=True)
    sandbox = conditions.get("PodReadyToStartContainers", NO_CONDITION)
    return Waiting(VOLUMES_AND_NETWORK) if sandbox.status == "False" else None
