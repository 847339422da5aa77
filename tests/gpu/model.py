"""What a bare loop and ours train for the comparison: the same model, samples and optimizer, which tells the pace."""

import os
import time
from typing import Any

import torch
from ddpjob_trainer.task import Task as Base
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import TensorDataset

BATCH = 64
SETTLED = 5
"""After this step everything is set up."""


def network() -> nn.Module:
    """A small convolutional network."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(1024, 10),
    )


def data() -> TensorDataset:
    """Images and labels by chance."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(8192, 1, 16, 16, generator=generator)
    return TensorDataset(images, torch.randint(10, (8192,), generator=generator))


class Timed(torch.optim.SGD):
    """Rank 0 prints the steps per second at the last step."""

    def __init__(self, parameters: Any, total: int) -> None:
        super().__init__(parameters, lr=0.01)
        self.total, self.made, self.began = total, 0, 0.0

    def step(self, closure: Any = None) -> Any:
        result = super().step(closure)
        self.made += 1
        if self.made in {SETTLED, self.total}:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            now = time.monotonic()
            if self.made == self.total and os.environ.get("RANK", "0") == "0":
                print(f"pace: {(self.total - SETTLED) / (now - self.began):.3f}", flush=True)
            self.began = now
        return result


class Task(Base):
    """The same for our loop."""

    batch_size = BATCH

    def model(self) -> nn.Module:
        return network()

    def train_data(self) -> TensorDataset:
        return data()

    def optimizer(self, model: nn.Module) -> Optimizer:
        assert self.config.max_steps is not None, "the plan says how many"
        return Timed(model.parameters(), self.config.max_steps)
