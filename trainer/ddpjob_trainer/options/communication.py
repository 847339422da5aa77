"""Options for what DistributedDataParallel sends, and when."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from ddpjob_rank.errors import ConfigError
from ddpjob_rank.parsing import positive, positive_float

Hook = Literal["none", "fp16", "bf16", "powersgd"]


@dataclass(frozen=True, kw_only=True, slots=True)
class CommunicationConfig:
    """How gradients are averaged; the names are DistributedDataParallel's. In a world of one nothing is sent."""

    bucket_cap_mb: float | None = None
    """Of gradients that are sent together; None: torch's 25, but 1 for the first ones to be ready."""
    gradient_as_bucket_view: bool = False
    static_graph: bool = False
    find_unused_parameters: bool = False
    comm_hook: Hook = "none"
    """How gradients are made smaller on their way."""
    powersgd_rank: int = 1
    """Of the matrices with which PowerSGD approximates gradients."""
    sync_bn: bool = False
    """Batch normalisation uses the statistics of all processes' samples together."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the group of these options."""
    group = parser.add_argument_group("what processes exchange")
    group.add_argument(
        "--bucket-cap-mb",
        type=positive_float,
        metavar="MB",
        help="gradients are sent in buckets of this size (default: 25, and 1 for the first bucket)",
    )
    group.add_argument(
        "--gradient-as-bucket-view", action="store_true", help="keep gradients in the buckets: saves a copy"
    )
    graph = group.add_mutually_exclusive_group()
    graph.add_argument(
        "--find-unused-parameters",
        action="store_true",
        help="find out in each step which parameters have no gradient",
    )
    graph.add_argument(
        "--static-graph", action="store_true", help="each step uses the same parameters in the same way"
    )
    group.add_argument(
        "--comm-hook",
        choices=get_args(Hook),
        default="none",
        help="send gradients in 16 bits, or as matrices of low rank (default none)",
    )
    group.add_argument("--powersgd-rank", type=positive, metavar="RANK", help="of --comm-hook powersgd (default 1)")
    group.add_argument("--sync-bn", action="store_true", help="batch normalisation over all processes; on GPUs")


def read(flags: argparse.Namespace, _env: Mapping[str, str]) -> CommunicationConfig:
    """What flags ask for.

    Raises:
        ConfigError: They contradict each other.
    """
    if flags.powersgd_rank and flags.comm_hook != "powersgd":
        raise ConfigError("--powersgd-rank is of --comm-hook powersgd, which is not asked for")
    if flags.comm_hook == "powersgd" and (skips := _skips(flags)):
        option, other = skips
        raise ConfigError(
            "--comm-hook powersgd keeps what it left out of one step for the next, and would keep the infinities of a"
            f" step that {option} skips: use {other}"
        )
    return CommunicationConfig(
        bucket_cap_mb=flags.bucket_cap_mb,
        gradient_as_bucket_view=flags.gradient_as_bucket_view,
        static_graph=flags.static_graph,
        find_unused_parameters=flags.find_unused_parameters,
        comm_hook=flags.comm_hook,
        powersgd_rank=flags.powersgd_rank or 1,
        sync_bn=flags.sync_bn,
    )


def _skips(flags: argparse.Namespace) -> tuple[str, str] | None:
    """The option for which steps may be left out, and what to use in its place."""
    if flags.precision == "fp16":
        return "--precision fp16", "--precision bf16"
    return ("--on-divergence skip", "--on-divergence stop") if flags.on_divergence == "skip" else None
