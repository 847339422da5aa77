"""Dividing the samples of a step into the batches that a model takes at a time."""

from collections.abc import Iterator
from typing import Any

import torch
from ddpjob_rank.console import counted
from ddpjob_rank.errors import ConfigError
from torch import Tensor

Batches = Iterator[tuple[Any, Any]]


def shares_of(samples: int, parts: int) -> tuple[float, ...]:
    """What part of a step's samples each of its batches has, if `divided` makes this many of it.

    Raises:
        ConfigError: A batch would have none.
    """
    if parts > samples:
        raise ConfigError(
            f"a process has {counted(samples, 'sample')} per step, too few for --gradient-accumulation-steps {parts}:"
            " use fewer, or a larger --global-batch-size"
        )
    return tuple(len(part) / samples for part in torch.arange(samples).tensor_split(parts))


def divided(steps: Iterator[Tensor], parts: int) -> Iterator[Tensor]:
    """The indices of steps, each divided into this many batches, whose sizes differ by at most one."""
    return (part for step in steps for part in step.tensor_split(parts))
