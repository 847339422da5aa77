"""A network of linear layers in a ModuleList, which prints the size of each batch that it gets."""

import torch
from ddpjob_rank.console import say
from ddpjob_trainer.task import Task
from torch import Tensor, nn
from torch.utils.data import TensorDataset

WIDTH = 3
LAYERS = 3
SAMPLES = 256


class ASimpleNet(nn.Module):
    """Linear layers without bias in a ModuleList. A ModuleList cannot be called: `forward` calls each layer."""

    def __init__(self, layers: int = LAYERS) -> None:
        super().__init__()
        self.linears = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        """Applies all layers. The output has the shape of `x`, and no negative numbers."""
        say(f"forward batchsize is: {x.size()[0]}")
        for linear in self.linears:
            x = torch.relu(linear(x))
        return x


class LayersTask(Task):
    """Trains the network to return its input."""

    epochs = 2
    batch_size = 16

    def model(self) -> nn.Module:
        """The network."""
        return ASimpleNet()

    def train_data(self) -> TensorDataset:
        """Vectors of random numbers between 0 and 1, the same in each process."""
        numbers = torch.rand(SAMPLES, WIDTH, generator=torch.Generator().manual_seed(self.config.seed))
        return TensorDataset(numbers, numbers)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """The mean squared distance."""
        return nn.functional.mse_loss(output, target)

    def predictions(self, output: Tensor) -> Tensor:
        """The output itself, because it does not consist of scores of classes."""
        return output
