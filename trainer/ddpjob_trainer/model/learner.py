"""The model and everything else that training changes, and how a step changes them."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from ddpjob_rank.console import listed, warn
from ddpjob_rank.errors import ConfigError
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import AveragedModel

from ddpjob_trainer.config import TrainConfig
from ddpjob_trainer.options import OnDivergence
from ddpjob_trainer.task import Task

from . import amp
from .compression import PowerSGD
from .divergence import Gradients
from .masking import Masked
from .parallel import averaged, unused_parameters

NAMED = 3


@dataclass(frozen=True, slots=True)
class Learner:
    """A model, and everything else that a step changes."""

    model: nn.Module
    """The model without a wrapper, so that its parameters have the task's own names."""
    wrapped: nn.Module
    """The model that a training step calls. It is wrapped if gradients have to be exchanged."""
    optimizer: Optimizer
    scheduler: LRScheduler | None
    scaler: GradScaler | None = None
    """The scaler of the loss; None if the precision is not fp16."""
    average: AveragedModel | None = None
    """The moving average of the weights and buffers."""
    compression: PowerSGD | None = None
    autocast: amp.Autocast = nullcontext
    """Creates the context in which output and loss are computed."""
    on_divergence: OnDivergence = "ignore"
    gradients: Gradients | None = None
    """Checks the gradients for infinite numbers and NaN; None if they are not checked."""

    @property
    def evaluated(self) -> nn.Module:
        """The model to evaluate and to export: the average, if there is one."""
        return self.average.module if self.average else self.model

    def output(self, inputs: Any) -> Any:
        """The output of the model for a batch.

        Raises:
            ConfigError: Some parameters got no gradient in the previous step.
        """
        try:
            return self.wrapped(inputs)
        except RuntimeError as error:
            if mistake := unused_parameters(error, self.model):
                raise mistake from error
            raise

    def no_sync(self) -> AbstractContextManager[object]:
        """A context in which gradients are accumulated and not exchanged."""
        return self.wrapped.no_sync() if isinstance(self.wrapped, DistributedDataParallel) else nullcontext()

    def masked(self) -> Masked | None:
        """Makes a copy with which the next step can be undone. Returns None if steps need not be undone."""
        if self.on_divergence != "skip":
            return None
        # If a gradient is not finite, fp16's scaler skips the optimizer's step, so only buffers may need to be
        # restored.
        return Masked(self.model, None if self.scaler else self.optimizer, self.average)

    def update(self, clip_grad_norm: float | None = None) -> Tensor | None:
        """Updates weights, schedule and average. Returns whether the gradients were finite, or None if unchecked.

        If fp16's scaler skips the update because a gradient is infinite, schedule and average do not advance either.
        The schedule does advance with an update that `masked` undoes later.
        """
        finite = None if self.gradients is None or self.scaler else self.gradients.are_finite()
        if clip_grad_norm is not None:
            if self.scaler:
                self.scaler.unscale_(self.optimizer)
            clip_grad_norm_(self.model.parameters(), clip_grad_norm)
        if self.scaler is None:
            self.optimizer.step()
        elif not amp.updated(self.scaler, self.optimizer):
            return torch.tensor(data=False)
        if self.scheduler:
            self.scheduler.step()
        if self.average:
            self.average.update_parameters(self.model)
        return finite


def build_learner(
    config: TrainConfig,
    task: Task,
    model: nn.Module,
    wrapped: nn.Module,
    *,
    compression: PowerSGD | None,
    total_steps: int,
    device: torch.device,
) -> Learner:
    """Builds a learner, in its state before the first of `total_steps` steps."""
    optimizer = task.optimizer(model)
    if compression:
        compression.begin(total_steps)
    return Learner(
        model,
        wrapped,
        optimizer,
        task.scheduler(optimizer, total_steps),
        amp.scaler(config.computing.precision, device),
        averaged(model, config.optimisation.model_ema_decay),
        compression,
        amp.autocast(config.computing.precision, device),
        config.optimisation.on_divergence,
        None if config.optimisation.on_divergence == "ignore" else Gradients(model, optimizer),
    )


def check_optimizer(optimizer: Optimizer, model: nn.Module, *, aloud: bool) -> None:
    """Checks that the optimizer trains the model; if `aloud`, warns about parameters that the optimizer lacks.

    The gradients of these parameters are computed and exchanged in vain. They also add up, because an optimizer
    clears only the gradients of its own parameters.

    Raises:
        ConfigError: The optimizer has none of the model's parameters.
    """
    optimized = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    trainable = {name: id(value) for name, value in model.named_parameters() if value.requires_grad}
    left_out = [name for name, parameter in trainable.items() if parameter not in optimized]
    if trainable and len(left_out) == len(trainable):
        raise ConfigError(
            "the task's optimizer has none of the model's parameters, so nothing would be learned: build "
            "it from the parameters of the model that optimizer(self, model) is given"
        )
    if left_out and aloud:
        warn(
            "these parameters of the model are not in the optimizer and never change: "
            f"{listed(left_out, NAMED)}; if that is intended, requires_grad_(False) saves computing their "
            "gradients"
        )
