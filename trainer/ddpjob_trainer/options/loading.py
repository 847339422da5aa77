"""Options of how samples are fetched."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass

from .parsing import natural


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadingConfig:
    """Who fetches samples, beside training."""

    workers: int | None = None
    """Processes of each rank that fetch and decode samples; 0: the rank itself does; None: the workload's default."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the group of these options."""
    group = parser.add_argument_group("how data is loaded")
    group.add_argument(
        "-j",
        "--workers",
        type=natural,
        help="processes of each rank that fetch samples; 0: the rank itself (default: the workload's)",
    )


def read(flags: argparse.Namespace, _env: Mapping[str, str]) -> LoadingConfig:
    """What flags ask for."""
    return LoadingConfig(workers=flags.workers)
