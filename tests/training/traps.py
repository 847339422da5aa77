"""Tasks of authors who have fallen into a trap."""

from typing import Any

import torch
from ddpjob_trainer.task import Task
from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from torch.utils.data import DataLoader, Dataset, TensorDataset


class Right(Task):
    """As it should be."""

    epochs = 1
    batch_size = 2

    def model(self) -> nn.Module:
        return nn.Linear(1, 2)

    def train_data(self) -> Any:
        return TensorDataset(torch.zeros(4, 1), torch.zeros(4, dtype=torch.long))


class Listed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linears = nn.ModuleList([nn.Linear(1, 2)])

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.linears(x))


class CallsAList(Right):
    def model(self) -> nn.Module:
        return Listed()


class GivesALoader(Right):
    def train_data(self) -> Any:
        return DataLoader(super().train_data())


class OptimizesAnotherModel(Right):
    def optimizer(self, model: nn.Module) -> Optimizer:  # noqa: ARG002  (that is the mistake)
        return SGD(self.model().parameters(), lr=0.1)


class OptimizesAPart(Right):
    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(1, 3), nn.Linear(3, 2))

    def optimizer(self, model: nn.Module) -> Optimizer:
        return SGD(model[1].parameters(), lr=0.1)


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        return y if y.sum() > 0 else -y


class Undecided(Right):
    """What it computes depends on what it computes: torch.export has no program for that."""

    def model(self) -> nn.Module:
        return Branching()


class Paired(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        size = int(x.shape[0])
        y: Tensor = self.layer(x)
        return y.reshape(size, 2)


class TakesPairs(Right):
    """Its model makes a constant of the batch's size."""

    def model(self) -> nn.Module:
        return Paired()


class BringsItsOwn(Right):
    """Batches, and holds none out."""

    def train_data(self) -> Any:
        raise AssertionError("it has no data set")

    def train_loader(self, rank: int, world_size: int) -> Any:  # noqa: ARG002  (the interface has them)
        return [(torch.zeros(2, 1), torch.zeros(2, dtype=torch.long)) for _ in range(3)]


class TooMany(Dataset[Any]):
    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> Any:
        return [(torch.zeros(1), 0)][index]


class CountsTooMany(Right):
    def train_data(self) -> Any:
        return TooMany()
