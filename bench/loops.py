"""One training, with a loop of its own, with `ddpjob.Training`, and in the ways of Accelerate and Lightning."""

import logging
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ddpjob
import lightning
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from torch.utils.data import DataLoader, TensorDataset

WIDTH, STEPS_PER_EPOCH = 512, 200
NEVER = 1e9
"""Seconds between two saves, so many that nothing is saved."""
DEADLINE_SECONDS = 300

Turn = Callable[[int], None]
"""Makes so many steps of a training."""


class Script:
    """What all loops have in common."""

    def __init__(self, batch: int) -> None:
        torch.manual_seed(0)
        layers = [module for _ in range(4) for module in (nn.Linear(WIDTH, WIDTH), nn.Tanh())]
        self.model = nn.Sequential(*layers, nn.Linear(WIDTH, 1))
        self.optimizer = AdamW(self.model.parameters())
        inputs = torch.rand(batch * STEPS_PER_EPOCH, WIDTH)
        self.loader = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=batch, shuffle=True)

    def update(self, x: Tensor, y: Tensor) -> Tensor:
        """Makes a step; returns its loss."""
        loss = nn.functional.mse_loss(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss


def turns(loop: Iterator[None]) -> Turn:
    """Makes as many steps of a loop, which yields after each."""
    return lambda steps: [next(loop) for _ in range(steps)].clear()


def plain(script: Script) -> Iterator[None]:
    """The script itself."""
    while True:
        for x, y in script.loader:
            script.update(x, y)
            yield


def with_library(script: Script, directory: Path) -> Iterator[None]:
    """With `ddpjob.Training`."""
    training = ddpjob.Training(
        model=script.model,
        optimizer=script.optimizer,
        loader=script.loader,
        directory=directory,
        every_seconds=NEVER,
    )
    for _ in training.epochs(10**9):
        for x, y in training.batches():
            training.step(script.update(x, y))
            yield


def with_accelerate(script: Script) -> Iterator[None]:
    """With Accelerate."""
    accelerator = Accelerator(cpu=True)
    model, optimizer, loader = accelerator.prepare(script.model, script.optimizer, script.loader)
    while True:
        for x, y in loader:
            accelerator.backward(nn.functional.mse_loss(model(x), y))
            optimizer.step()
            optimizer.zero_grad()
            yield


class Module(lightning.LightningModule):  # type: ignore[misc]  # mypy ignores the types of Lightning.
    """A model for Lightning's Trainer."""

    def __init__(self, model: nn.Module, optimizer: Optimizer) -> None:
        super().__init__()
        self._model, self._optimizer = model, optimizer

    def training_step(self, batch: list[Tensor], _index: int) -> Tensor:
        x, y = batch
        return nn.functional.mse_loss(self._model(x), y)

    def configure_optimizers(self) -> Optimizer:
        return self._optimizer


class LightningTurns(lightning.Callback):  # type: ignore[misc]
    """With Lightning, whose loop runs in a thread, because it cannot be left and entered again."""

    def __init__(self, script: Script) -> None:
        self._left, self._begins, self._ends = 0, threading.Semaphore(0), threading.Semaphore(0)
        trainer, module = lightning_trainer(max_epochs=-1, callbacks=[self]), Module(script.model, script.optimizer)
        threading.Thread(target=trainer.fit, args=(module, script.loader), daemon=True).start()

    def __call__(self, steps: int) -> None:
        """As `Turn`."""
        self._left = steps
        self._begins.release()
        if not self._ends.acquire(timeout=DEADLINE_SECONDS):
            raise TimeoutError("Lightning's loop has not made its steps")

    def on_train_start(self, *_: Any) -> None:
        self._begins.acquire()

    def on_train_batch_end(self, *_: Any) -> None:
        self._left -= 1
        if not self._left:
            self._ends.release()
            self._begins.acquire()


def lightning_trainer(**more: Any) -> Any:
    """A Trainer that does nothing but train."""
    warnings.filterwarnings("ignore", module="lightning")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    return lightning.Trainer(accelerator="cpu", devices=1, **quiet, **more)
