"""Options for how samples are fetched."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass

from ddpjob_rank.parsing import natural, positive

EXPLAINED_STEPS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadingConfig:
    """Who fetches samples while training goes on."""

    workers: int | None = None
    """Processes of each rank that fetch and decode samples; 0: the rank itself does; None: the workload's default."""
    explain_steps: int | None = None
    """Instead of training, print which process sees which samples in this many steps; None: train."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the group of these options."""
    group = parser.add_argument_group("how data is loaded")
    group.add_argument(
        "-j",
        "--workers",
        type=natural,
        help="processes of each rank that fetch samples; 0: the rank itself (default: the workload's)",
    )
    group.add_argument(
        "--explain-shards",
        type=positive,
        nargs="?",
        const=EXPLAINED_STEPS,
        metavar="STEPS",
        help="print which process sees which samples in the first steps of an epoch, and train nothing"
        f" (default {EXPLAINED_STEPS}); for as many processes as there are, or as --nodes and --procs-per-node, or"
        " --world-size say",
    )


def read(flags: argparse.Namespace, _env: Mapping[str, str]) -> LoadingConfig:
    """What flags ask for."""
    return LoadingConfig(workers=flags.workers, explain_steps=flags.explain_shards)
