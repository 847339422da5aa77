"""The models and data of the training bench. Our trainer and the script that it is compared with use the same."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from ddpjob_examples.convnet import ConvNet
from ddpjob_examples.handwriting import load
from ddpjob_trainer.config import TrainConfig
from ddpjob_trainer.task import Task
from torch import nn
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler
from torch.utils.data import TensorDataset

CLASSES = 10
MNIST_SIDE, RESNET_SIDE = 28, 64
MNIST_SAMPLES, RESNET_SAMPLES = 8192, 512


@dataclass(frozen=True)
class Model:
    """A network, its training images, and the batch size of a process."""

    network: Callable[[], nn.Module]
    data: Callable[[], TensorDataset]
    batch: int


def _noise(samples: int, channels: int, side: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(samples, channels, side, side, generator=generator)
    return TensorDataset(images, torch.randint(CLASSES, (samples,), generator=generator))


def _resnet18() -> nn.Module:
    from torchvision.models import resnet18  # noqa: PLC0415  (slow to import, and only needed here)

    network: nn.Module = resnet18(num_classes=CLASSES)
    return network


MODELS = {
    "ConvNet": Model(lambda: ConvNet(side=8), lambda: load(TrainConfig()).train, batch=32),
    "ConvNet28": Model(lambda: ConvNet(side=MNIST_SIDE), lambda: _noise(MNIST_SAMPLES, 1, MNIST_SIDE), batch=64),
    "ResNet18": Model(_resnet18, lambda: _noise(RESNET_SAMPLES, 3, RESNET_SIDE), batch=16),
}


class _Bench(Task):
    """One of MODELS as a task for our trainer, with the script's optimizer and without evaluation."""

    name: str
    lr = 0.02
    epochs = 1_000_000

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        self.batch_size = MODELS[self.name].batch

    def model(self) -> nn.Module:
        return MODELS[self.name].network()

    def train_data(self) -> TensorDataset:
        return MODELS[self.name].data()

    def optimizer(self, model: nn.Module) -> Optimizer:
        return optimizer(model)

    def scheduler(self, optimizer: Optimizer, total_steps: int) -> LRScheduler:
        return CosineAnnealingLR(optimizer, T_max=total_steps)


def optimizer(model: nn.Module) -> Optimizer:
    """The optimizer for both our trainer and the script."""
    return SGD(model.parameters(), lr=_Bench.lr, momentum=0.9, weight_decay=5e-4)


class ConvNetBench(_Bench):
    """A model with steps of a few milliseconds, so that the cost of the training loop is visible."""

    name = "ConvNet"


class ConvNet28Bench(_Bench):
    """The same network on images of MNIST's size."""

    name = "ConvNet28"


class ResNet18Bench(_Bench):
    """A model with steps of some hundred milliseconds."""

    name = "ResNet18"
