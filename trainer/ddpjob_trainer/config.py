"""What a run is asked to do: flags first, the pod's environment second, the workload's own defaults last."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .environment import Env
from .errors import ConfigError
from .options import checkpoints, recording
from .options.checkpoints import CheckpointConfig
from .options.parsing import Parser, counting_from, natural, positive, positive_float
from .options.recording import RecordingConfig

BACKENDS = ("gloo", "nccl")
DATA = ("digits", "mnist")
DEFAULT_TIMEOUT_SECONDS = 600


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
    recording: RecordingConfig = field(default_factory=RecordingConfig)
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
    flags = train_parser().parse_args(argv)
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
        checkpoint=checkpoints.read(flags, env),
        recording=recording.read(flags, env),
        uid=env.get(Env.UID, ""),
        incarnation=counting_from(0, env.get(Env.INCARNATION, "0"), Env.INCARNATION),
        attempt=_attempt(env),
    )


def train_parser() -> argparse.ArgumentParser:
    """The flags of `ddpjob-train`."""
    parser = Parser(prog="ddpjob-train", description=__doc__, allow_abbrev=False)
    task = parser.add_argument_group("what is trained")
    task.add_argument("--workload", default="convnet", help="convnet, mlp, or your own as MODULE:ATTRIBUTE")
    task.add_argument("--data", choices=DATA, default="digits", help="data of convnet and mlp (default digits)")
    task.add_argument("--data-dir", type=Path, help="directory of the data set; mnist needs one")
    task.add_argument("--download", action="store_true", help="fetch what is missing in --data-dir")
    task.add_argument("--epochs", type=positive, help="passes over the data (default: the workload's)")
    batch = task.add_mutually_exclusive_group()
    batch.add_argument("--batch-size", type=positive, help="samples per process and step (default: the workload's)")
    batch.add_argument("--global-batch-size", type=positive, help="samples per step of all processes together")
    task.add_argument("--lr", type=positive_float, help="learning rate (default: the workload's)")
    task.add_argument("--seed", type=natural, default=0, help="decides initial weights and order (default 0)")
    _add_machine(parser)
    checkpoints.add_flags(parser)
    recording.add_flags(parser)
    return parser


def _add_machine(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how it runs")
    group.add_argument("--backend", choices=BACKENDS, help=f"default: {Env.BACKEND}, else nccl with GPUs, else gloo")
    group.add_argument("--threads", type=positive, help="CPU threads per process (default: its share of the cores)")
    group.add_argument("--log-every", type=positive, default=10, help="steps between progress lines (default 10)")
    group.add_argument(
        "--timeout-seconds",
        type=positive,
        default=DEFAULT_TIMEOUT_SECONDS,
        help=f"how long to wait for the other processes (default {DEFAULT_TIMEOUT_SECONDS})",
    )


def _attempt(env: Mapping[str, str]) -> int:
    name = Env.ATTEMPT if Env.ATTEMPT in env else Env.INCARNATION
    return counting_from(0, env.get(name, "0"), name)


def _backend(env: Mapping[str, str]) -> str | None:
    backend = env.get(Env.BACKEND)
    if backend is not None and backend not in BACKENDS:
        raise ConfigError(f"{Env.BACKEND} is {backend!r}: it must be one of {', '.join(BACKENDS)}")
    return backend
