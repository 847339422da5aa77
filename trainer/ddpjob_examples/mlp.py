"""A perceptron with one hidden layer for handwritten digits."""

from ddpjob_trainer.config import TrainConfig
from ddpjob_trainer.task import Task
from torch import nn
from torch.utils.data import TensorDataset

from .handwriting import CLASSES, load

HIDDEN = 256


class MlpTask(Task):
    """Trains the perceptron by plain SGD: batches of 32 per process, 10 epochs."""

    lr = 0.001

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        self.images = load(config)

    def model(self) -> nn.Module:
        """A perceptron that fits the size of the images."""
        pixels = self.images.side**2
        return nn.Sequential(nn.Flatten(), nn.Linear(pixels, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))

    def train_data(self) -> TensorDataset:
        """The images to train on."""
        return self.images.train

    def test_data(self) -> TensorDataset:
        """The held-out images."""
        return self.images.test
