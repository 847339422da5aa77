"""What a run should do: flags first, the pod's environment second, the workload's own defaults last."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ddpjob_rank.environment import Env
from ddpjob_rank.parsing import Parser, counting_from, natural, positive, positive_float
from ddpjob_rank.places import flags as place
from ddpjob_rank.places.flags import PlaceConfig

from .options import (
    checkpoints,
    communication,
    computing,
    group,
    image_classification,
    loading,
    mode,
    optimisation,
    recording,
)
from .options.checkpoints import CheckpointConfig
from .options.communication import CommunicationConfig
from .options.computing import ComputingConfig
from .options.group import GroupConfig
from .options.image_classification import ImagesConfig
from .options.loading import LoadingConfig
from .options.mode import ModeConfig
from .options.optimisation import OptimisationConfig
from .options.recording import RecordingConfig

DATA = ("digits", "mnist")
OTHER_COMMANDS = "A trained model in use: ddpjob-train export --help, ddpjob-train predict --help."


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    """All that a task may ask about its run. None stands for the task's own default."""

    workload: str = "convnet"
    data: str = "digits"
    data_dir: Path | None = None
    download: bool = False
    epochs: int | None = None
    max_steps: int | None = None
    """Training ends after this many steps, if its epochs have not ended before."""
    batch_size: int | None = None
    """Samples of each process per step; the whole batch grows with the number of processes."""
    global_batch_size: int | None = None
    """Samples of all processes together per step; stays the same whatever their number."""
    lr: float | None = None
    seed: int = 0
    threads: int | None = None
    log_every: int = 10
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
    """Counts the starts of the gang, including those in place."""
    arguments: tuple[str, ...] = field(default=(), compare=False)
    """The command line that all of this was read from."""


def read_config(argv: Sequence[str], env: Mapping[str, str], former: Sequence[str] = ()) -> TrainConfig:
    """The run that the command line and the environment ask for; a former one fills in what is left open.

    Raises:
        ConfigError: A flag or a variable has a value that it cannot have.
        SystemExit: `--help` was asked for.
    """
    parser = train_parser()
    flags = parser.parse_args(argv, parser.parse_args(former))
    return TrainConfig(
        workload=flags.workload,
        data=flags.data,
        data_dir=flags.data_dir,
        download=flags.download,
        epochs=flags.epochs,
        max_steps=flags.max_steps,
        batch_size=flags.batch_size,
        global_batch_size=flags.global_batch_size,
        lr=flags.lr,
        seed=flags.seed,
        threads=flags.threads,
        log_every=flags.log_every,
        place=place.read(flags),
        group=group.read(flags, env),
        mode=mode.read(flags, env),
        checkpoint=checkpoints.read(flags, env),
        images=image_classification.read(flags, env),
        loading=loading.read(flags, env),
        recording=recording.read(flags, env),
        computing=computing.read(flags, env),
        optimisation=optimisation.read(flags, env),
        communication=communication.read(flags, env),
        uid=env.get(Env.UID, ""),
        incarnation=counting_from(0, env.get(Env.INCARNATION, "0"), Env.INCARNATION),
        attempt=_attempt(env),
        arguments=tuple(argv),
    )


def train_parser() -> argparse.ArgumentParser:
    """The flags of `ddpjob-train`."""
    parser = Parser(prog="ddpjob-train", description=__doc__, epilog=OTHER_COMMANDS, allow_abbrev=False)
    task = parser.add_argument_group("what is trained")
    task.add_argument(
        "--workload",
        default="convnet",
        help="convnet, mlp, random, layers, imagenet, or your own as MODULE:ATTRIBUTE",
    )
    task.add_argument("--data", choices=DATA, default="digits", help="data of convnet and mlp (default digits)")
    task.add_argument("--data-dir", type=Path, help="directory of the data set; mnist and imagenet need one")
    task.add_argument("--download", action="store_true", help="download what is missing in --data-dir")
    task.add_argument("--epochs", type=positive, help="passes over the data (default: the workload's)")
    task.add_argument("--max-steps", type=positive, help="end after this many steps, even within an epoch")
    batch = task.add_mutually_exclusive_group()
    batch.add_argument("--batch-size", type=positive, help="samples per process and step (default: the workload's)")
    batch.add_argument("--global-batch-size", type=positive, help="samples per step of all processes together")
    task.add_argument("--lr", type=positive_float, help="learning rate (default: the workload's)")
    task.add_argument("--seed", type=natural, default=0, help="determines initial weights and order (default 0)")
    optimisation.add_flags(parser)
    mode.add_flags(parser)
    image_classification.add_flags(parser)
    loading.add_flags(parser)
    _add_machine(parser)
    for theme in (place, group, computing, communication, checkpoints, recording):
        theme.add_flags(parser)
    return parser


def _add_machine(parser: argparse.ArgumentParser) -> None:
    machine = parser.add_argument_group("how it runs")
    machine.add_argument("--threads", type=positive, help="CPU threads per process (default: its share of the cores)")
    machine.add_argument("--log-every", type=positive, default=10, help="steps between progress lines (default 10)")


def _attempt(env: Mapping[str, str]) -> int:
    name = Env.ATTEMPT if Env.ATTEMPT in env else Env.INCARNATION
    return counting_from(0, env.get(name, "0"), name)
