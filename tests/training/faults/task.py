"""A small task whose ranks note their starts and steps, and wait at each point of the fault table."""

import os
from typing import Any

import torch
from ddpjob_trainer.config import TrainConfig
from ddpjob_trainer.group import joining
from ddpjob_trainer.task import Task
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from tests.training.faults.holds import reach
from tests.training.faults.points import STEPS_OF_AN_EPOCH, note

WARM_UP, FIRST_STEP, A_STEP = 1, 2, 4
"""Calls of the loss in an attempt: that of the step that leaves no trace, and those at which there is a point."""


class Held(Task):
    """Two epochs of ten steps, for two ranks."""

    epochs = 2
    batch_size = 1

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        self.calls = 0
        note("start", 0)
        reach("rendezvous")

    def model(self) -> nn.Module:
        return nn.Linear(8, 1)

    def train_data(self) -> Any:
        size = STEPS_OF_AN_EPOCH * int(os.environ["WORLD_SIZE"])
        return TensorDataset(torch.ones(size, 8), torch.ones(size, 1))

    def test_data(self) -> Any:
        return self.train_data()

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            self.calls += 1
            if self.calls > WARM_UP:
                note("step", self.calls - WARM_UP)
            reach({FIRST_STEP: "first step", A_STEP: "step"}.get(self.calls, ""))
        return nn.functional.mse_loss(output, target)

    def metrics(self, output: Tensor, target: Tensor) -> dict[str, Tensor]:
        reach("evaluation")
        return {"distance": (output - target).abs().sum()}


_leave_together = joining._leave_together


def _reach_and_leave() -> None:
    reach("teardown")
    _leave_together()
    reach("end")


joining._leave_together = _reach_and_leave
