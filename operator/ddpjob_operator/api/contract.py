"""Names and numbers that operator, pods and users share. To change one of them is to change the contract.

The packages in the pod never import this module. They have their own copies of the values that they need, and a
golden file keeps both sides the same.
"""

from enum import IntEnum

GROUP = "ddpjob.dev"
VERSION = "v1alpha2"
FORMER_VERSION = "v1alpha1"
"""The former version, whose jobs may exist on upgraded clusters. The API server refuses new jobs in this version."""
API_VERSION, FORMER_API_VERSION = f"{GROUP}/{VERSION}", f"{GROUP}/{FORMER_VERSION}"
KIND = "DDPJob"

TRAINER_CONTAINER = "trainer"
RESERVED_VOLUME_PREFIX = "ddpjob-"
SUPERVISE, TRAIN = "ddpjob-supervise", "ddpjob-train"
"""The commands that start a supervisor, which in turn starts the ranks."""

HOLD = "--hold"
"""The option of SUPERVISE that holds a job's nodes for programs that are sent later."""

ATTEMPT_BEGINS = "attempt {} begins"
"""The line that a supervisor prints before each attempt except the first. It may continue with ` in place: ` and the
reason. These lines separate attempts whose output is in the same log."""
ATTEMPT_ENDED = "attempt {} has ended"
"""The line that a supervisor prints after each attempt of a held gang."""

CODE_VOLUME, CODE_KEY = "code-archive", "code.zip"
"""The volume of a template with the archive of the code that `ddpjob submit` has sent, and the file in it."""

SECRET_KEY = "secret"  # noqa: S105  (a name)
SECRET_DIRECTORY = "/var/run/secrets/ddpjob.dev"  # noqa: S105  (a path)
"""Where the job's Secret is mounted, only in the trainer container."""

ANNOTATIONS_DIRECTORY = "/var/run/ddpjob.dev"
"""Where annotations of the pod are shown to its supervisor, each in a file."""
DOMAIN_FILE = "topology-domain"
"""The file in that directory with the value of the pod's annotation DOMAIN, by which supervisors order ranks."""
CHECKPOINT_REQUEST_FILE = "checkpoint-request"
"""The file in that directory, in rank 0's pod, with the value of the pod's annotation CHECKPOINT_REQUEST."""

HISTORY_FOLDER = "history"
"""The folder of the checkpoints' directory or URL in which the job's history is kept, unless its spec names another
place. No checkpoint has such a name."""

MAX_NODES = 4096
"""The largest value of `nodes`. It limits node numbers to four digits, because they are part of the names of pods,
which must not be too long."""

MAX_PROCS_PER_NODE = 64
MAX_CONTAINERS = 8
MAX_ENV = 256

SUFFIX_LENGTH = 5
MAX_NAME_LENGTH = 63 - len(f"-{MAX_NODES - 1}-") - SUFFIX_LENGTH
"""The longest name of a job. A pod's name, `<job>-<node>-<suffix>`, is also its hostname, and therefore a DNS label
of at most 63 characters."""


class Label:
    """Labels on all objects that belong to a job."""

    MANAGED_BY = "app.kubernetes.io/managed-by"
    """Who creates and deletes the object: always `ddpjob-operator`."""
    JOB_NAME = f"{GROUP}/job-name"
    """The job's name."""
    JOB_UID = f"{GROUP}/job-uid"
    """The job's uid, which is different after a job is recreated under the same name."""
    NODE = f"{GROUP}/node"
    """On pods only: the node's number, from 0."""
    INCARNATION = f"{GROUP}/incarnation"
    """On pods only: the number of this pod among those that its node has had, counted from 1."""


FINISHED = f"{GROUP}/finished"
"""Annotation of a finished job, with its final state and a digest of its name. If a backup drops the status, the job
still has this annotation. The digest distinguishes the job from its copies."""

ASKED = f"{GROUP}/asked"
"""Annotation of a job's Workload in a queue: a digest of the job's request, except the number of nodes."""

DOMAIN = f"{GROUP}/topology-domain"
"""Annotation of a pod whose ranks follow placement: the value of the label on its Kubernetes node that
`spec.scheduling.topology` names; empty if the node lacks the label."""

CHECKPOINT_REQUEST = f"{GROUP}/checkpoint-request"
"""Annotation of a job that requests a checkpoint: any word of at most 63 characters. Each new word is a new request.
The operator copies it to rank 0's pod, where the supervisor reads it."""
LONGEST_REQUEST = 63
"""How many characters of CHECKPOINT_REQUEST count."""

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
"""Label of a job that Kueue must admit: the LocalQueue, in the job's namespace."""
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
"""Label of a job in a queue: the WorkloadPriorityClass, which determines the job's priority in the queue."""

CLASS_LABEL = f"{GROUP}/class"
"""Label of a job that only operators of this class run; without it, operators without a class run the job."""

MANAGER = "ddpjob-operator"


class Env:
    """Variables of the trainer container. A template that sets one of them is refused."""

    MASTER_ADDR = "MASTER_ADDR"
    """Host name of rank 0. It differs for each pod of rank 0, so that no process connects to an earlier master."""
    MASTER_PORT = "MASTER_PORT"
    """Port on which rank 0 listens: `spec.network.masterPort`. After a restart in place or a full preflight the ranks
    get another port, a free one from 10000 to 19999."""
    WORLD_SIZE = "WORLD_SIZE"
    """Total number of processes on all nodes."""
    NNODES = "NNODES"
    """Number of nodes."""
    NODE_RANK = "NODE_RANK"
    """This node's number, from 0."""
    NPROC_PER_NODE = "NPROC_PER_NODE"
    """Number of processes on each node."""

    # RANK is always the number of a process, never of a node. So a pod sets these three variables only if it has one
    # process. Otherwise torchrun or the supervisor sets them for each process.
    RANK = "RANK"
    """This process's number in the world, from 0. The pod sets it if a node has one process; otherwise the program
    that starts the processes (torchrun, `ddpjob-train`) sets it for each."""
    LOCAL_RANK = "LOCAL_RANK"
    """This process's number on its node, from 0. Set in the same way as RANK."""
    LOCAL_WORLD_SIZE = "LOCAL_WORLD_SIZE"
    """Number of processes on this node. Set in the same way as RANK."""

    # Defaults for torchrun's own arguments (https://docs.pytorch.org/docs/stable/elastic/run.html).
    PET_NNODES = "PET_NNODES"
    """torchrun's `--nnodes`."""
    PET_NPROC_PER_NODE = "PET_NPROC_PER_NODE"
    """torchrun's `--nproc-per-node`."""
    PET_NODE_RANK = "PET_NODE_RANK"
    """torchrun's `--node-rank`."""
    PET_MASTER_ADDR = "PET_MASTER_ADDR"
    """torchrun's `--master-addr`."""
    PET_MASTER_PORT = "PET_MASTER_PORT"
    """torchrun's `--master-port`."""

    NAME = "DDPJOB_NAME"
    """The job's name."""
    NAMESPACE = "DDPJOB_NAMESPACE"
    """The job's namespace."""
    UID = "DDPJOB_UID"
    """The job's uid."""
    INCARNATION = "DDPJOB_INCARNATION"
    """Number of this pod among those that its node has had, counted from 1."""
    ATTEMPT = "DDPJOB_ATTEMPT"
    """Number of the attempt, counted from 1: `status.attempt` when the pod was created. A supervisor updates it for
    the ranks of each attempt."""
    BACKEND = "DDPJOB_BACKEND"
    """`nccl` or `gloo`: the backend from `spec.backend`, with Auto resolved; the same in all processes."""
    CHECKPOINT_DIR = "DDPJOB_CHECKPOINT_DIR"
    """Directory of the checkpoints, or their URL in an object store: `spec.checkpoint.path`. Not set without
    `spec.checkpoint`."""
    CHECKPOINT_EVERY_STEPS = "DDPJOB_CHECKPOINT_EVERY_STEPS"
    """`spec.checkpoint.everySteps`, if that is set."""
    CHECKPOINT_EVERY_SECONDS = "DDPJOB_CHECKPOINT_EVERY_SECONDS"
    """`spec.checkpoint.everySeconds`, if that is set; `Auto` with `interval: Auto`."""
    CHECKPOINT_KEEP = "DDPJOB_CHECKPOINT_KEEP"
    """`spec.checkpoint.keep`. Not set without `spec.checkpoint`."""
    CHECKPOINT_LOCAL_COPY_BYTES = "DDPJOB_CHECKPOINT_LOCAL_COPY_BYTES"
    """`spec.checkpoint.localCopySizeLimit` in bytes, if that is set."""
    HISTORY = "DDPJOB_HISTORY"
    """Directory of the job's history, or its URL in an object store: `status.historyPath`. Not set if no history is
    kept."""
    LAST_INCIDENT = "DDPJOB_LAST_INCIDENT"
    """The incident after which this pod was made: a JSON object with fields of `status.incidents`. Supervisors
    write it into the history. Set only if there is one, in node 0's pod and in a pod that was replaced alone."""
    TERMINATION_LOG = "DDPJOB_TERMINATION_LOG"
    """File for the failure report: the container's `terminationMessagePath`."""

    SUPERVISOR = "DDPJOB_SUPERVISOR"
    """Several variables packed into one: a JSON object of their names and values. A supervisor sets each of them for
    itself and its ranks, unless the container already has a variable with that name."""

    # For the supervisor.
    STATUS_PORT = "DDPJOB_STATUS_PORT"
    """Port of the supervisor's status page: `spec.network.statusPort`."""
    CONTROL_PORT = "DDPJOB_CONTROL_PORT"
    """Port on which supervisors communicate with each other: `spec.network.controlPort`."""
    PEERS = "DDPJOB_PEERS"
    """Addresses of supervisors as `host:port`, separated by commas, with rank 0's first. A pod that replaces a lost
    pod also gets the addresses of up to eight running pods."""
    SECRET_FILE = "DDPJOB_SECRET_FILE"  # noqa: S105  (a name)
    """File with the job's secret, by which its supervisors authenticate each other. It comes from a Secret that is
    mounted only in the trainer container."""
    IN_PLACE_RESTARTS = "DDPJOB_IN_PLACE_RESTARTS"
    """How many restarts in place are allowed within the window: `spec.restart.inPlaceRestarts`, or `maxRestarts` if
    that is less; 0 with `mode: Recreate`."""
    RESTART_WINDOW_SECONDS = "DDPJOB_RESTART_WINDOW_SECONDS"
    """The window for restarts in place: `spec.restart.windowSeconds`."""
    LEAVE_TO_OPERATOR = "DDPJOB_LEAVE_TO_OPERATOR"
    """Incidents after which a supervisor must end its pod, because the operator may have to fail the job: exit codes,
    ranges of exit codes, and causes, separated by commas."""
    STALL_TIMEOUT_SECONDS = "DDPJOB_STALL_TIMEOUT_SECONDS"
    """`spec.stallTimeoutSeconds`, if that is set."""
    FIRST_STEP_TIMEOUT_SECONDS = "DDPJOB_FIRST_STEP_TIMEOUT_SECONDS"
    """`spec.firstStepTimeoutSeconds`, if that is set."""
    IMAGE = "DDPJOB_IMAGE"
    """The trainer container's image. With the same image, the supervisor expects the first step to take as long as
    before."""
    GIT = "DDPJOB_GIT"
    """The git commit, branch and dirty state that the job was submitted from, as JSON, if they are known."""
    CODE_ARCHIVE = "DDPJOB_CODE_ARCHIVE"
    """File with the archive of the code with which the pod was made, so that the code can be replaced in place. Set
    if the trainer container mounts the volume `code-archive`."""
    CODE_REVISION = "DDPJOB_CODE_REVISION"
    """`spec.code.revision`, or 0 without `spec.code`. Set together with DDPJOB_CODE_ARCHIVE."""
    PREFLIGHT = "DDPJOB_PREFLIGHT"
    """`spec.preflight`: `Disabled`, `Fast` or `Full`."""
    GRACE_PERIOD_SECONDS = "DDPJOB_GRACE_PERIOD_SECONDS"
    """Time from SIGTERM to SIGKILL when the pod is told to stop: the template's `terminationGracePeriodSeconds`, if
    that is set."""
    TOPOLOGY_DOMAIN_FILE = "DDPJOB_TOPOLOGY_DOMAIN_FILE"
    """File with the value of the pod's annotation `ddpjob.dev/topology-domain`, by which supervisors order ranks. Set
    if the job has `spec.scheduling.topology` and a supervisor starts the ranks."""
    CHECKPOINT_REQUEST_FILE = "DDPJOB_CHECKPOINT_REQUEST_FILE"
    """File with the value of the pod's annotation `ddpjob.dev/checkpoint-request`. Set in rank 0's pod, if a
    supervisor starts the ranks."""
    LISTEN_ADDR = "DDPJOB_LISTEN_ADDR"
    """Only in local mode: the address on which the supervisor listens, because all nodes share one machine."""
    RUN_DIR = "DDPJOB_RUN_DIR"
    """Only in local mode: the directory of the run, where the supervisor keeps its records."""
    ATTACH = "DDPJOB_ATTACH"
    """Only in local mode: the rank that gets the terminal, as `ddpjob run --attach` names it."""
    HEARTBEAT = "DDPJOB_HEARTBEAT"
    """Set by the supervisor for its ranks: the file in which a rank reports that it is alive, and its progress."""
    MEAN_TIME_TO_FAILURE = "DDPJOB_MEAN_TIME_TO_FAILURE_SECONDS"
    """Set by the supervisor for its ranks as soon as it is known: the mean time between the failures so far."""


CONTRACT_VARIABLES = frozenset(value for name, value in vars(Env).items() if name.isupper())
SET_BY_US = "{it} is set by DDPJob itself; remove it"
"""What is said of such a variable wherever a user sets it."""

PACKED_VARIABLES = frozenset(
    {
        Env.NAMESPACE,
        Env.UID,
        Env.INCARNATION,
        Env.STATUS_PORT,
        Env.CONTROL_PORT,
        Env.PEERS,
        Env.SECRET_FILE,
        Env.IN_PLACE_RESTARTS,
        Env.RESTART_WINDOW_SECONDS,
        Env.LEAVE_TO_OPERATOR,
        Env.STALL_TIMEOUT_SECONDS,
        Env.FIRST_STEP_TIMEOUT_SECONDS,
        Env.IMAGE,
        Env.GIT,
        Env.CODE_ARCHIVE,
        Env.CODE_REVISION,
        Env.PREFLIGHT,
        Env.GRACE_PERIOD_SECONDS,
        Env.TOPOLOGY_DOMAIN_FILE,
        Env.CHECKPOINT_REQUEST_FILE,
        Env.HISTORY,
        Env.LAST_INCIDENT,
    }
)
"""The variables that hardly any program except a supervisor reads. They are packed in SUPERVISOR, except those that
the pod's template mentions."""
PACKED_BEHIND_SUPERVISOR = CONTRACT_VARIABLES - {Env.TERMINATION_LOG}
"""The variables that are packed if the container's command is a supervisor. It can unpack all of them, but needs
TERMINATION_LOG in order to report a failure to unpack."""

DEFAULT_MASTER_PORT = 29500
DEFAULT_STATUS_PORT = 29501
DEFAULT_CONTROL_PORT = 29502
TERMINATION_LOG_PATH = "/dev/termination-log"


class ExitCode(IntEnum):
    """Exit codes of the trainer that have a meaning for the engine.

    All other codes from 1 to 199 are the program's own, where 128+n is signal n. The cause is taken from the failure
    report and never guessed from a code below 128, because argparse exits with 2 and torchrun always with 1.
    """

    DONE = 0
    """The process has finished. With `successPolicy: AllRanks` the job succeeds when every rank has finished."""
    APPLICATION_ERROR = 1
    """The training code raised an exception, or a peer was lost; the failure report says which."""
    BAD_INPUT = 2
    """Arguments, data or environment are wrong, or there is no space for a checkpoint."""
    PREFLIGHT_RETRY = 201
    """The supervisor found that the machine or the network is unfit. Another machine may be fine."""
    PREFLIGHT_NEVER = 202
    """The supervisor found a fault that any other machine would have, too."""
    STALLED = 203
    """The supervisor ended a gang that was stalled."""
    PEER_LOST = 204
    """The supervisor exited because another rank failed. The operator decides what follows."""
    SAVED_AND_STOPPED = 205
    """The process was told to stop, and finished its step, saved, and stopped."""


GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "nvidia.com/mig-")
"""The resources that count as GPUs in any cluster. A name that ends in a dash is a prefix."""
