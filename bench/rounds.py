"""Measures in rounds, in a training of two processes over gloo. Other load then affects all parts of a round."""

import argparse
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from multiprocessing import get_context
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Protocol

import torch
import torch.distributed as dist
from ddpjob_operator.local.machine import free_port
from ddpjob_rank.world import World
from torch.multiprocessing.spawn import spawn

from tests.training.ranks import world

RANKS = 2


class Bench(Protocol):
    """One process of the training."""

    def round(self) -> Any:
        """Measures each part once. All processes start each part together."""


@contextmanager
def flags_of(description: str | None, megabytes: int) -> Iterator[argparse.Namespace]:
    """The flags of the command line, with a temporary directory. `megabytes` is the default size of the state."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--megabytes", type=int, default=megabytes, help=f"of state (default {megabytes})")
    parser.add_argument("--directory", type=Path, default=Path(), help="on the disk to write to (default: here)")
    flags = parser.parse_args()
    flags.directory = Path(mkdtemp(prefix="bench-checkpoint-", dir=flags.directory))
    try:
        yield flags
    finally:
        shutil.rmtree(flags.directory)


def measured(bench: Callable[[World, Path, int], Bench], flags: argparse.Namespace) -> list[Any]:
    """What rank 0 has measured in each round. `bench` gets a directory, and the size of the state in bytes."""
    found = get_context("spawn").SimpleQueue()
    spawn(_rank, (free_port(), bench, flags, found), RANKS)
    return [found.get() for _ in range(flags.rounds)]


def _rank(number: int, port: int, bench: Callable[..., Bench], flags: argparse.Namespace, found: Any) -> None:
    os.environ.update(world(number, RANKS, port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    mine = bench(World(number, 0, RANKS, 1), flags.directory, flags.megabytes * 1_000_000)
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):  # The trainer prints a line for each save.
        mine.round()  # Not counted: the first round includes one-time costs.
        for _ in range(flags.rounds):
            figures = mine.round()
            if number == 0:
                found.put(figures)
    dist.barrier()
    dist.destroy_process_group()
