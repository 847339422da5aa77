"""The training of the fault table as a user's script, with `ddpjob.Training` or with `ddpjob.Checkpoints`."""

import itertools
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import ddpjob
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from tests.training.faults.holds import reach
from tests.training.faults.points import STEPS_OF_AN_EPOCH, note

EPOCHS = 2
EVERY_STEPS = 3
FIRST_STEP, A_STEP = 1, 3
"""The steps of an attempt at which there is a point."""

Step = Callable[[Tensor], Tensor]


def main() -> None:
    note("start", 0)
    reach("rendezvous")
    patience = timedelta(seconds=float(os.environ.get("FAULTS_PATIENCE_SECONDS", "600")))
    dist.init_process_group("gloo", timeout=patience)
    data = TensorDataset(torch.ones(STEPS_OF_AN_EPOCH * dist.get_world_size(), 8))
    model = nn.parallel.DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    numbers = itertools.count(1)

    def step(inputs: Tensor) -> Tensor:
        number = next(numbers)
        note("step", number)
        reach({FIRST_STEP: "first step", A_STEP: "step"}.get(number, ""))
        loss: Tensor = model(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    PROGRAMS[sys.argv[1]](step, DataLoader(data, sampler=DistributedSampler(data)), model=model, optimizer=optimizer)
    reach("teardown")
    dist.barrier()
    dist.destroy_process_group()
    reach("end")


def _with_training(step: Step, loader: Any, **objects: Any) -> None:
    training = ddpjob.Training(loader=loader, every_steps=EVERY_STEPS, **objects)
    for _ in training.epochs(EPOCHS):
        for (inputs,) in training.batches():
            training.step(step(inputs))
        with training.evaluation():
            reach("evaluation")


def _with_checkpoints(step: Step, _: Any, **objects: Any) -> None:
    checkpoints = ddpjob.Checkpoints(every_steps=EVERY_STEPS, **objects)
    resumed = checkpoints.resume()
    for number in range(resumed.step if resumed else 0, EPOCHS * STEPS_OF_AN_EPOCH):
        step(torch.ones(1, 8))
        checkpoints.save_if_due(number + 1)
    checkpoints.finish()


PROGRAMS = {"training": _with_training, "checkpoints": _with_checkpoints}

if __name__ == "__main__":
    main()
