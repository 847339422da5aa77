"""Options for who trains: all processes of a world together, or a single one, with one GPU or several."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

from ddpjob_rank.errors import ConfigError

Mode = Literal["ddp", "data-parallel", "single"]
DDP: Final = "ddp"
DATA_PARALLEL: Final = "data-parallel"


@dataclass(frozen=True, kw_only=True, slots=True)
class ModeConfig:
    """DistributedDataParallel over all processes of the world; or one process with DataParallel, or with neither."""

    mode: Mode = DDP
    device_ids: tuple[int, ...] | None = None
    """GPUs among which DataParallel divides each batch; the first one holds the model. None: all visible ones."""
    output_device: int | None = None
    """GPU on which DataParallel gathers the outputs, and the loss is computed. None: the first one."""

    def check_world(self, world_size: int) -> None:
        """Makes sure that a mode of one process has only one: several would each train a model of their own.

        Raises:
            ConfigError: There are more.
        """
        if self.mode != DDP and world_size > 1:
            raise ConfigError(
                f"--mode {self.mode} trains with one process, but there are to be {world_size}:"
                " start a single one, or train with all of them by --mode ddp"
            )


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the group of these options."""
    group = parser.add_argument_group("who trains")
    group.add_argument(
        "--mode",
        choices=get_args(Mode),
        default=DDP,
        help="ddp: all processes together (default); data-parallel: one process with several GPUs; single: one alone",
    )
    group.add_argument(
        "--device-ids", type=_numbers, metavar="N,N", help="GPUs of data-parallel (default: all that are visible)"
    )
    group.add_argument(
        "--output-device", type=_number, metavar="N", help="GPU on which data-parallel gathers (default: its first)"
    )


def read(flags: argparse.Namespace, _: Mapping[str, str]) -> ModeConfig:
    """What the flags ask for.

    Raises:
        ConfigError: They contradict each other.
    """
    if flags.mode != DATA_PARALLEL and (flags.device_ids is not None or flags.output_device is not None):
        raise ConfigError(
            "--device-ids and --output-device belong to --mode data-parallel; in the other modes each process has one"
            " GPU, the first of those that CUDA_VISIBLE_DEVICES shows it, or the one of its local rank"
        )
    return ModeConfig(mode=flags.mode, device_ids=flags.device_ids, output_device=flags.output_device)


def _numbers(text: str) -> tuple[int, ...]:
    numbers = tuple(_number(part) for part in text.split(","))
    if len(set(numbers)) < len(numbers):
        raise argparse.ArgumentTypeError(f"{text!r} names a GPU twice")
    return numbers


def _number(text: str) -> int:
    if not text.strip().isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not the number of a GPU: they are counted from 0")
    return int(text)
