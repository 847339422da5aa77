"""Divides the samples of a step into batches, which the model gets one after another."""

from collections.abc import Iterator
from typing import Any

import torch
from ddpjob_rank.console import counted
from ddpjob_rank.errors import ConfigError
from torch import Tensor

Batches = Iterator[tuple[Any, Any]]


def shares_of(samples: int, parts: int) -> tuple[float, ...]:
    """The fraction of a step's samples that is in each batch if `divided` cuts the step into `parts` batches.

    Raises:
        ConfigError: A batch would have no samples.
    """
    if parts > samples:
        raise ConfigError(
            f"a process has {counted(samples, 'sample')} per step, too few for --gradient-accumulation-steps {parts}:"
            " use fewer, or a larger --global-batch-size"
        )
    return tuple(len(part) / samples for part in torch.arange(samples).tensor_split(parts))


def divided(steps: Iterator[Tensor], parts: int) -> Iterator[Tensor]:
    """Divides the indices of each step into `parts` batches, whose sizes differ by at most one."""
    return (part for step in steps for part in step.tensor_split(parts))
