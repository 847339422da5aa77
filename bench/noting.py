"""Trains the convolutional network on digits. Each rank records its finished steps and their samples."""

import os
import time
from typing import Any

from ddpjob_examples.convnet import ConvNetTask
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import TensorDataset

NOTES = "BENCH_NOTES"
"""The variable that names the file for these records. Without it, nothing is recorded."""
STEP_SECONDS = "BENCH_STEP_SECONDS"
"""The variable with the seconds that each step sleeps, to imitate waiting for a GPU. It does not change results."""


class Numbered(TensorDataset):
    """A dataset that also returns the samples' numbers, beside the labels.

    The trainer indexes it by whole batches.
    """

    def __getitem__(self, index: Any) -> Any:
        images, labels = (tensor[index] for tensor in self.tensors)
        return images, (labels, index)


class Noted(ConvNetTask):
    """The workload, without evaluation, which the bench does not need."""

    _samples: Tensor

    def train_data(self) -> TensorDataset:
        return Numbered(*self.images.train.tensors)

    def test_data(self) -> None:  # type: ignore[override]
        """Returns None, because there is no evaluation."""

    def loss(self, output: Tensor, target: tuple[Tensor, Tensor]) -> Tensor:
        labels, self._samples = target
        time.sleep(float(os.environ.get(STEP_SECONDS, "0")))
        return nn.functional.cross_entropy(output, labels)

    def scheduler(self, optimizer: Optimizer, total_steps: int) -> LRScheduler:
        schedule = super().scheduler(optimizer, total_steps)
        if NOTES in os.environ:
            file = os.open(os.environ[NOTES], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)

            def note(*_: object) -> None:
                # `last_epoch` is restored from the checkpoint, and advances only after this hook.
                step = schedule.last_epoch + 1
                who = f"{os.environ['RANK']} {step} {time.time()} {os.environ['DDPJOB_ATTEMPT']} {os.getpid()}"
                os.write(file, f"{who} {','.join(map(str, self._samples.tolist()))}\n".encode())

            optimizer.register_step_post_hook(note)
        return schedule
