"""The loop: epochs of steps, with an evaluation after each."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

from ddpjob_trainer.console import record
from ddpjob_trainer.position import Position
from ddpjob_trainer.stopping import StoppedOnRequest, StopRequest
from ddpjob_trainer.task import Task
from ddpjob_trainer.world import World

from .agreement import Agreement, Wish
from .data import batches
from .evaluation import Evaluation, evaluate
from .order import Order
from .progress import Progress
from .saving import Saver
from .state import Learner


@dataclass(frozen=True, kw_only=True, slots=True)
class Loop:
    """All parts of a run, ready to train."""

    task: Task
    world: World
    device: torch.device
    learner: Learner
    model: nn.Module
    """The learner's model as a step calls it: it may be wrapped."""
    data: Dataset[Any]
    test_data: Dataset[Any] | None
    order: Order
    epochs: int
    position: Position
    progress: Progress
    saver: Saver | None
    stop: StopRequest
    agreement: Agreement

    def run(self) -> None:
        """Trains from the position to the end of the last epoch.

        Raises:
            StoppedOnRequest: A rank was asked to stop; all have finished the same step, and it is saved.
        """
        began, first_step, training_seconds = time.monotonic(), self.position.step, 0.0
        result: Evaluation | None = None
        while True:
            if self.position.step < self.progress.total_steps:
                training_seconds += self._train_epoch()
            result = self._evaluate()
            if self.position.epoch >= self.epochs:
                break
            self.position.next_epoch()
        self.agreement.granted()
        if self.world.leads:
            samples = (self.position.step - first_step) * self.order.global_batch
            record(
                "finished",
                step=self.position.step,
                **(result.metrics if result else {}),
                samples_per_second=round(samples / training_seconds) if samples else 0,
                seconds=round(time.monotonic() - began, 1),
            )

    def _train_epoch(self) -> float:
        """Trains what is left of the epoch, and gives the seconds that it took."""
        began = time.monotonic()
        self.position.activity = "training"
        self.progress.resume()
        self.model.train()
        for inputs, target in self._batches():
            self.progress.step(self._step(inputs, target))
            self._after_step()
        return time.monotonic() - began

    def _batches(self) -> Iterator[tuple[Any, Any]]:
        return batches(self.data, self.order.batches(self.position.epoch, self.position.samples), self.device)

    def _step(self, inputs: Any, target: Any) -> torch.Tensor:
        learner, weight = self.learner, self.order.weight
        learner.optimizer.zero_grad(set_to_none=True)
        loss = self.task.loss(self.model(inputs), target)
        # Even parts need no weight, and the loss stays the very number that it is.
        torch.autograd.backward(loss if weight == 1.0 else loss * weight)
        learner.optimizer.step()
        if learner.scheduler:
            learner.scheduler.step()
        self.position.advance(self.order.global_batch)
        return loss.detach()

    def _after_step(self) -> None:
        """Saves if it is time to, and stops if anybody was asked to: all ranks after the same step."""
        granted = self.agreement.granted()
        if self._save_is_due(granted):
            self._save()
        if granted is Wish.STOP:
            raise StoppedOnRequest(self._last_words())
        self.agreement.propose(self._wish)

    def _wish(self) -> Wish:
        if self.stop.made:
            return Wish.STOP
        return self.saver.wish() if self.saver else Wish.NOTHING

    def _save_is_due(self, granted: Wish) -> bool:
        if self.saver is None:
            return False
        step = self.position.step
        epoch_ends = self.order.steps(self.position.samples) == 0
        last = step == self.progress.total_steps
        return granted >= Wish.SAVE or last or self.saver.due(step, epoch_ends=epoch_ends)

    def _save(self) -> None:
        assert self.saver is not None, "a save is due"
        self.position.activity = "saving"
        self.saver.save(self.learner, self.position)
        self.position.activity = "training"

    def _last_words(self) -> str:
        if self.saver is None:
            return f"stopped on request after step {self.position.step}; without --checkpoint-dir nothing is saved"
        return f"saved step {self.position.step}, stopped on request"

    def _evaluate(self) -> Evaluation | None:
        if self.test_data is None:
            return None
        self.position.activity = "evaluation"
        result = evaluate(
            self.learner.model,
            self.task,
            self.test_data,
            world=self.world,
            device=self.device,
            batch_size=self.order.batch_size,
        )
        if result:
            epoch = f"{self.position.epoch}/{self.epochs}"
            record("evaluated", epoch=epoch, **result.metrics, loss=result.loss, samples=result.samples)
        return result
