"""The settings of a run: flags win over the pod's environment, which wins over the workload's own defaults."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ddpjob_rank.environment import Env
from ddpjob_rank.parsing import (
    Parser,
    add_options,
    config_from_flags,
    counting_from,
    natural,
    option,
    positive,
    positive_float,
)
from ddpjob_rank.places.flags import PlaceConfig, read_place

from . import options
from .options import (
    CheckpointConfig,
    CommunicationConfig,
    ComputingConfig,
    GroupConfig,
    ImagesConfig,
    LoadingConfig,
    ModeConfig,
    OptimisationConfig,
    RecordingConfig,
)

DATA = ("digits", "mnist")
PURPOSE = (
    "Train a model with DistributedDataParallel, in one process per rank. Flags win over the pod's environment, which"
    " wins over the workload's own defaults."
)
OTHER_COMMANDS = "To use a trained model: ddpjob-train export --help, ddpjob-train predict --help."


TASK = ("workload", "data", "data_dir", "download", "epochs", "max_steps")
LEARNING = ("batch_size", "global_batch_size", "lr", "seed")
MACHINE = ("threads", "log_every")


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    """The settings of a run, which its task can read. None means not set; the flag's help names the default."""

    workload: str = option("convnet", "convnet, mlp, random, layers, imagenet, or your own as MODULE:ATTRIBUTE")
    data: str = option("digits", "data set for convnet and mlp (default: digits)", choices=DATA)
    data_dir: Path | None = option(None, "directory of the data set; mnist and imagenet need one", type=Path)
    download: bool = option(False, "download what is missing in --data-dir")
    epochs: int | None = option(None, "passes over the data (default: the workload's)", type=positive)
    max_steps: int | None = option(None, "end after this many steps, even within an epoch", type=positive)
    batch_size: int | None = option(
        None, "samples per process and step (default: the workload's)", type=positive, excludes="batch"
    )
    """The global batch grows with the number of processes."""
    global_batch_size: int | None = option(
        None, "samples per step, across all processes", type=positive, excludes="batch"
    )
    """The global batch stays the same, whatever the number of processes."""
    lr: float | None = option(None, "learning rate (default: the workload's)", type=positive_float)
    seed: int = option(0, "seed of the initial weights and of the order of samples (default: 0)", type=natural)
    threads: int | None = option(None, "CPU threads per process (default: its share of the cores)", type=positive)
    log_every: int = option(10, "steps between progress lines (default: 10)", type=positive)
    place: PlaceConfig = field(default_factory=PlaceConfig)
    group: GroupConfig = field(default_factory=GroupConfig)
    mode: ModeConfig = field(default_factory=ModeConfig)
    checkpoint: CheckpointConfig | None = None
    images: ImagesConfig = field(default_factory=ImagesConfig)
    loading: LoadingConfig = field(default_factory=LoadingConfig)
    recording: RecordingConfig = field(default_factory=RecordingConfig)
    computing: ComputingConfig = field(default_factory=ComputingConfig)
    optimisation: OptimisationConfig = field(default_factory=OptimisationConfig)
    communication: CommunicationConfig = field(default_factory=CommunicationConfig)
    uid: str = ""
    incarnation: int = 0
    attempt: int = 0
    """The number of this start of the gang, including restarts in place; 0 outside a job."""
    arguments: tuple[str, ...] = field(default=(), compare=False)
    """The command line that these settings were read from."""


def read_config(argv: Sequence[str], env: Mapping[str, str], former: Sequence[str] = ()) -> TrainConfig:
    """Reads the settings from a command line and the environment.

    Flags that `argv` lacks are taken from `former`, the command line of an earlier run.

    Raises:
        ConfigError: A flag or a variable has an invalid value.
        SystemExit: `--help` was asked for.
    """
    parser = train_parser()
    flags = parser.parse_args(argv, parser.parse_args(former))
    return config_from_flags(
        TrainConfig,
        flags,
        place=read_place(flags),
        group=options.read_group(flags, env),
        mode=options.read_mode(flags),
        checkpoint=options.read_checkpoint(flags, env),
        images=config_from_flags(ImagesConfig, flags),
        loading=config_from_flags(LoadingConfig, flags),
        recording=options.read_recording(flags, env),
        computing=config_from_flags(ComputingConfig, flags),
        optimisation=config_from_flags(OptimisationConfig, flags),
        communication=options.read_communication(flags),
        uid=env.get(Env.UID, ""),
        incarnation=counting_from(0, env.get(Env.INCARNATION, "0"), Env.INCARNATION),
        attempt=_attempt(env),
        arguments=tuple(argv),
    )


def train_parser() -> argparse.ArgumentParser:
    """The flags of `ddpjob-train`."""
    parser = Parser(
        prog="ddpjob-train",
        usage="%(prog)s [OPTION ...]",
        description=PURPOSE,
        epilog=OTHER_COMMANDS,
        allow_abbrev=False,
    )
    add_options(parser, "what is trained", TrainConfig, *TASK, *LEARNING)
    add_options(parser, "how it learns", OptimisationConfig)
    add_options(parser, "who trains", ModeConfig)
    add_options(parser, "what imagenet trains", ImagesConfig)
    add_options(parser, "how data is loaded", LoadingConfig)
    add_options(parser, "how it runs", TrainConfig, *MACHINE)
    add_options(parser, "where it runs, without an operator", PlaceConfig)
    add_options(parser, "how the processes work together", GroupConfig)
    add_options(parser, "how a step is computed", ComputingConfig)
    add_options(parser, "what processes exchange", CommunicationConfig)
    add_options(parser, "checkpoints", CheckpointConfig)
    add_options(parser, "what is recorded", RecordingConfig)
    return parser


def _attempt(env: Mapping[str, str]) -> int:
    name = Env.ATTEMPT if Env.ATTEMPT in env else Env.INCARNATION
    return counting_from(0, env.get(name, "0"), name)
