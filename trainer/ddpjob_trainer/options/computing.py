"""Options for how a step is computed: in which numbers, in which memory layout, by which code."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

Precision = Literal["fp32", "bf16", "fp16"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ComputingConfig:
    """What makes a step faster without changing its meaning."""

    precision: Precision = "fp32"
    """Of the operations that autocast converts; weights and their updates stay in 32 bits."""
    channels_last: bool = False
    """Images and the weights of convolutions have their channels side by side."""
    compile: bool = False
    """The model is compiled by torch.compile."""
    deterministic: bool = False
    """Operations that may differ from run to run are replaced by slower ones, or refused."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the group of these options."""
    group = parser.add_argument_group("how a step is computed")
    group.add_argument(
        "--precision",
        choices=get_args(Precision),
        default="fp32",
        help="mixed precision by torch.amp; fp16 scales the loss (default fp32)",
    )
    group.add_argument("--channels-last", action="store_true", help="memory layout that suits convolutions on GPUs")
    group.add_argument("--compile", action="store_true", help="compile the model; needs a C++ compiler")
    group.add_argument(
        "--deterministic",
        action="store_true",
        help="compute the same bits each time on GPUs too: slower, and an operation that cannot do so is an error",
    )


def read(flags: argparse.Namespace, _env: Mapping[str, str]) -> ComputingConfig:
    """What flags ask for."""
    return ComputingConfig(
        precision=flags.precision,
        channels_last=flags.channels_last,
        compile=flags.compile,
        deterministic=flags.deterministic,
    )
