"""The options of `ddpjob-train` by theme, as data: each field is a flag, with its default, its type and its help.

None stands for the task's own default. If the environment can set an option too, the function `read_...` after the
type combines both.
"""

import argparse
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Final, Literal, get_args

from ddpjob_rank.environment import Env
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.limits import JOINING_SECONDS, longest
from ddpjob_rank.machine.storage import checked_address, directory_of
from ddpjob_rank.parsing import (
    below_one,
    config_from_flags,
    count_of,
    counting_from,
    natural,
    not_negative,
    option,
    positive,
    positive_float,
)

Environment = Mapping[str, str]

Schedule = Literal["constant", "steplr", "cosineannealinglr"]
OnDivergence = Literal["stop", "skip", "ignore"]
LR_STEP_SIZE, LR_GAMMA = 30, 0.1
WORKLOADS = "(default: the workload's)"


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimisationConfig:
    """How the model learns: optimizer, learning rate schedule, and what is done with gradients."""

    momentum: float | None = option(None, f"momentum of SGD {WORKLOADS}", type=not_negative)
    weight_decay: float | None = option(None, f"weight decay of SGD {WORKLOADS}", type=not_negative)
    lr_scheduler: Schedule | None = option(
        None, f"how the learning rate changes from step to step {WORKLOADS}", choices=get_args(Schedule)
    )
    lr_step_size: int | None = option(
        None,
        f"how many epochs steplr waits before each drop of the learning rate (default: {LR_STEP_SIZE})",
        type=positive,
    )
    lr_gamma: float | None = option(
        None,
        f"factor by which steplr multiplies the learning rate at each drop (default: {LR_GAMMA})",
        type=positive_float,
    )
    lr_warmup_epochs: int = option(0, "warm-up epochs, in which the learning rate rises (default: 0)", type=natural)
    label_smoothing: float | None = option(None, f"label smoothing of the cross entropy {WORKLOADS}", type=below_one)
    gradient_accumulation_steps: int = option(
        1,
        "cut each process's share of a step into N parts and communicate once; --batch-size is the size of a part",
        type=positive,
        metavar="N",
    )
    clip_grad_norm: float | None = option(None, "limit the gradient's norm", type=positive_float, metavar="NORM")
    """The upper bound of the norm of all gradients together."""
    model_ema_decay: float | None = option(
        None,
        "evaluate and export a moving average of the weights; DECAY is the share that it keeps per step, "
        "such as 0.999",
        type=below_one,
        metavar="DECAY",
    )
    on_divergence: OnDivergence = option(
        "stop",
        "a step whose loss or gradients are infinite or NaN: end the run, leave the step out, or go on with it"
        " (default: stop)",
        choices=get_args(OnDivergence),
    )


Mode = Literal["ddp", "data-parallel", "single"]
DDP: Final = "ddp"
DATA_PARALLEL: Final = "data-parallel"


def _gpu(text: str) -> int:
    if not text.strip().isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a GPU number: GPUs are numbered from 0")
    return int(text)


def _gpus(text: str) -> tuple[int, ...]:
    numbers = tuple(_gpu(part) for part in text.split(","))
    if len(set(numbers)) < len(numbers):
        raise argparse.ArgumentTypeError(f"{text!r} names a GPU twice")
    return numbers


@dataclass(frozen=True, kw_only=True, slots=True)
class ModeConfig:
    """Which processes train: all, with DistributedDataParallel; or only one, with or without DataParallel."""

    mode: Mode = option(
        DDP,
        "ddp: all processes together (default); data-parallel: one process with several GPUs; single: one process",
        choices=get_args(Mode),
    )
    device_ids: tuple[int, ...] | None = option(
        None, "GPUs that data-parallel uses (default: all that are visible)", type=_gpus, metavar="N,N"
    )
    """DataParallel divides each batch among these GPUs; the first one holds the model."""
    output_device: int | None = option(
        None,
        "GPU on which data-parallel collects the outputs (default: the first of --device-ids)",
        type=_gpu,
        metavar="N",
    )

    def check_world(self, world_size: int) -> None:
        """Checks that there is only one process if the mode is for one. Several processes would train several models.

        Raises:
            ConfigError: There are several processes.
        """
        if self.mode != DDP and world_size > 1:
            raise ConfigError(
                f"--mode {self.mode} trains with one process, but {world_size} are started: start only one, "
                "or train with all of them by --mode ddp"
            )


def read_mode(flags: argparse.Namespace) -> ModeConfig:
    """The mode that the flags select.

    Raises:
        ConfigError: Flags contradict each other.
    """
    if flags.mode != DATA_PARALLEL and (flags.device_ids is not None or flags.output_device is not None):
        raise ConfigError(
            "--device-ids and --output-device belong to --mode data-parallel; in the other modes each process has one"
            " GPU, the first of those that CUDA_VISIBLE_DEVICES shows it, or the one of its local rank"
        )
    return config_from_flags(ModeConfig, flags)


DEFAULT_ARCH, DEFAULT_SIZE = "resnet18", 224


@dataclass(frozen=True, kw_only=True, slots=True)
class ImagesConfig:
    """What the workload `imagenet` trains: a network of torchvision, and the images that it gets."""

    arch: str = option(
        DEFAULT_ARCH, f"a classification model of torchvision (default: {DEFAULT_ARCH})", "-a", "--arch"
    )
    size: int = option(
        DEFAULT_SIZE,
        f"side of the square that is cut out of an image (default: {DEFAULT_SIZE})",
        "--image-size",
        type=positive,
        metavar="PIXELS",
    )
    skip_broken: bool = option(
        False,
        "replace an image that cannot be decoded by the next one, and report it (default: end the run)",
        "--skip-broken-images",
    )


EXPLAINED_STEPS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadingConfig:
    """How data is loaded while training goes on."""

    workers: int | None = option(
        None,
        "how many processes fetch samples for each rank; 0: only the rank itself (default: the workload's)",
        "-j",
        "--workers",
        type=natural,
    )
    explain_steps: int | None = option(
        None,
        "print which process sees which samples in the first steps of an epoch, and train nothing"
        f" (default: {EXPLAINED_STEPS}); --nodes and --procs-per-node, or --world-size, give another "
        "number of processes",
        "--explain-shards",
        type=positive,
        nargs="?",
        const=EXPLAINED_STEPS,
        metavar="STEPS",
    )


BACKENDS = ("gloo", "nccl", "mpi")
AUTO: Final = "auto"

LOOKING_SECONDS = 60.0
"""Time that the supervisors of a stalled gang need to find out what each rank is doing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupConfig:
    """How the processes communicate, and how long they wait for each other."""

    backend: str | None = option(
        None,
        f"how processes communicate (default: {Env.BACKEND}, else auto: nccl if each process has a GPU, else gloo)",
        choices=(AUTO, *BACKENDS),
    )
    """The name in lower case; None stands for the backend that fits the devices."""
    timeout_seconds: float | None = option(
        None,
        f"how long to wait for other processes (default: {JOINING_SECONDS:.0f}; under a supervisor, a collective"
        " waits until the supervisor has found the rank that holds it up)",
        type=positive,
        metavar="SECONDS",
    )
    verdict_seconds: float | None = None
    """How many seconds may pass without a finished step before the supervisor calls the gang stalled.

    None if this process has no supervisor.
    """

    @property
    def joining_seconds(self) -> float:
        """Seconds to wait for processes that have not joined yet."""
        return self.timeout_seconds or JOINING_SECONDS

    @property
    def collective_seconds(self) -> float:
        """Seconds that a collective waits for the other processes.

        Under a supervisor, this is longer than the supervisor itself waits. Otherwise a rank would give up, and look
        like the cause, before the supervisor has found out which rank keeps all others waiting.
        """
        if self.timeout_seconds or self.verdict_seconds is None:
            return self.joining_seconds
        return self.verdict_seconds + LOOKING_SECONDS


def read_group(flags: argparse.Namespace, env: Environment) -> GroupConfig:
    """The settings of the process group, from flags and environment.

    Raises:
        ConfigError: A variable has an invalid value.
    """
    backend = flags.backend or env.get(Env.BACKEND)
    if backend is not None and backend not in (*BACKENDS, flags.backend):
        raise ConfigError(f"{Env.BACKEND} is {backend!r}: it must be one of {', '.join(BACKENDS)}")
    variables = (Env.STALL_TIMEOUT_SECONDS, Env.FIRST_STEP_TIMEOUT_SECONDS)
    limits = (counting_from(0, env.get(variable, "0"), variable) or None for variable in variables)
    verdict = longest(*limits) if Env.HEARTBEAT in env else None
    return config_from_flags(
        GroupConfig, flags, backend=None if backend == AUTO else backend, verdict_seconds=verdict
    )


Precision = Literal["fp32", "bf16", "fp16"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ComputingConfig:
    """How a step is computed: options that change its speed or its exactness, but not its meaning."""

    precision: Precision = option(
        "fp32", "mixed precision by torch.amp; fp16 scales the loss (default: fp32)", choices=get_args(Precision)
    )
    """The precision of the operations that autocast converts; weights and their updates stay in 32 bits."""
    channels_last: bool = option(False, "use the memory layout that suits convolutions on GPUs")
    compile: bool = option(False, "compile the model; needs a C++ compiler")
    deterministic: bool = option(
        False, "compute the same bits each time on GPUs too; this is slower, and an operation that cannot do so fails"
    )


Hook = Literal["none", "fp16", "bf16", "powersgd"]


@dataclass(frozen=True, kw_only=True, slots=True)
class CommunicationConfig:
    """What processes exchange. Options are named as in DistributedDataParallel. A world of one sends nothing."""

    bucket_cap_mb: float | None = option(
        None,
        "send gradients in buckets of this size (default: 25, and 1 for the first bucket)",
        type=positive_float,
        metavar="MB",
    )
    gradient_as_bucket_view: bool = option(False, "keep gradients in the buckets, which saves a copy")
    find_unused_parameters: bool = option(
        False, "find out in each step which parameters have no gradient", excludes="graph"
    )
    static_graph: bool = option(
        False, "assume that each step uses the same parameters in the same way", excludes="graph"
    )
    comm_hook: Hook = option(
        "none", "send gradients in 16 bits, or as matrices of low rank (default: none)", choices=get_args(Hook)
    )
    powersgd_rank: int = option(
        1, "rank of the matrices of --comm-hook powersgd (default: 1)", type=positive, metavar="RANK", default=None
    )
    sync_bn: bool = option(False, "compute batch statistics over all processes; only on GPUs")


def read_communication(flags: argparse.Namespace) -> CommunicationConfig:
    """The settings of communication that the flags select.

    Raises:
        ConfigError: Flags contradict each other.
    """
    if flags.powersgd_rank and flags.comm_hook != "powersgd":
        raise ConfigError("--powersgd-rank needs --comm-hook powersgd")
    if flags.comm_hook == "powersgd" and (skips := _skips(flags)):
        skipping, other = skips
        raise ConfigError(
            "--comm-hook powersgd keeps what it left out of one step for the next, and would keep the infinities of a"
            f" step that {skipping} skips: use {other}"
        )
    return config_from_flags(CommunicationConfig, flags, powersgd_rank=flags.powersgd_rank or 1)


def _skips(flags: argparse.Namespace) -> tuple[str, str] | None:
    """The flag that lets steps be skipped, and the one to use in its place; None if the flags let none be skipped."""
    if flags.precision == "fp16":
        return "--precision fp16", "--precision bf16"
    return ("--on-divergence skip", "--on-divergence stop") if flags.on_divergence == "skip" else None


DEFAULT_KEEP = 3
Seconds = float | Literal["auto"]
"""An interval in seconds. `auto` is the interval that costs the least time, given the costs of saves and failures."""


def _interval(text: str) -> Seconds:
    if text.lower() == AUTO:
        return AUTO
    try:
        return positive_float(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, nor auto") from None


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointConfig:
    """Where and when to save checkpoints. The end of training is always saved."""

    directory: Path | str = option(
        MISSING,
        "where to save and resume: a directory, or the URL of an object store, such as s3://BUCKET/PATH; without it"
        " nothing is saved",
        "--checkpoint-dir",
        default=None,
    )
    """A path, or a URL."""
    every_steps: int | None = option(
        None,
        "steps between two saves (default: save at the end of each epoch)",
        "--checkpoint-every-steps",
        type=positive,
        excludes="interval",
    )
    every_seconds: Seconds | None = option(
        None,
        "seconds between two saves; auto: the interval that costs the least time",
        "--checkpoint-every-seconds",
        type=_interval,
        excludes="interval",
    )
    keep: int = option(
        DEFAULT_KEEP,
        f"how many checkpoints to keep (default: {DEFAULT_KEEP})",
        "--checkpoint-keep",
        type=positive,
        default=None,
    )
    """Older checkpoints are removed when a new one has been saved."""
    start_over: bool = option(
        False, "begin at step 0 if no checkpoint in --checkpoint-dir can be used (default: fail)"
    )
    allow_other_data: bool = option(
        False, "go on from a checkpoint although --seed or the data has changed since it was saved (default: fail)"
    )
    mean_time_to_failure: float | None = None
    """Mean seconds between failures of this job, for the automatic interval; None if unknown."""


def read_checkpoint(flags: argparse.Namespace, env: Environment) -> CheckpointConfig | None:
    """Where and when to save, from flags and environment; None if nothing is saved.

    Raises:
        ConfigError: A variable has an invalid value, or a flag needs a directory and none is given.
    """
    directory = flags.checkpoint_dir or env.get(Env.CHECKPOINT_DIR)
    if not directory:
        if flags.checkpoint_every_steps or flags.checkpoint_every_seconds or flags.checkpoint_keep:
            raise ConfigError("the options --checkpoint-* need a directory: name one with --checkpoint-dir")
        for permission in ("start_over", "allow_other_data"):
            if getattr(flags, permission):
                name = permission.replace("_", "-")
                raise ConfigError(f"--{name} needs a directory: name one with --checkpoint-dir")
        return None
    every_steps, every_seconds = flags.checkpoint_every_steps, flags.checkpoint_every_seconds
    if every_steps is None and every_seconds is None:
        every_steps = count_of(env, Env.CHECKPOINT_EVERY_STEPS)
        every_seconds = _seconds(env, Env.CHECKPOINT_EVERY_SECONDS)
    return config_from_flags(
        CheckpointConfig,
        flags,
        directory=checked_address(directory),
        every_steps=every_steps,
        every_seconds=every_seconds,
        keep=flags.checkpoint_keep or count_of(env, Env.CHECKPOINT_KEEP) or DEFAULT_KEEP,
        mean_time_to_failure=count_of(env, Env.MEAN_TIME_TO_FAILURE),
    )


def _seconds(env: Environment, name: str) -> Seconds | None:
    if env.get(name, "").lower() == AUTO:
        return AUTO
    try:
        return count_of(env, name)
    except ConfigError as error:
        raise ConfigError(f"{error}, or Auto") from None


METRICS = "metrics"
"""Name of the directory for metrics, within the checkpoint directory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordingConfig:
    """Where rank 0 records metrics."""

    directory: Path | None = option(
        None,
        f"where rank 0 writes metrics.jsonl (default: {METRICS} in --checkpoint-dir, where that is a directory)",
        "--log-dir",
        type=Path,
    )
    """None if nothing is recorded."""


def read_recording(flags: argparse.Namespace, env: Environment) -> RecordingConfig:
    """Where metrics are recorded: in `--log-dir` or, by default, in a subdirectory of the checkpoint directory."""
    checkpoints = directory_of(flags.checkpoint_dir or env.get(Env.CHECKPOINT_DIR))
    return RecordingConfig(directory=flags.log_dir or (checkpoints / METRICS if checkpoints else None))
