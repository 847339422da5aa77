"""Tasks whose samples tell what is done with them."""

import os
import random
import time
from typing import Any

import numpy as np
import torch
from ddpjob_rank.console import say
from ddpjob_rank.errors import ConfigError
from ddpjob_trainer.config import TrainConfig
from ddpjob_trainer.task import Task
from torch import Tensor, nn
from torch.utils.data import Dataset

from tests.training.namespaces import mount_for_itself
from tests.training.tasks import linger

SAMPLES = 60


class Drawn(Dataset[tuple[Tensor, int]]):
    """Samples with numbers from every random generator."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        drawn = [random.random(), np.random.rand(), torch.rand(()).item()]  # noqa: NPY002  (the global one is meant)
        return torch.tensor([float(index), *drawn]), index


class Watched(Task):
    """Says which samples it is trained on, and what was drawn for each; learns nothing."""

    epochs = 2

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        self.warm_ups = int(int(os.environ["WORLD_SIZE"]) > 1)

    def model(self) -> nn.Module:
        return Scale()

    def train_data(self) -> Any:
        return Drawn()

    def loss(self, output: Tensor, target: Tensor) -> Tensor:  # noqa: ARG002  (the interface has it)
        linger()
        if self.warm_ups:
            self.warm_ups -= 1
        else:
            for numbers in output.tolist():
                say(f"trained on {' '.join(map(str, numbers))}")
        return output.sum() * 0


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, numbers: Tensor) -> Tensor:
        return numbers * self.weight


class Broken(Drawn):
    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        raise ConfigError(f"sample {index} is broken")


class WithBroken(Watched):
    def train_data(self) -> Any:
        return Broken()


class Stuck(Drawn):
    """No sample ever comes."""

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        say(f"stuck at {index}")
        time.sleep(3600)
        return super().__getitem__(index)


class WithStuck(Watched):
    def train_data(self) -> Any:
        return Stuck()


class Wide(Drawn):
    """Of a megabyte each."""

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.zeros(1 << 18), index


class InLittleSharedMemory(Watched):
    """Its /dev/shm holds a megabyte, as a container's may."""

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        own_shared_memory(1 << 20)

    def train_data(self) -> Any:
        return Wide()


def own_shared_memory(size: int) -> None:
    """Gives this process another /dev/shm, which has this size in bytes."""
    try:
        mount_for_itself("tmpfs", "/dev/shm", "tmpfs", options=f"size={size}")
    except OSError:
        os._exit(77)
