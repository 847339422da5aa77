"""A small convolutional network for handwritten digits: two convolutions and one linear layer."""

from ddpjob_trainer.config import TrainConfig
from ddpjob_trainer.task import Task
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from .handwriting import CLASSES, load

CHANNELS = (16, 32)


class ConvNet(nn.Module):
    """Convolution, batch normalisation, ReLU and pooling, twice; then one linear layer."""

    def __init__(self, side: int) -> None:
        super().__init__()
        first, second = CHANNELS
        self.features = nn.Sequential(_block(1, first), _block(first, second), nn.Flatten())
        self.classes = nn.Linear((side // 4) ** 2 * second, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Scores of the ten classes."""
        scores: Tensor = self.classes(self.features(images))
        return scores


def _block(channels_in: int, channels_out: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, kernel_size=5, padding=2),
        nn.BatchNorm2d(channels_out),
        nn.ReLU(),
        nn.MaxPool2d(2),
    )


class ConvNetTask(Task):
    """Trains a ConvNet by SGD with momentum and a learning rate that falls to zero along a cosine."""

    epochs = 10
    batch_size = 32
    lr = 0.02
    momentum = 0.9
    weight_decay = 5e-4
    lr_scheduler = "cosineannealinglr"

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        self.images = load(config)

    def model(self) -> nn.Module:
        """A network that fits the size of the images."""
        return ConvNet(self.images.side)

    def train_data(self) -> TensorDataset:
        """The images to train on."""
        return self.images.train

    def test_data(self) -> TensorDataset:
        """The held-out images."""
        return self.images.test
