"""Tasks of the tests, each as small as a user's."""

import errno
import os
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ddpjob.checkpoint import content, reading
from ddpjob_examples.convnet import ConvNetTask
from ddpjob_examples.mlp import MlpTask
from ddpjob_trainer.config import TrainConfig
from ddpjob_trainer.task import Task
from torch import Tensor, nn
from torch.optim import Adam, Optimizer
from torch.utils.data import Dataset, TensorDataset, random_split

from tests.training.holding import held


class Noise(Dataset[tuple[Tensor, Tensor]]):
    """Images that are a little different each time."""

    def __init__(self, images: TensorDataset) -> None:
        self._images = images

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        image, label = self._images[index]
        return image + 0.1 * random.random() + 0.1 * np.random.rand(), label  # noqa: NPY002  (the global one is meant)


class Noisy(ConvNetTask):
    """Draws from every random generator, in training and in evaluation, and keeps statistics in buffers."""

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        linger()
        return super().loss(output, target)

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Dropout(0.1), super().model())

    def train_data(self) -> Any:
        return Noise(self.images.train)

    def test_data(self) -> Any:
        return Noise(self.images.test)


class Perceptron(MlpTask):
    """The workload, at a pace that leaves time to stop it."""

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        linger()
        return super().loss(output, target)


class Laggard(MlpTask):
    """Rank 1 is slow."""

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        time.sleep(0.04 if os.environ["RANK"] == "1" else 0.01)
        return super().loss(output, target)


class Hampered(MlpTask):
    """Rank 2 is slow, until the file `mended` is in its directory."""

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        slow = os.environ["RANK"] == "2" and not Path("mended").exists()
        time.sleep(0.3 if slow else 0.1)
        return super().loss(output, target)


def linger() -> None:
    """Makes a step as long as the test wants."""
    held()
    time.sleep(float(os.environ.get("TEST_STEP_SECONDS", "0")))


class Line(Task):
    """A regression, with nested samples, metrics of its own, and another optimizer."""

    epochs = 2
    batch_size = 10

    def model(self) -> nn.Module:
        return Slope()

    def train_data(self) -> Any:
        return [({"x": torch.tensor([float(x)])}, torch.tensor([2.0 * x])) for x in range(100)]

    def test_data(self) -> Any:
        return self.train_data()

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return nn.functional.mse_loss(output, target)

    def optimizer(self, model: nn.Module) -> Optimizer:
        return Adam(model.parameters(), lr=0.1)

    def metrics(self, output: Tensor, target: Tensor) -> Mapping[str, Tensor]:
        return {"distance": (output - target).abs().sum()}


class Slope(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.zeros(1))

    def forward(self, sample: dict[str, Tensor]) -> Tensor:
        return self.slope * sample["x"]


class Drawn(Line):
    """Holds samples out by lot."""

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        self.parts = random_split(super().train_data(), [80, 20])

    def train_data(self) -> Any:
        return self.parts[0]

    def test_data(self) -> Any:
        return self.parts[1]


class FlatLine(Line):
    """Its output has no dimension but the samples', and it has no metrics of its own."""

    metrics = Task.metrics

    def model(self) -> nn.Module:
        return nn.Sequential(Slope(), nn.Flatten(0))

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return super().loss(output, target.flatten())


class NamedLine(FlatLine):
    """Its output is a dict."""

    def model(self) -> nn.Module:
        return Named()

    def loss(self, output: Any, target: Tensor) -> Tensor:
        return super().loss(output["y"], target)


class Named(Slope):
    def forward(self, sample: dict[str, Tensor]) -> Any:
        return {"y": super().forward(sample).flatten()}


class Constant(Task):
    """Says class 0 of everything, and tells which samples it was evaluated on."""

    epochs = 1
    batch_size = 2

    def model(self) -> nn.Module:
        return Zero()

    def train_data(self) -> Any:
        return TensorDataset(torch.zeros(6, 1), torch.zeros(6, dtype=torch.long))

    def test_data(self) -> Any:
        return Told(int(os.environ["TEST_SAMPLES"]))


class Zero(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0]))

    def forward(self, numbers: Tensor) -> Tensor:
        return torch.cat([self.weight.expand(len(numbers), 1), torch.zeros(len(numbers), 1)], dim=1)


class Told(Dataset[tuple[Tensor, int]]):
    """Every fourth sample is of class 0."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        print(f"saw {index}")
        return torch.zeros(1), int(index % 4 != 0)


class Statistics(Constant):
    """Its metric is the running mean of what the ranks saw in training, which is their number."""

    def model(self) -> nn.Module:
        return RunningMean()

    def loss(self, output: Tensor, target: Tensor) -> Tensor:  # noqa: ARG002  (the interface has it)
        return output.square().mean()

    def metrics(self, output: Tensor, target: Tensor) -> Mapping[str, Tensor]:  # noqa: ARG002  (as above)
        return {"running_mean": output.sum()}


class RunningMean(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.normalisation = nn.BatchNorm1d(1)

    def forward(self, numbers: Tensor) -> Tensor:
        if self.training:
            return self.normalisation(numbers + int(os.environ["RANK"]))
        return self.normalisation.running_mean.expand(len(numbers), 1)


class FailsAtStepFive(ConvNetTask):
    """On one rank."""

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        self.calls = 0

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        self.calls += 1
        if os.environ["RANK"] == "1" and self.calls == 1 + 5:  # The warm-up is the first call.
            raise ValueError("a mistake of the training code")
        return super().loss(output, target)


class NoSamples(Line):
    def train_data(self) -> Any:
        return (sample for sample in ())


def no_task(config: TrainConfig) -> dict[str, str]:
    return {"workload": config.workload}


NUMBER = 3


class Counts(Task):
    """After step n every weight is -n, and there are many: a state that takes a while to be written."""

    epochs = 1
    batch_size = 1
    lr = 1.0

    def model(self) -> nn.Module:
        return Weights()

    def train_data(self) -> Any:
        return TensorDataset(torch.zeros(1000, 1), torch.zeros(1000))

    def loss(self, output: Tensor, target: Tensor) -> Tensor:  # noqa: ARG002  (the interface has it)
        linger()
        return output


class Weights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ParameterList([torch.zeros(500_000) for _ in range(16)])

    def forward(self, _: Tensor) -> Tensor:
        return torch.stack([part.sum() for part in self.parts]).sum()


class CountsOnAFailingDisk(Counts):
    """On a file server that is in trouble for as long as the file stays that a variable names."""

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        synced, trouble = content.os.fsync, Path(os.environ["TEST_TROUBLE"])

        def fsync(descriptor: int) -> None:
            if trouble.exists():
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
            synced(descriptor)

        content.os.fsync = fsync


class CountsOnAFileServerThatIsAway(Counts):
    """Its checkpoints cannot be opened for as long as the file stays that a variable names."""

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        opened, trouble = reading.open_regular, Path(os.environ["TEST_TROUBLE"])

        def open_regular(path: Path) -> int:
            if trouble.exists():
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
            return opened(path)

        reading.open_regular = open_regular


class CountsToFive(Counts):
    """And fails at once, when a save of step 5 has just begun."""

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        self.calls = 0

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == 6:
            raise ValueError("a mistake of the training code")
        return super().loss(output, target)
