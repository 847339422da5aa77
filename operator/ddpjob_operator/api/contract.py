"""Names and numbers that operator, pods and users share; a change here is a change of the contract.

`ddpjob_trainer` never imports this module. It has its own copy of what it needs, and one golden file holds both
sides to the same values.
"""

from enum import IntEnum

GROUP = "ddpjob.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "DDPJob"

TRAINER_CONTAINER = "trainer"
RESERVED_VOLUME_PREFIX = "ddpjob-"

MAX_NODES = 4096
"""Largest `nodes`. With it a rank has at most four digits, which bounds the length of a job's name."""

MAX_PROCS_PER_NODE = 64
MAX_CONTAINERS = 8
MAX_ENV = 256

SUFFIX_LENGTH = 5
MAX_NAME_LENGTH = 63 - len(f"-{MAX_NODES - 1}-") - SUFFIX_LENGTH
"""A pod's name, `<job>-<rank>-<suffix>`, is also its hostname: a DNS label of at most 63 characters."""


class Label:
    """Labels on everything that belongs to a job."""

    MANAGED_BY = "app.kubernetes.io/managed-by"
    JOB_NAME = f"{GROUP}/job-name"
    JOB_UID = f"{GROUP}/job-uid"
    RANK = f"{GROUP}/rank"
    INCARNATION = f"{GROUP}/incarnation"


MANAGER = "ddpjob-operator"


class Env:
    """Variables of the trainer container. A template that sets one of them is refused."""

    MASTER_ADDR = "MASTER_ADDR"
    MASTER_PORT = "MASTER_PORT"
    WORLD_SIZE = "WORLD_SIZE"
    NNODES = "NNODES"
    NODE_RANK = "NODE_RANK"
    NPROC_PER_NODE = "NPROC_PER_NODE"

    # With one process per node the pod itself is a process of the world. With more, torchrun or the trainer's own
    # launcher sets these three for each process: RANK is never a node's rank in disguise.
    RANK = "RANK"
    LOCAL_RANK = "LOCAL_RANK"
    LOCAL_WORLD_SIZE = "LOCAL_WORLD_SIZE"

    # torchrun's own arguments (https://docs.pytorch.org/docs/stable/elastic/run.html).
    PET_NNODES = "PET_NNODES"
    PET_NPROC_PER_NODE = "PET_NPROC_PER_NODE"
    PET_NODE_RANK = "PET_NODE_RANK"
    PET_MASTER_ADDR = "PET_MASTER_ADDR"
    PET_MASTER_PORT = "PET_MASTER_PORT"

    NAME = "DDPJOB_NAME"
    NAMESPACE = "DDPJOB_NAMESPACE"
    UID = "DDPJOB_UID"
    INCARNATION = "DDPJOB_INCARNATION"
    BACKEND = "DDPJOB_BACKEND"
    CHECKPOINT_DIR = "DDPJOB_CHECKPOINT_DIR"
    CHECKPOINT_EVERY_STEPS = "DDPJOB_CHECKPOINT_EVERY_STEPS"
    CHECKPOINT_EVERY_SECONDS = "DDPJOB_CHECKPOINT_EVERY_SECONDS"
    CHECKPOINT_KEEP = "DDPJOB_CHECKPOINT_KEEP"
    TERMINATION_LOG = "DDPJOB_TERMINATION_LOG"


CONTRACT_VARIABLES = frozenset(value for name, value in vars(Env).items() if name.isupper())

DEFAULT_MASTER_PORT = 29500
TERMINATION_LOG_PATH = "/dev/termination-log"


class ExitCode(IntEnum):
    """Exit codes of the trainer that the engine gives a meaning.

    Others are the program's own: 1-199, where 128+n is signal n. A cause is read from the failure report and never
    guessed from a code below 128: argparse exits 2 and torchrun always 1.
    """

    DONE = 0
    APPLICATION_ERROR = 1
    BAD_INPUT = 2
    SAVED_AND_STOPPED = 205


GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "nvidia.com/mig-")
"""Resources that count as GPUs; one that ends in a dash is a prefix."""
