"""Learning rate schedules that advance with each step. Each rate depends only on the number of the step.

Thus a run that resumes with another number of steps, because the number of processes or epochs has changed, follows
its new curve immediately.
"""

import math
from collections.abc import Callable

from ddpjob_rank.errors import ConfigError
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from .options import LR_GAMMA, LR_STEP_SIZE, OptimisationConfig, Schedule

WARMUP_BEGINS = 0.01
"""The fraction of the learning rate at which a warm-up begins."""

Curve = Callable[[int], float]
"""Maps the number of finished steps to the factor of the optimizer's learning rate in the next step."""


def constant(_: int) -> float:
    """A curve that keeps the rate constant."""
    return 1.0


def cosine(total_steps: int) -> Curve:
    """A curve that is half a cosine, from 1 at the first step to 0 after the last."""
    return lambda step: (1 + math.cos(math.pi * min(1.0, step / total_steps))) / 2


def falls(step_size: int, gamma: float) -> Curve:
    """A curve that multiplies the rate by `gamma` after every `step_size` steps."""
    return lambda step: gamma ** (step // step_size)


def schedule(optimizer: Optimizer, curve: Curve, warmup_steps: int = 0) -> LambdaLR:
    """A schedule that is advanced after each step: a linear rise over `warmup_steps`, then the whole `curve`."""

    def factor(step: int) -> float:
        if step < warmup_steps:
            return WARMUP_BEGINS + (1 - WARMUP_BEGINS) * step / warmup_steps
        return curve(step - warmup_steps)

    return LambdaLR(optimizer, factor)


def scheduled(
    optimizer: Optimizer, asked: OptimisationConfig, default: Schedule, total_steps: int, steps_per_epoch: int
) -> LRScheduler | None:
    """The requested schedule, or the default one; None if the rate is constant.

    Raises:
        ConfigError: An option belongs to another schedule.
    """
    kind = asked.lr_scheduler or default
    if kind != "steplr" and (asked.lr_step_size or asked.lr_gamma):
        raise ConfigError(f"--lr-step-size and --lr-gamma need --lr-scheduler steplr, but it is {kind}")
    warmup_steps = asked.lr_warmup_epochs * steps_per_epoch
    match kind:
        case "constant":
            return schedule(optimizer, constant, warmup_steps) if warmup_steps else None
        case "steplr":
            step_size = (asked.lr_step_size or LR_STEP_SIZE) * steps_per_epoch
            return schedule(optimizer, falls(step_size, asked.lr_gamma or LR_GAMMA), warmup_steps)
        case "cosineannealinglr":
            return schedule(optimizer, cosine(max(1, total_steps - warmup_steps)), warmup_steps)
