"""The options of `ddpjob-train` by theme, as data: each field is a flag, with its default, its kind and its help.

None stands for the task's own default. What flags and environment say together is in the functions behind the types.
"""

import argparse
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Final, Literal, get_args

from ddpjob_rank.environment import Env
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.limits import JOINING_SECONDS, longest
from ddpjob_rank.parsing import (
    below_one,
    chosen,
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
    """How the model learns: what is done with gradients."""

    momentum: float | None = option(None, f"of SGD {WORKLOADS}", type=not_negative)
    weight_decay: float | None = option(None, f"of SGD {WORKLOADS}", type=not_negative)
    lr_scheduler: Schedule | None = option(
        None, f"how the rate falls, step by step {WORKLOADS}", choices=get_args(Schedule)
    )
    lr_step_size: int | None = option(
        None, f"epochs between two falls of steplr (default {LR_STEP_SIZE})", type=positive
    )
    lr_gamma: float | None = option(None, f"factor of each fall of steplr (default {LR_GAMMA})", type=positive_float)
    lr_warmup_epochs: int = option(0, "epochs in which the rate rises first (default 0)", type=natural)
    label_smoothing: float | None = option(None, f"of the cross entropy {WORKLOADS}", type=below_one)
    gradient_accumulation_steps: int = option(
        1,
        "cut each process's share of a step into N parts and communicate once; --batch-size is a part's",
        type=positive,
        metavar="N",
    )
    clip_grad_norm: float | None = option(None, "limit the gradient's norm", type=positive_float, metavar="NORM")
    """The bound of the norm over all parameters together."""
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
        " (default stop)",
        choices=get_args(OnDivergence),
    )


Mode = Literal["ddp", "data-parallel", "single"]
DDP: Final = "ddp"
DATA_PARALLEL: Final = "data-parallel"


def _gpu(text: str) -> int:
    if not text.strip().isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not the number of a GPU: they are counted from 0")
    return int(text)


def _gpus(text: str) -> tuple[int, ...]:
    numbers = tuple(_gpu(part) for part in text.split(","))
    if len(set(numbers)) < len(numbers):
        raise argparse.ArgumentTypeError(f"{text!r} names a GPU twice")
    return numbers


@dataclass(frozen=True, kw_only=True, slots=True)
class ModeConfig:
    """Who trains: all processes of the world with DistributedDataParallel; or one, with DataParallel or neither."""

    mode: Mode = option(
        DDP,
        "ddp: all processes together (default); data-parallel: one process with several GPUs; single: one alone",
        choices=get_args(Mode),
    )
    device_ids: tuple[int, ...] | None = option(
        None, "GPUs of data-parallel (default: all that are visible)", type=_gpus, metavar="N,N"
    )
    """DataParallel divides each batch among them; the first one holds the model."""
    output_device: int | None = option(
        None, "GPU on which data-parallel gathers (default: its first)", type=_gpu, metavar="N"
    )

    def check_world(self, world_size: int) -> None:
        """Makes sure that a mode of one process has only one: several would each train a model of their own.

        Raises:
            ConfigError: There are more.
        """
        if self.mode != DDP and world_size > 1:
            raise ConfigError(
                f"--mode {self.mode} trains with one process, but {world_size} are started: start only one, "
                "or train with all of them by --mode ddp"
            )


def read_mode(flags: argparse.Namespace) -> ModeConfig:
    """Who trains.

    Raises:
        ConfigError: Flags contradict each other.
    """
    if flags.mode != DATA_PARALLEL and (flags.device_ids is not None or flags.output_device is not None):
        raise ConfigError(
            "--device-ids and --output-device belong to --mode data-parallel; in the other modes each process has one"
            " GPU, the first of those that CUDA_VISIBLE_DEVICES shows it, or the one of its local rank"
        )
    return chosen(ModeConfig, flags)


DEFAULT_ARCH, DEFAULT_SIZE = "resnet18", 224


@dataclass(frozen=True, kw_only=True, slots=True)
class ImagesConfig:
    """What imagenet trains: a network of torchvision, and its input."""

    arch: str = option(
        DEFAULT_ARCH, f"a classification model of torchvision (default {DEFAULT_ARCH})", "-a", "--arch"
    )
    size: int = option(
        DEFAULT_SIZE,
        f"side of the square that is cut out of an image (default {DEFAULT_SIZE})",
        "--image-size",
        type=positive,
        metavar="PIXELS",
    )
    skip_broken: bool = option(
        False,
        "take the next image in place of one that cannot be decoded, name and count it (default: the run ends)",
        "--skip-broken-images",
    )


EXPLAINED_STEPS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadingConfig:
    """How data is loaded while training goes on."""

    workers: int | None = option(
        None,
        "processes of each rank that fetch samples; 0: the rank itself (default: the workload's)",
        "-j",
        "--workers",
        type=natural,
    )
    explain_steps: int | None = option(
        None,
        "print which process sees which samples in the first steps of an epoch, and train nothing"
        f" (default {EXPLAINED_STEPS}); for the present number of processes, or that of --nodes and "
        "--procs-per-node, or of --world-size",
        "--explain-shards",
        type=positive,
        nargs="?",
        const=EXPLAINED_STEPS,
        metavar="STEPS",
    )


BACKENDS = ("gloo", "nccl", "mpi")
AUTO: Final = "auto"

LOOKING_SECONDS = 60.0
"""From the moment when a gang counts as stalled until its supervisors have looked at all ranks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupConfig:
    """How the processes work together."""

    backend: str | None = option(
        None,
        f"default: {Env.BACKEND}, else auto: nccl where each process has a GPU, else gloo",
        choices=(AUTO, *BACKENDS),
    )
    """Lower case; None: the one that fits the devices."""
    timeout_seconds: float | None = option(
        None,
        f"how long to wait for other processes (default {JOINING_SECONDS:.0f}; under a supervisor a collective"
        " waits until that has found out which rank holds it up)",
        type=positive,
        metavar="SECONDS",
    )
    verdict_seconds: float | None = None
    """After this long without a step, at most, this process's supervisor has found a stall; None: it has none."""

    @property
    def joining_seconds(self) -> float:
        """How long to wait for others that have not come yet."""
        return self.timeout_seconds or JOINING_SECONDS

    @property
    def collective_seconds(self) -> float:
        """How long a collective waits for others.

        If a supervisor watches, longer than it does: a rank that gave up earlier would look like the one to blame,
        while the supervisor is about to find out which one keeps all others waiting.
        """
        if self.timeout_seconds or self.verdict_seconds is None:
            return self.joining_seconds
        return self.verdict_seconds + LOOKING_SECONDS


def read_group(flags: argparse.Namespace, env: Environment) -> GroupConfig:
    """How the processes work together.

    Raises:
        ConfigError: A variable has a value that it cannot have.
    """
    backend = flags.backend or env.get(Env.BACKEND)
    if backend is not None and backend not in (*BACKENDS, flags.backend):
        raise ConfigError(f"{Env.BACKEND} is {backend!r}: it must be one of {', '.join(BACKENDS)}")
    stall = counting_from(0, env.get(Env.STALL_TIMEOUT_SECONDS, "0"), Env.STALL_TIMEOUT_SECONDS)
    verdict = longest(stall or None) if Env.HEARTBEAT in env else None
    return chosen(GroupConfig, flags, backend=None if backend == AUTO else backend, verdict_seconds=verdict)


Precision = Literal["fp32", "bf16", "fp16"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ComputingConfig:
    """How a step is computed: what makes it faster without changing its meaning."""

    precision: Precision = option(
        "fp32", "mixed precision by torch.amp; fp16 scales the loss (default fp32)", choices=get_args(Precision)
    )
    """Of the operations that autocast converts; weights and their updates stay in 32 bits."""
    channels_last: bool = option(False, "memory layout that suits convolutions on GPUs")
    compile: bool = option(False, "compile the model; needs a C++ compiler")
    deterministic: bool = option(
        False, "compute the same bits each time on GPUs too: slower, and an operation that cannot do so is an error"
    )


Hook = Literal["none", "fp16", "bf16", "powersgd"]


@dataclass(frozen=True, kw_only=True, slots=True)
class CommunicationConfig:
    """What processes exchange; the names are DistributedDataParallel's. In a world of one nothing is sent."""

    bucket_cap_mb: float | None = option(
        None,
        "gradients are sent in buckets of this size (default: 25, and 1 for the first bucket)",
        type=positive_float,
        metavar="MB",
    )
    gradient_as_bucket_view: bool = option(False, "keep gradients in the buckets: saves a copy")
    find_unused_parameters: bool = option(
        False, "find out in each step which parameters have no gradient", excludes="graph"
    )
    static_graph: bool = option(False, "each step uses the same parameters in the same way", excludes="graph")
    comm_hook: Hook = option(
        "none", "send gradients in 16 bits, or as matrices of low rank (default none)", choices=get_args(Hook)
    )
    powersgd_rank: int = option(1, "of --comm-hook powersgd (default 1)", type=positive, metavar="RANK", default=None)
    sync_bn: bool = option(False, "batch normalisation over all processes; on GPUs")


def read_communication(flags: argparse.Namespace) -> CommunicationConfig:
    """What processes exchange.

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
    return chosen(CommunicationConfig, flags, powersgd_rank=flags.powersgd_rank or 1)


def _skips(flags: argparse.Namespace) -> tuple[str, str] | None:
    """The option for which steps may be left out, and what to use in its place."""
    if flags.precision == "fp16":
        return "--precision fp16", "--precision bf16"
    return ("--on-divergence skip", "--on-divergence stop") if flags.on_divergence == "skip" else None


DEFAULT_KEEP = 3
Seconds = float | Literal["auto"]
"""An interval, or the one that loses the least according to what was observed."""


def _interval(text: str) -> Seconds:
    if text.lower() == AUTO:
        return AUTO
    try:
        return positive_float(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, nor auto") from None


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointConfig:
    """Checkpoints: where and when to save. Always at the end of training."""

    directory: Path = option(
        MISSING, "where to save and resume; without it nothing is saved", "--checkpoint-dir", type=Path, default=None
    )
    every_steps: int | None = option(
        None, "default: at the end of each epoch", "--checkpoint-every-steps", type=positive, excludes="interval"
    )
    every_seconds: Seconds | None = option(
        None,
        "as above; auto: what loses the least time",
        "--checkpoint-every-seconds",
        type=_interval,
        excludes="interval",
    )
    keep: int = option(
        DEFAULT_KEEP,
        f"how many checkpoints to keep (default {DEFAULT_KEEP})",
        "--checkpoint-keep",
        type=positive,
        default=None,
    )
    """Older ones are removed once a new one is in place."""
    start_over: bool = option(
        False, "begin at step 0 if no checkpoint there can be used (default: fail); has no effect while one can be"
    )
    allow_other_data: bool = option(
        False, "go on from a checkpoint although --seed or the data has changed since it was saved (default: fail)"
    )
    mean_time_to_failure: float | None = None
    """Of this job, in seconds, for the automatic interval; None: not known."""


def read_checkpoint(flags: argparse.Namespace, env: Environment) -> CheckpointConfig | None:
    """Where and when to save; None: nothing is saved.

    Raises:
        ConfigError: A variable has a value that it cannot have, or there is no directory for what is asked.
    """
    directory = flags.checkpoint_dir or env.get(Env.CHECKPOINT_DIR)
    if not directory:
        if flags.checkpoint_every_steps or flags.checkpoint_every_seconds or flags.checkpoint_keep:
            raise ConfigError("--checkpoint-... without a directory: name it with --checkpoint-dir")
        for permission in ("start_over", "allow_other_data"):
            if getattr(flags, permission):
                name = permission.replace("_", "-")
                raise ConfigError(f"--{name} without a directory: name it with --checkpoint-dir")
        return None
    every_steps, every_seconds = flags.checkpoint_every_steps, flags.checkpoint_every_seconds
    if every_steps is None and every_seconds is None:
        every_steps = count_of(env, Env.CHECKPOINT_EVERY_STEPS)
        every_seconds = _seconds(env, Env.CHECKPOINT_EVERY_SECONDS)
    return chosen(
        CheckpointConfig,
        flags,
        directory=Path(directory),
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
"""Name of the directory within that of the checkpoints."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordingConfig:
    """What is recorded, by rank 0."""

    directory: Path | None = option(
        None,
        f"where rank 0 writes metrics.jsonl (default: {METRICS} in --checkpoint-dir, where that is given)",
        "--log-dir",
        type=Path,
    )
    """None: nothing."""


def read_recording(flags: argparse.Namespace, env: Environment) -> RecordingConfig:
    """Where the record of the training is kept."""
    checkpoints = flags.checkpoint_dir or env.get(Env.CHECKPOINT_DIR)
    return RecordingConfig(directory=flags.log_dir or (Path(checkpoints) / METRICS if checkpoints else None))
