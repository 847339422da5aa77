"""What a user asks for: `spec`."""

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field

from .contract import DEFAULT_MASTER_PORT, GPU_RESOURCES, MAX_NODES, MAX_PROCS_PER_NODE, TRAINER_CONTAINER
from .model import Model

AUTO = "Auto"

Seconds = Annotated[int, Field(ge=0, le=366 * 24 * 3600)]
PositiveSeconds = Annotated[int, Field(ge=1, le=366 * 24 * 3600)]
JsonObject = dict[str, Any]


class Backend(StrEnum):
    """The library that moves the gradients."""

    AUTO = AUTO
    NCCL = "Nccl"
    GLOO = "Gloo"


class NetworkPolicy(StrEnum):
    """Whether the job gets a NetworkPolicy."""

    ENABLED = "Enabled"
    DISABLED = "Disabled"


class Restart(Model):
    """How often, how fast and how gently a failed gang starts again."""

    max_restarts: Annotated[int, Field(ge=0, le=10_000)] = 6
    """Incidents that are answered by a restart, within windowSeconds of healthy running. An incident counts once,
    however many ranks it took down."""
    window_seconds: PositiveSeconds = 3600
    """After all ranks have run this long without a failure the whole of maxRestarts is free again."""
    backoff_seconds: Seconds = 1
    """Wait before the first restart; doubled with every further incident until the job was healthy for
    windowSeconds."""
    max_backoff_seconds: Seconds = 300
    """The longest such wait."""
    grace_period_seconds: Seconds = 5
    """Time between SIGTERM and SIGKILL for the survivors of a failed gang, which have nothing left to save."""


class Checkpoint(Model):
    """Where and how often the trainer saves what it needs to go on."""

    path: Annotated[str, Field(pattern=r"^/[^:]*$", max_length=1024)]
    """Directory of the checkpoints inside the trainer container: an absolute path without a colon."""
    volume: JsonObject | None = None
    """A volume source, as in a pod's `volumes` but without `name`, to mount at path. Without it, path lies on a
    volume of the template or, where that mounts none there, on an emptyDir, which does not outlive the pod."""
    every_steps: Annotated[int, Field(ge=1, le=1_000_000_000)] | None = None
    """Save every so many steps. Without everySteps and everySeconds: at the end of each epoch."""
    every_seconds: PositiveSeconds | None = None
    """Save every so many seconds."""
    keep: Annotated[int, Field(ge=1, le=1000)] = 3
    """How many of the newest checkpoints stay."""


class DDPJobSpec(Model):
    """A training run: a template for one pod per node, and how the gang of them starts, restarts and ends."""

    nodes: Annotated[int, Field(ge=1, le=MAX_NODES)] = 1
    """Number of nodes; each gets one pod."""
    procs_per_node: Annotated[int, Field(ge=1, le=MAX_PROCS_PER_NODE)] | Literal["Auto"] = "Auto"
    """Training processes per node. Auto: one per GPU that the trainer container asks for, else 1."""
    backend: Backend = Backend.AUTO
    """Auto: Nccl where the trainer container asks for GPUs, else Gloo."""
    master_port: Annotated[int, Field(ge=1024, le=65535)] = DEFAULT_MASTER_PORT
    """Port on which rank 0 meets the others."""
    wait_for_master: bool = True
    """Pods of rank 1 and above start their trainer once rank 0's port accepts connections; this takes a python in
    the image. False: the trainer itself has to try until then."""
    network_policy: NetworkPolicy = NetworkPolicy.DISABLED
    """Enabled: only the job's own pods reach its pods, and the operator their status port. PyTorch's store and its
    collectives of Python objects do not ask who is calling: whoever reaches them can run code in the job."""
    suspend: bool = False
    """True: the pods get their full grace period to save, then go. False again: training goes on from the
    checkpoint, and startTime and the clock of activeDeadlineSeconds begin anew."""
    active_deadline_seconds: PositiveSeconds | None = None
    """The job fails when it has been active for so long, whatever it is doing."""
    restart: Restart = Restart()
    """What happens when a rank fails: how often, how fast and how gently the gang starts again."""
    checkpoint: Checkpoint | None = None
    """Where and how often the trainer saves. Without it, training that is restarted begins anew."""
    template: JsonObject
    """Pod template of every node, with a container named `trainer` that runs the training."""

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
