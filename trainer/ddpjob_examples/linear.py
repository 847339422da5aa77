"""Random numbers and one linear layer that prints the size of its input, to show how batches are divided."""

import torch
from ddpjob_rank.console import say
from ddpjob_trainer.task import Task
from torch import Tensor, nn
from torch.utils.data import Dataset

INPUTS, OUTPUTS = 5, 2
SAMPLES = 90


class RandomDataset(Dataset[tuple[Tensor, Tensor]]):
    """Vectors of random numbers, each its own target.

    They are drawn from a seed, so that each process has the same data set, of which it then takes its part.
    """

    def __init__(self, size: int, length: int, seed: int) -> None:
        self._data = torch.randn(length, size, generator=torch.Generator().manual_seed(seed))

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self._data[index], self._data[index]


class Model(nn.Module):
    """One linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(INPUTS, OUTPUTS)

    def forward(self, numbers: Tensor) -> Tensor:
        """The output of the layer. Prints the sizes of input and output."""
        output: Tensor = self.fc(numbers)
        say(f"  In Model: input size {numbers.size()} output size {output.size()}")
        return output


class RandomTask(Task):
    """Trains the layer in one epoch to return the first numbers of each vector."""

    epochs = 1
    batch_size = 30

    def model(self) -> nn.Module:
        """The layer."""
        return Model()

    def train_data(self) -> RandomDataset:
        """The random vectors."""
        return RandomDataset(INPUTS, SAMPLES, self.config.seed)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """The mean squared distance from the first numbers."""
        say(f"Outside: input size {target.size()} output_size {output.size()}")
        return nn.functional.mse_loss(output, target[:, :OUTPUTS])

    def predictions(self, output: Tensor) -> Tensor:
        """The output itself, because it does not consist of scores of classes."""
        return output
