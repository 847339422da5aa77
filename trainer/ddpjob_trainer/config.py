"""What a run is asked to do: flags first, the pod's environment second, the workload's own defaults last."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NoReturn

from .environment import Env
from .errors import ConfigError

BACKENDS = ("gloo", "nccl")
DATA = ("digits", "mnist")
DEFAULT_KEEP = 3
DEFAULT_TIMEOUT_SECONDS = 600
AUTO: Final = "auto"
Seconds = float | Literal["auto"]
"""An interval, or the one that loses least by what was observed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointConfig:
    """Where and when to save. Without an interval: at the end of each epoch. Always at the end of training."""

    directory: Path
    every_steps: int | None = None
    every_seconds: Seconds | None = None
    keep: int = DEFAULT_KEEP
    """How many checkpoints stay; older ones are removed once a new one is in place."""
    mean_time_to_failure: float | None = None
    """Of this job, in seconds, for the automatic interval; None: not known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    """All that a task may ask about the run that it is for. None stands for the task's own default."""

    workload: str = "convnet"
    data: str = "digits"
    data_dir: Path | None = None
    download: bool = False
    epochs: int | None = None
    batch_size: int | None = None
    """Samples of each process per step; the whole batch grows with the number of processes."""
    global_batch_size: int | None = None
    """Samples of all processes together per step; stays the same whatever their number."""
    lr: float | None = None
    seed: int = 0
    threads: int | None = None
    log_every: int = 10
    timeout_seconds: int = DEFAULT_TIMEOUT_SECONDS
    backend: str | None = None
    """Lower case; None: nccl where each process has a GPU, else gloo."""
    checkpoint: CheckpointConfig | None = None
    uid: str = ""
    incarnation: int = 0
    attempt: int = 0
    """Counts the starts of the gang, also those in place."""


def read_config(argv: Sequence[str], env: Mapping[str, str]) -> TrainConfig:
    """The run that the command line and the environment ask for.

    Raises:
        ConfigError: A flag or a variable has a value that it cannot have.
        SystemExit: `--help` was asked for.
    """
    flags = _parser().parse_args(argv)
    return TrainConfig(
        workload=flags.workload,
        data=flags.data,
        data_dir=flags.data_dir,
        download=flags.download,
        epochs=flags.epochs,
        batch_size=flags.batch_size,
        global_batch_size=flags.global_batch_size,
        lr=flags.lr,
        seed=flags.seed,
        threads=flags.threads,
        log_every=flags.log_every,
        timeout_seconds=flags.timeout_seconds,
        backend=flags.backend or _backend(env),
        checkpoint=_checkpoint(flags, env),
        uid=env.get(Env.UID, ""),
        incarnation=counting_from(0, env.get(Env.INCARNATION, "0"), Env.INCARNATION),
        attempt=_attempt(env),
    )


def _attempt(env: Mapping[str, str]) -> int:
    name = Env.ATTEMPT if Env.ATTEMPT in env else Env.INCARNATION
    return counting_from(0, env.get(name, "0"), name)


def _backend(env: Mapping[str, str]) -> str | None:
    backend = env.get(Env.BACKEND)
    if backend is not None and backend not in BACKENDS:
        raise ConfigError(f"{Env.BACKEND} is {backend!r}: it must be one of {', '.join(BACKENDS)}")
    return backend


def _checkpoint(flags: argparse.Namespace, env: Mapping[str, str]) -> CheckpointConfig | None:
    directory = flags.checkpoint_dir or env.get(Env.CHECKPOINT_DIR)
    if not directory:
        if flags.checkpoint_every_steps or flags.checkpoint_every_seconds or flags.checkpoint_keep:
            raise ConfigError("--checkpoint-... without a directory: name it with --checkpoint-dir")
        return None
    every_steps, every_seconds = flags.checkpoint_every_steps, flags.checkpoint_every_seconds
    if every_steps is None and every_seconds is None:
        every_steps = _count(env, Env.CHECKPOINT_EVERY_STEPS)
        every_seconds = _seconds(env, Env.CHECKPOINT_EVERY_SECONDS)
    return CheckpointConfig(
        directory=Path(directory),
        every_steps=every_steps,
        every_seconds=every_seconds,
        keep=flags.checkpoint_keep or _count(env, Env.CHECKPOINT_KEEP) or DEFAULT_KEEP,
        mean_time_to_failure=_count(env, Env.MEAN_TIME_TO_FAILURE),
    )


def _seconds(env: Mapping[str, str], name: str) -> Seconds | None:
    if env.get(name, "").lower() == AUTO:
        return AUTO
    try:
        return _count(env, name)
    except ConfigError as error:
        raise ConfigError(f"{error}, or Auto") from None


def _count(env: Mapping[str, str], name: str) -> int | None:
    return counting_from(1, env[name], name) if name in env else None


def counting_from(least: int, text: str, name: str) -> int:
    """The whole number that a variable holds.

    Raises:
        ConfigError: It is none, or less than that.
    """
    if not text.isdecimal() or int(text) < least:
        raise ConfigError(f"{name} is {text!r}: it must be a whole number of at least {least}")
    return int(text)


class Parser(argparse.ArgumentParser):
    """Raises where argparse would print its usage and exit."""

    def error(self, message: str) -> NoReturn:
        """A mistake of the user."""
        raise ConfigError(f"{message} (see {self.prog} --help)")


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="ddpjob-train", description=__doc__, allow_abbrev=False)
    task = parser.add_argument_group("what is trained")
    task.add_argument("--workload", default="convnet", help="convnet, mlp, or your own as MODULE:ATTRIBUTE")
    task.add_argument("--data", choices=DATA, default="digits", help="data of convnet and mlp (default digits)")
    task.add_argument("--data-dir", type=Path, help="directory of the data set; mnist needs one")
    task.add_argument("--download", action="store_true", help="fetch what is missing in --data-dir")
    task.add_argument("--epochs", type=_positive, help="passes over the data (default: the workload's)")
    batch = task.add_mutually_exclusive_group()
    batch.add_argument("--batch-size", type=_positive, help="samples per process and step (default: the workload's)")
    batch.add_argument("--global-batch-size", type=_positive, help="samples per step of all processes together")
    task.add_argument("--lr", type=_positive_float, help="learning rate (default: the workload's)")
    task.add_argument("--seed", type=_natural, default=0, help="decides initial weights and order (default 0)")
    _add_machine(parser.add_argument_group("how it runs"))
    _add_checkpoints(parser.add_argument_group("checkpoints"))
    return parser


def _add_machine(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--backend", choices=BACKENDS, help=f"default: {Env.BACKEND}, else nccl with GPUs, else gloo")
    group.add_argument("--threads", type=_positive, help="CPU threads per process (default: its share of the cores)")
    group.add_argument("--log-every", type=_positive, default=10, help="steps between progress lines (default 10)")
    group.add_argument(
        "--timeout-seconds",
        type=_positive,
        default=DEFAULT_TIMEOUT_SECONDS,
        help=f"how long to wait for the other processes (default {DEFAULT_TIMEOUT_SECONDS})",
    )


def _add_checkpoints(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--checkpoint-dir", type=Path, help="where to save and resume; none: nothing is saved")
    interval = group.add_mutually_exclusive_group()
    interval.add_argument("--checkpoint-every-steps", type=_positive, help="default: at the end of each epoch")
    interval.add_argument("--checkpoint-every-seconds", type=_interval, help="as above; auto: what loses least time")
    group.add_argument("--checkpoint-keep", type=_positive, help=f"how many stay (default {DEFAULT_KEEP})")


def _natural(text: str) -> int:
    return _at_least(0, text)


def _positive(text: str) -> int:
    return _at_least(1, text)


def _at_least(least: int, text: str) -> int:
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
    return int(text)


def _interval(text: str) -> Seconds:
    if text.lower() == AUTO:
        return AUTO
    try:
        return _positive_float(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, nor auto") from None


def _positive_float(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value
