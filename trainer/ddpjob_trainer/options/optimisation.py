"""Options for how the model learns."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from ddpjob_rank.parsing import below_one, natural, not_negative, positive, positive_float

Schedule = Literal["constant", "steplr", "cosineannealinglr"]
OnDivergence = Literal["stop", "skip", "ignore"]
LR_STEP_SIZE, LR_GAMMA = 30, 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimisationConfig:
    """What is done with gradients. None stands for the task's own default."""

    momentum: float | None = None
    weight_decay: float | None = None
    lr_scheduler: Schedule | None = None
    lr_step_size: int | None = None
    """Epochs between the falls of steplr."""
    lr_gamma: float | None = None
    """What a fall of steplr multiplies the rate by."""
    lr_warmup_epochs: int = 0
    """Epochs in which the rate rises to where the schedule begins."""
    label_smoothing: float | None = None
    gradient_accumulation_steps: int = 1
    """Parts in which each process computes its share of a step, one after another."""
    clip_grad_norm: float | None = None
    """The greatest norm that the gradient of all parameters together may have."""
    model_ema_decay: float | None = None
    """Evaluates an exponential moving average of the weights; this is the part of it that is kept in each step."""
    on_divergence: OnDivergence = "stop"
    """What becomes of a step whose loss or gradients are not finite: it ends the run, is left out, or counts."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the group of these options."""
    group = parser.add_argument_group("how it learns")
    workloads = "(default: the workload's)"
    group.add_argument("--momentum", type=not_negative, help=f"of SGD {workloads}")
    group.add_argument("--weight-decay", type=not_negative, help=f"of SGD {workloads}")
    group.add_argument(
        "--lr-scheduler", choices=get_args(Schedule), help=f"how the rate falls, step by step {workloads}"
    )
    group.add_argument(
        "--lr-step-size", type=positive, help=f"epochs between two falls of steplr (default {LR_STEP_SIZE})"
    )
    group.add_argument("--lr-gamma", type=positive_float, help=f"factor of each fall of steplr (default {LR_GAMMA})")
    group.add_argument(
        "--lr-warmup-epochs", type=natural, default=0, help="epochs in which the rate rises first (default 0)"
    )
    group.add_argument("--label-smoothing", type=below_one, help=f"of the cross entropy {workloads}")
    group.add_argument(
        "--gradient-accumulation-steps",
        type=positive,
        default=1,
        metavar="N",
        help="cut each process's share of a step into N parts and communicate once; --batch-size is a part's",
    )
    group.add_argument("--clip-grad-norm", type=positive_float, metavar="NORM", help="limit the gradient's norm")
    group.add_argument(
        "--model-ema-decay",
        type=below_one,
        metavar="DECAY",
        help="evaluate and export a moving average of the weights that keeps so much of itself per step, like 0.999",
    )
    group.add_argument(
        "--on-divergence",
        choices=get_args(OnDivergence),
        default="stop",
        help="a step whose loss or gradients are infinite or NaN: end the run, leave the step out, or go on with it"
        " (default stop)",
    )


def read(flags: argparse.Namespace, _env: Mapping[str, str]) -> OptimisationConfig:
    """What flags ask for."""
    return OptimisationConfig(
        momentum=flags.momentum,
        weight_decay=flags.weight_decay,
        lr_scheduler=flags.lr_scheduler,
        lr_step_size=flags.lr_step_size,
        lr_gamma=flags.lr_gamma,
        lr_warmup_epochs=flags.lr_warmup_epochs,
        label_smoothing=flags.label_smoothing,
        gradient_accumulation_steps=flags.gradient_accumulation_steps,
        clip_grad_norm=flags.clip_grad_norm,
        model_ema_decay=flags.model_ema_decay,
        on_divergence=flags.on_divergence,
    )
