"""One step: the gradients of its batches, and what is done with them."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_

from ddpjob_trainer.checkpoint.state import Learner
from ddpjob_trainer.data.batches import Batches
from ddpjob_trainer.model import amp
from ddpjob_trainer.model.buffers import buffers_kept
from ddpjob_trainer.model.parallel import unused
from ddpjob_trainer.recording.step_times import StepTimes
from ddpjob_trainer.task import Task


@dataclass(frozen=True, kw_only=True, slots=True)
class Stepper:
    """Trains by one step after another."""

    task: Task
    learner: Learner
    model: nn.Module
    """The learner's model as a step calls it: it may be wrapped."""
    autocast: amp.Autocast
    shares: tuple[float, ...] = (1.0,)
    """How a step of this process is divided into batches: what part of its samples each of them has."""
    clip_grad_norm: float | None = None
    times: StepTimes

    def step(self, batches: Batches, weight: float = 1.0) -> Tensor | None:
        """Trains on as many of the batches as there are shares, and returns their mean loss, if they count.

        `weight` is the factor of this process's loss that makes the average of all gradients that of the whole step.
        If it is 0, what it trains on leaves no trace here.
        """
        self.learner.optimizer.zero_grad(set_to_none=True)
        with nullcontext() if weight else buffers_kept(self._by_themselves()):
            loss = self._backward_all(batches, weight)
        self._update()
        self.times.lap("optimizer")
        return loss if weight else None

    def _by_themselves(self) -> Iterator[nn.Module]:
        """The parts of the model that compute their statistics without the other processes."""
        return (module for module in self.learner.model.modules() if not isinstance(module, nn.SyncBatchNorm))

    def _backward_all(self, batches: Batches, weight: float) -> Tensor:
        """Adds up the gradients; only the last batch's are exchanged, with all that came before them."""
        *earlier, last = self.shares
        if not earlier:
            return self._backward(batches, weight, last)
        with self._by_itself():
            losses = [self._backward(batches, weight, share) for share in earlier]
        return sum(losses, start=self._backward(batches, weight, last))

    def _by_itself(self) -> AbstractContextManager[object]:
        """A context in which this process keeps its gradients."""
        if isinstance(self.model, DistributedDataParallel):
            return self.model.no_sync()
        return nullcontext()

    def _backward(self, batches: Batches, weight: float, share: float) -> Tensor:
        """Adds the gradients of the next batch, and returns what it adds to the mean loss."""
        inputs, target = next(batches)
        self.times.lap("data")
        with self.autocast():
            loss = self.task.loss(self._forward(inputs), target)
        self.times.lap("forward")
        scaler, factor = self.learner.scaler, weight * share
        # Equal parts need no factor, and the loss stays exactly the same number.
        weighted = loss if factor == 1.0 else loss * factor
        torch.autograd.backward(scaler.scale(weighted) if scaler else weighted)
        self.times.lap("backward")
        return loss.detach() if share == 1.0 else loss.detach() * share

    def _forward(self, inputs: Any) -> Any:
        try:
            return self.model(inputs)
        except RuntimeError as error:
            if mistake := unused(error, self.learner.model):
                raise mistake from error
            raise

    def _update(self) -> None:
        """Updates the weights and what follows them: the schedule and the average count only such updates."""
        learner = self.learner
        if self.clip_grad_norm is not None:
            if learner.scaler:
                learner.scaler.unscale_(learner.optimizer)
            clip_grad_norm_(learner.model.parameters(), self.clip_grad_norm)
        if learner.scaler is None:
            learner.optimizer.step()
        elif not amp.updated(learner.scaler, learner.optimizer):
            return
        if learner.scheduler:
            learner.scheduler.step()
        if learner.average:
            learner.average.update_parameters(learner.model)
