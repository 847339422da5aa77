"""What a user asks for: `spec`."""

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field

from .contract import (
    DEFAULT_CONTROL_PORT,
    DEFAULT_MASTER_PORT,
    DEFAULT_STATUS_PORT,
    GPU_RESOURCES,
    GROUP,
    MAX_NODES,
    MAX_PROCS_PER_NODE,
    TRAINER_CONTAINER,
)
from .model import Model
from .numbers import PositiveSeconds, Seconds
from .restart import Restart

AUTO = "Auto"
MANAGER = f"{GROUP}/operator"
"""What `managedBy` stands for where it is missing."""
MANAGED_BY_PATTERN = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"

JsonObject = dict[str, Any]
PodPort = Annotated[int, Field(ge=1024, le=65535)]


class Backend(StrEnum):
    """The library that moves the gradients."""

    AUTO = AUTO
    NCCL = "NCCL"
    GLOO = "Gloo"


class NetworkPolicy(StrEnum):
    """Whether the job gets a NetworkPolicy."""

    ENABLED = "Enabled"
    DISABLED = "Disabled"


class CleanPodPolicy(StrEnum):
    """Which pods are removed once a job has finished."""

    NONE = "None"
    RUNNING = "Running"
    ALL = "All"


class SuccessPolicy(StrEnum):
    """Which ranks have to exit with 0 for the job to succeed."""

    ALL_RANKS = "AllRanks"
    RANK_ZERO = "RankZero"


class Preflight(StrEnum):
    """What is checked before the ranks of an attempt start."""

    DISABLED = "Disabled"
    FAST = "Fast"
    FULL = "Full"


class Elastic(Model):
    """How small and how large the gang may be."""

    min_nodes: Annotated[int, Field(ge=1, le=MAX_NODES)] = 1
    """The job goes on with so few nodes where the cluster has no more."""
    max_nodes: Annotated[int, Field(ge=1, le=MAX_NODES)] | None = None
    """The most that `nodes` may be set to, by `kubectl scale` or an autoscaler too; without it, any number."""
    shrink_after_seconds: PositiveSeconds = 120
    """When some pods have had no place for so long, the gang starts again without them. And when places are found
    for some of those that are missing, but not for all, it starts again with those after so long."""


class Checkpoint(Model):
    """Where and how often the trainer saves what it needs to go on."""

    path: Annotated[str, Field(pattern=r"^/+[^/:][^:]*$", max_length=1024)]
    """Directory of the checkpoints inside the trainer container: an absolute path, not /, without a colon."""
    volume: JsonObject | None = None
    """A volume source, as in a pod's `volumes` but without `name`, to mount at path. Without it, path lies on a
    volume of the template or, where that mounts none there, on an emptyDir, which does not outlive the pod."""
    every_steps: Annotated[int, Field(ge=1, le=1_000_000_000)] | None = None
    """Save every so many steps. Without everySteps and everySeconds: at the end of each epoch."""
    every_seconds: PositiveSeconds | Literal["Auto"] | None = None
    """Save every so many seconds. Auto: as often as pays, by how long a save takes and how often the job fails."""
    keep: Annotated[int, Field(ge=1, le=1000)] = 3
    """How many of the newest checkpoints stay."""


class DDPJobSpec(Model):
    """A training run: a template for one pod per node, and how the gang of them starts, restarts and ends."""

    nodes: Annotated[int, Field(ge=1, le=MAX_NODES)] = 1
    """Number of nodes; each gets one pod."""
    procs_per_node: Annotated[int, Field(ge=1, le=MAX_PROCS_PER_NODE)] | Literal["Auto"] = "Auto"
    """Training processes per node. Auto: one per GPU that the trainer container asks for, else 1."""
    backend: Backend = Backend.AUTO
    """Auto: NCCL where the trainer container asks for GPUs, else Gloo."""
    master_port: PodPort = DEFAULT_MASTER_PORT
    """Port on which rank 0 meets the others."""
    status_port: PodPort = DEFAULT_STATUS_PORT
    """Port on which a supervisor tells how its gang is doing: `GET /status`, `/metrics`, `/healthz`."""
    control_port: PodPort = DEFAULT_CONTROL_PORT
    """Port on which supervisors talk to each other. The three ports must differ."""
    wait_for_master: bool = True
    """Pods of rank 1 and above start their trainer once rank 0's port accepts connections; this takes a python in
    the image. False: the trainer itself has to try until then."""
    network_policy: NetworkPolicy | None = None
    """Enabled: only the job's own pods reach its pods, and the operator their status port, since PyTorch's store asks
    nobody who he is. Without it, what the operator is set to when the job first starts: Enabled, as a rule."""
    suspend: bool = False
    """True: the pods get their full grace period to save, then go. False again: training goes on from the
    checkpoint, and startTime and the clock of activeDeadlineSeconds begin anew."""
    managed_by: Annotated[str, Field(max_length=63, pattern=MANAGED_BY_PATTERN)] | None = None
    """Who brings the job forward: a name with a prefix, like `example.com/other`. With another name than
    `ddpjob.dev/operator` the operator leaves the job alone. It can never be changed."""
    active_deadline_seconds: PositiveSeconds | None = None
    """The job fails when it has been active for so long, whatever it is doing."""
    start_deadline_seconds: PositiveSeconds | None = None
    """The job fails when it has been active for so long and its ranks have never yet all run."""
    schedule_timeout_seconds: PositiveSeconds = 600
    """A gang that holds nodes for some of its pods and finds none for others gives all back after so long, and a
    little more, and tries again: two jobs must not wait for each other's nodes for ever. One that has all its nodes,
    and pods that do not come to run there, does so after three times as long."""
    success_policy: SuccessPolicy = SuccessPolicy.ALL_RANKS
    """AllRanks: the job succeeds when every rank has exited with 0. RankZero: when rank 0 has; the others are then
    told to stop."""
    finish_timeout_seconds: PositiveSeconds = 1800
    """With successPolicy AllRanks, where some ranks have finished: the others have so long to finish too, counted
    anew with each that does. One that has not is taken for stalled."""
    clean_pod_policy: CleanPodPolicy = CleanPodPolicy.RUNNING
    """What is removed when the job has finished. Running: pods that still run; those that ended keep their logs. All:
    every pod. None: nothing, and what runs goes on."""
    ttl_seconds_after_finished: Seconds | None = None
    """The job is deleted, with all that belongs to it, so long after it has finished. Without it, never."""
    restart: Restart = Restart()
    """What happens when a rank fails: whether, how often, how fast and how gently the gang starts again."""
    elastic: Elastic | None = None
    """Lets the job run with fewer nodes than `nodes` where the cluster has no more, and grow again."""
    stall_timeout_seconds: PositiveSeconds | None = None
    """The gang is stalled when no step was finished for so long. Without it, the limit is learned from the job's own
    steps. The first step, saves and evaluations have longer limits; who reports no steps is never stalled."""
    preflight: Preflight = Preflight.FAST
    """What is checked before ranks start. Fast: rank 0's name, clocks, shared memory, open files, disk, the
    number of GPUs. Full: what GPUs compute and the network carries too. Disabled: nothing."""
    checkpoint: Checkpoint | None = None
    """Where and how often the trainer saves. Without it, training that is restarted begins anew."""
    template: JsonObject
    """Pod template of every node, with a container named `trainer` that runs the training."""

    @property
    def ours(self) -> bool:
        """Whether it is this operator that brings the job forward."""
        return self.managed_by in {None, MANAGER}

    @property
    def trainer(self) -> JsonObject:
        """The trainer container of the template."""
        containers: list[JsonObject] = self.template["spec"]["containers"]
        return next(container for container in containers if container["name"] == TRAINER_CONTAINER)

    @property
    def gpus_per_node(self) -> int:
        """GPUs that the trainer container asks for by name, whole or MIG slices."""
        resources = self.trainer.get("resources", {})
        asked = {**resources.get("requests", {}), **resources.get("limits", {})}
        return sum(int(amount) for name, amount in asked.items() if is_gpu(name))

    def resolved_procs_per_node(self) -> int:
        """The number that `procsPerNode` stands for."""
        return max(1, self.gpus_per_node) if self.procs_per_node == AUTO else int(self.procs_per_node)

    def resolved_backend(self) -> Backend:
        """The backend that `backend` stands for; decided by the container's requests, never by ranks."""
        if self.backend is not Backend.AUTO:
            return self.backend
        return Backend.NCCL if self.gpus_per_node else Backend.GLOO


def is_gpu(resource: str) -> bool:
    """Whether a resource of that name counts as GPUs."""
    return any(resource.startswith(gpu) if gpu.endswith("-") else resource == gpu for gpu in GPU_RESOURCES)
