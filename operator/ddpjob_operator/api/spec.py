"""The field `spec`, which contains the user's request."""

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from .contract import (
    DEFAULT_CONTROL_PORT,
    DEFAULT_MASTER_PORT,
    DEFAULT_STATUS_PORT,
    GPU_RESOURCES,
    GROUP,
    HOLD,
    MAX_NODES,
    MAX_PROCS_PER_NODE,
    SUPERVISE,
    TRAIN,
    TRAINER_CONTAINER,
)
from .model import Model
from .numbers import PositiveSeconds, Seconds
from .restart import Restart
from .scheduling import Scheduling, Topology

CONTROLLER_NAME = f"{GROUP}/operator"
"""This operator's name in `managedBy`. It also manages the jobs without `managedBy`."""
MANAGED_BY_PATTERN = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"

STORE_URL = (
    r"((s3|s3a|gs|az|azure|adl|abfs|abfss)://|abfss?://[A-Za-z0-9-]+@)[A-Za-z0-9][A-Za-z0-9._-]*"
    r"(/[^/?#@$\x00-\x20]+)*/?"
)
"""Matches the URL of a place in an object store, without credentials. The part before an @ is an Azure container. No
`$` is allowed, because Kubernetes would expand `$(NAME)`."""
PLACE_PATTERN = r"^(/+[^/:][^:]*$|[A-Za-z][A-Za-z0-9+.-]*://)"
"""Matches the path of a directory, and the beginning of a URL."""
MAX_PLACE = 1024
"""The most characters of such an address."""
SIZE_PATTERN = r"^(0|[1-9][0-9]{0,8}(Ki|Mi|Gi|Ti|k|M|G|T)?)$"
"""Matches a number of bytes as a Kubernetes quantity without fractions."""

JsonObject = dict[str, Any]
PodPort = Annotated[int, Field(ge=1024, le=65535)]


class Backend(StrEnum):
    """The library that exchanges gradients."""

    AUTO = "Auto"
    NCCL = "NCCL"
    GLOO = "Gloo"


class NetworkPolicy(StrEnum):
    """Whether the job gets a NetworkPolicy."""

    ENABLED = "Enabled"
    DISABLED = "Disabled"


class PodSecurity(StrEnum):
    """The operator's setting for the security context of pods. A template's own fields take precedence."""

    RESTRICTED = "Restricted"
    """Everything that Kubernetes' restricted Pod Security Standard requires, and a writable home directory."""
    NONE = "None"
    """No settings: user, rights and home directory are those of the image and the cluster."""


class CheckpointInterval(StrEnum):
    """When the trainer saves, if no number of steps or seconds is set."""

    EPOCHS = "Epochs"
    AUTO = "Auto"


class HistoryMode(StrEnum):
    """Whether a history is kept."""

    AUTO = "Auto"
    DISABLED = "Disabled"


class CleanPodPolicy(StrEnum):
    """Which pods are removed once a job has finished."""

    NONE = "None"
    RUNNING = "Running"
    ALL = "All"


class DisruptionPolicy(StrEnum):
    """When the job's pods may be evicted."""

    ALLOW = "Allow"
    AFTER_CHECKPOINT = "AfterCheckpoint"


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
    """The smallest number of nodes that the job runs with while the cluster has no room for more."""
    max_nodes: Annotated[int, Field(ge=1, le=MAX_NODES)] | None = None
    """The largest value that `nodes` may have, also when `kubectl scale` or an autoscaler sets it. Without it there
    is no limit."""
    shrink_after_seconds: PositiveSeconds = 120
    """How long the gang waits for pods that are not scheduled before it starts again without them. If there is room
    for some of the missing pods later, the gang waits just as long for the rest before it starts again with these."""


class Checkpoint(Model):
    """Where and how often the trainer saves what it needs to continue."""

    path: Annotated[str, Field(pattern=PLACE_PATTERN, max_length=MAX_PLACE)]
    """Where checkpoints are: a directory, as the trainer sees it, which is an absolute path other than /, without a
    colon; or a URL such as s3://BUCKET/PATH, gs://BUCKET/PATH or az://CONTAINER/PATH, without credentials."""
    volume: JsonObject | None = None
    """The volume to mount at path: a volume source as in a pod's `volumes`, without `name`. Without it, path is on a
    volume that the template mounts there or else on an emptyDir, which is lost with its pod."""
    interval: CheckpointInterval | None = None
    """When to save, instead of everySteps and everySeconds. Epochs: at the end of each epoch, as when none of the
    three is set. Auto: as often as is worthwhile, given how long a save takes and how often the job fails."""
    every_steps: Annotated[int, Field(ge=1, le=1_000_000_000)] | None = None
    """Number of steps from one save to the next."""
    every_seconds: PositiveSeconds | None = None
    """Number of seconds from one save to the next."""
    keep: Annotated[int, Field(ge=1, le=1000)] = 3
    """How many of the newest checkpoints to keep."""
    local_copy_size_limit: Annotated[str, Field(pattern=SIZE_PATTERN, max_length=11)] | None = None
    """How much memory on rank 0's node may hold local copies of checkpoints that are saved to an object store, such
    as `4Gi`. A restart in place resumes from the local copy without waiting for the store. `"0"`: no local copy.
    Without a value, a quarter of the memory that the container's limit leaves free."""


class History(Model):
    """Where supervisors keep what is needed when the job's pods, or the job, are gone."""

    mode: HistoryMode = HistoryMode.AUTO
    """Auto: a history is kept at `path` or, without it, in the folder `history` of `checkpoint.path`, if the
    checkpoints outlive the pods. Disabled: none is kept."""
    path: Annotated[str, Field(pattern=PLACE_PATTERN, max_length=MAX_PLACE)] | None = None
    """A directory, as the trainer sees it, which is an absolute path other than /, without a colon; or a URL such as
    s3://BUCKET/PATH, gs://BUCKET/PATH or az://CONTAINER/PATH, without credentials. On a cluster, a directory has to
    be on a volume that outlives the job. Several jobs may share it. `ddpjob logs`, `status` and `report` read it with
    `--history`."""


ConfigMapName = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)]


class CodeReference(Model):
    """Code that has taken the place of the code in the template."""

    config_map: ConfigMapName
    """The ConfigMap with the archive, which the volume `code-archive` of new pods shows."""
    former: ConfigMapName | None = None
    """The ConfigMap with the code that ran before. If the new code fails before its first step, this code runs again,
    and new pods have it. Not set: the code of the template."""
    revision: Annotated[int, Field(ge=1, le=1_000_000_000)]
    """The number of the change, counted from 1. If pods of a gang were made with different code, the code with the
    highest revision counts."""


class Network(Model):
    """The ports of the job's pods, and who can reach them."""

    master_port: PodPort = DEFAULT_MASTER_PORT
    """Port on which rank 0 waits for the other ranks."""
    status_port: PodPort = DEFAULT_STATUS_PORT
    """Port on which a supervisor reports how training is going: `GET /status`, `/metrics`, `/healthz`."""
    control_port: PodPort = DEFAULT_CONTROL_PORT
    """Port on which supervisors talk to each other. The three ports must differ."""
    wait_for_master: bool = True
    """True: pods of node 1 and above start their trainer only once rank 0 accepts connections; this needs `python` in
    the image. False: the trainer itself has to retry until then."""
    policy: NetworkPolicy | None = None
    """Whether the job has a NetworkPolicy. Enabled: its pods can be reached only by each other and, at the status
    port, by the operator, because PyTorch's store authenticates nobody. Disabled: anybody can reach them. Without a
    value, the operator's setting when the job first starts, which is Enabled by default."""


class DDPJobSpec(Model):
    """A training job: a template for its pods, one per node, and how they start, restart and end as one gang."""

    nodes: Annotated[int, Field(ge=1, le=MAX_NODES)] = 1
    """Number of nodes; each is one pod."""
    procs_per_node: Annotated[int, Field(ge=1, le=MAX_PROCS_PER_NODE)] | None = None
    """Training processes per node. Without it, one for each GPU that the trainer container requests, or 1 without
    GPUs. Which resources are GPUs: `nvidia.com/gpu`, `nvidia.com/mig-*`, `amd.com/gpu`, and those that the operator's
    administrator names; each unit is one GPU."""
    backend: Backend = Backend.AUTO
    """Auto: NCCL if the trainer container requests GPUs, otherwise Gloo."""
    network: Network = Network()
    """The ports of the job's pods, whether they wait for rank 0, and who can reach them."""
    suspend: bool = False
    """True: the pods are stopped, with their full grace period to save. False again: training continues from the
    checkpoint, and startTime and the clock of activeDeadlineSeconds start over."""
    cancel: bool = False
    """True: the job ends for good, whatever it is doing or waiting for. Its pods are stopped, with their full grace
    period to save, and stay with their logs; the job stays too, as Failed with reason Cancelled. Setting it to false
    again does not bring the job back."""
    managed_by: Annotated[str, Field(max_length=63, pattern=MANAGED_BY_PATTERN)] | None = None
    """The controller that manages the job: a name with a prefix, such as `example.com/other`. With any name but
    `ddpjob.dev/operator`, the operator leaves the job alone. It can never be changed."""
    active_deadline_seconds: PositiveSeconds | None = None
    """The job fails once it has been active for this long, whatever it is doing."""
    start_deadline_seconds: PositiveSeconds | None = None
    """The job fails if it has been active for this long without all its ranks ever having run at the same time."""
    schedule_timeout_seconds: PositiveSeconds = 600
    """If only some of the gang's pods have been scheduled after this long, or slightly longer, the gang gives them up
    and tries again, so that two jobs never wait for each other forever. If all pods are scheduled, but some do not
    start to run, it does so after three times as long."""
    success_policy: SuccessPolicy = SuccessPolicy.ALL_RANKS
    """AllRanks: the job succeeds when every rank has exited with 0. RankZero: the job succeeds when rank 0 has exited
    with 0, and the other ranks are then stopped."""
    finish_timeout_seconds: PositiveSeconds = 1800
    """With successPolicy AllRanks: how long the other ranks may still run after a rank has finished; the time starts
    anew with each rank that finishes. A rank that runs longer counts as stalled."""
    clean_pod_policy: CleanPodPolicy = CleanPodPolicy.RUNNING
    """Which pods are removed when the job has finished. Running: pods that are still running; ended pods stay, with
    their logs. All: every pod. None: no pod, and running pods continue."""
    ttl_seconds_after_finished: Seconds | None = None
    """How long a finished job stays before it is deleted with all that belongs to it. Without a value, forever."""
    restart: Restart = Restart()
    """What happens when a rank fails: whether, how often, how soon and how gently the gang starts again."""
    elastic: Elastic | None = None
    """Lets the job run with fewer nodes than `nodes` while the cluster has no room for more, and grow again later."""
    scheduling: Scheduling | None = None
    """How the cluster's scheduler places the gang. Except for `topology`, this takes effect only if the cluster
    serves PodGroups (`scheduling.k8s.io/v1beta1`, or Volcano's) and the operator may create them. On such clusters
    every gang has a PodGroup, even without this field. A change takes effect when the gang next starts."""
    disruption: DisruptionPolicy = DisruptionPolicy.ALLOW
    """When the job's pods may be evicted, as by `kubectl drain` or an autoscaler that removes a node. Allow: at any
    time. AfterCheckpoint: only within half a minute after a checkpoint was saved. At other times a
    PodDisruptionBudget refuses evictions, but at most for an hour after the last checkpoint or after all ranks began
    to run, whichever is later. The operator's administrator can change this hour. Preemption does not wait."""
    stall_timeout_seconds: PositiveSeconds | None = None
    """The gang is stalled when no step has finished for this long. Without it, the limit is learned from the job's
    own steps. The first step, saves and evaluations are given longer."""
    first_step_timeout_seconds: PositiveSeconds | None = None
    """The gang is stalled when an attempt has not finished its first step after this long, even if nothing is known
    of the program's steps. Without it, later attempts get five times what the first step has taken so far, at least
    600 s; the first attempt, and a program whose steps nobody can count, may take any time."""
    preflight: Preflight = Preflight.FAST
    """What is checked before the ranks start. Fast: rank 0's name, clocks, shared memory, open files, disk and the
    number of GPUs. Full: also what the GPUs compute and what the network carries. Disabled: nothing."""
    checkpoint: Checkpoint | None = None
    """Where and how often the trainer saves. Without it, training starts over after a restart."""
    history: History = History()
    """Whether and where the logs of all ranks, incidents and progress are kept, so that they outlive the pods: by
    default beside the checkpoints, if these outlive the pods. Only `ddpjob-supervise` and `ddpjob-train` write it."""
    code: CodeReference | None = None
    """The code of new pods, in place of the code in the template. `ddpjob submit --replace --in-place` sets it, and
    then lets the supervisors of the present pods run that code. By itself a change affects only new pods."""
    template: JsonObject
    """Pod template of every node, with a container named `trainer` that runs the training."""

    @property
    def ours(self) -> bool:
        """Whether this operator manages the job."""
        return self.managed_by in {None, CONTROLLER_NAME}

    @property
    def trainer(self) -> JsonObject:
        """The trainer container of the template."""
        containers: list[JsonObject] = self.template["spec"]["containers"]
        return next(container for container in containers if container["name"] == TRAINER_CONTAINER)

    @property
    def supervisor(self) -> str | None:
        """The supervisor that the trainer container's command starts; None if the command starts no supervisor."""
        command = self.trainer.get("command") or [""]
        name = command[0].rpartition("/")[2]
        return name if name in {SUPERVISE, TRAIN} else None

    @property
    def held(self) -> bool:
        """Whether the job is held for programs that are sent later, and has none of its own."""
        words = [*(self.trainer.get("command") or ()), *(self.trainer.get("args") or ())]
        options = iter(words[1:] if self.supervisor == SUPERVISE else ())
        for word in options:
            option, equals, _ = word.partition("=")
            if option == HOLD:
                return True
            if not option.startswith("--"):  # From here on, the words are those of a program.
                return False
            if not equals:
                next(options, None)  # Each of the supervisor's options has a value.
        return False

    @property
    def topology(self) -> Topology | None:
        """The field `scheduling.topology`, if it is set."""
        return self.scheduling.topology if self.scheduling else None

    @property
    def resources(self) -> JsonObject:
        """The trainer container's amounts of resources, by name: the limits, or else the requests."""
        resources = self.trainer.get("resources", {})
        return {**resources.get("requests", {}), **resources.get("limits", {})}

    def gpus_per_node(self, also: Iterable[str] = ()) -> int:
        """Returns the number of GPUs that the trainer container requests.

        `also` contains resources that count as GPUs in addition to GPU_RESOURCES.
        """
        known = (*GPU_RESOURCES, *also)
        return sum(_units(amount) for name, amount in self.resources.items() if is_gpu(name, known))

    def resolved_procs_per_node(self, also: Iterable[str] = ()) -> int:
        """Returns the number of processes per node: the job's `procsPerNode` or, without it, one for each GPU."""
        return self.procs_per_node or min(max(1, self.gpus_per_node(also)), MAX_PROCS_PER_NODE)

    def resolved_backend(self, also: Iterable[str] = ()) -> Backend:
        """Returns the backend to use. Auto depends only on whether the trainer container requests GPUs."""
        if self.backend is not Backend.AUTO:
            return self.backend
        return Backend.NCCL if self.gpus_per_node(also) else Backend.GLOO


def is_gpu(resource: str, known: Iterable[str] = GPU_RESOURCES) -> bool:
    """Whether a resource with this name counts as GPUs."""
    return any(resource.startswith(gpu) if gpu.endswith("-") else resource == gpu for gpu in known)


def is_url(address: str) -> bool:
    """Whether the address of checkpoints is a URL, and not the path of a directory."""
    return "://" in address


def _units(amount: object) -> int:
    """Returns the number of devices; 0 if it is not a whole number, because Kubernetes then refuses the pod."""
    return int(str(amount)) if re.fullmatch(r"[0-9]{1,9}", str(amount)) else 0
