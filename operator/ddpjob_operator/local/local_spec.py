"""Adapts a spec to one machine. There, all nodes have room, and only `ddpjob run` manages the job."""

from collections.abc import Iterator

from ddpjob_operator.api import Checkpoint, CleanPodPolicy, DDPJobSpec, DisruptionPolicy, History, HistoryMode
from ddpjob_operator.engine import lost_with_pods

A_YEAR = 366 * 24 * 3600


def spec_for_this_machine(spec: DDPJobSpec) -> DDPJobSpec:
    """The spec without the fields that have no effect on one machine."""
    policy = spec.clean_pod_policy
    return spec.model_copy(
        update={
            "checkpoint": _kept(spec),
            # The run's directory keeps logs, incidents, progress and a large result anyway.
            "history": spec.history if spec.history.path else History(mode=HistoryMode.DISABLED),
            "elastic": None,  # Otherwise the job could shrink while its nodes are still being created.
            "schedule_timeout_seconds": A_YEAR,
            "scheduling": None,
            "disruption": DisruptionPolicy.ALLOW,
            "ttl_seconds_after_finished": None,
            "clean_pod_policy": CleanPodPolicy.RUNNING if policy is CleanPodPolicy.NONE else policy,
            "managed_by": None,
        }
    )


def spec_while_attached(spec: DDPJobSpec) -> DDPJobSpec:
    """The spec while a rank has a terminal: nothing starts again, and finished nodes wait up to a year for others."""
    restart = spec.restart.model_copy(update={"max_restarts": 0, "max_disruptions": 0, "rules": ()})
    return spec.model_copy(update={"restart": restart, "finish_timeout_seconds": A_YEAR})


def _kept(spec: DDPJobSpec) -> Checkpoint | None:
    """`spec.checkpoint`, with a volume of the run if a cluster would delete the checkpoints with their pods."""
    if spec.checkpoint is None or not lost_with_pods(spec):
        return spec.checkpoint
    return spec.checkpoint.model_copy(update={"volume": {"persistentVolumeClaim": {"claimName": "checkpoints"}}})


def differences(spec: DDPJobSpec) -> Iterator[str]:
    """Yields notices about fields that have no effect on this machine, or a different effect than on a cluster."""
    if spec.suspend:
        yield "suspend is true in the file: nothing runs until it is false"
    if not spec.ours:
        yield f"managedBy has no effect on this machine: ddpjob run manages the job, not {spec.managed_by}"
    if spec.ttl_seconds_after_finished is not None:
        yield "ttlSecondsAfterFinished does nothing on this machine: the run directory is yours to remove"
    if spec.clean_pod_policy is CleanPodPolicy.NONE:
        yield "cleanPodPolicy None acts as Running on this machine: no process outlives the job"
    if spec.elastic is not None:
        yield "elastic does nothing on this machine: there is always room for all nodes"
    if spec.scheduling is not None:
        yield "scheduling does nothing on this machine: all nodes run here"
    if spec.disruption is not DisruptionPolicy.ALLOW:
        yield "disruption does nothing on this machine: nobody drains it"
