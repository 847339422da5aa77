"""Task: the interface for training code of your own.

A complete task, in a file `shirts.py` of the directory in which `ddpjob-train --workload shirts:Shirts` runs:

    class Shirts(Task):
        epochs = 5

        def model(self) -> nn.Module:
            return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))

        def train_data(self) -> Dataset:
            return TensorDataset(images, labels)

By default, a task is a classifier that is trained by SGD. Override methods to change this.
"""

import importlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.world import World
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import Dataset

from .config import TrainConfig
from .options import Schedule
from .schedule import scheduled

BUILT_IN = {
    "convnet": "ddpjob_examples.convnet:ConvNetTask",
    "mlp": "ddpjob_examples.mlp:MlpTask",
    "random": "ddpjob_examples.linear:RandomTask",
    "imagenet": "ddpjob_examples.imagenet:ImageNetTask",
    "layers": "ddpjob_examples.layers:LayersTask",
}


class Task(ABC):
    """What is trained. Each process creates its own instance from the same configuration.

    A sample is a pair: the model's input, and the target with which the loss compares the output. Each of the two may
    be a tensor, or a dict, list or tuple of tensors.
    """

    epochs: int = 10
    batch_size: int = 32
    """Samples per process and step."""
    lr: float = 0.01
    momentum: float = 0.0
    weight_decay: float = 0.0
    lr_scheduler: Schedule = "constant"
    label_smoothing: float = 0.0
    workers: int | None = 0
    """Processes that fetch samples for each rank. 0 means the rank itself, None means one process for each core."""
    steps_per_epoch: int = 0
    """Set before `scheduler` is called."""

    def __init__(self, config: TrainConfig) -> None:
        self.config = config

    @abstractmethod
    def model(self) -> nn.Module:
        """The model, with initial weights. torch's random generator is seeded, and all ranks get rank 0's weights."""

    def train_data(self) -> Dataset[Any]:
        """The whole training set, the same in each process; each process trains on its own part of every batch."""
        raise ConfigError(f"{type(self).__name__} has no data: define train_data or train_loader")

    def train_loader(self, rank: int, world_size: int) -> Iterable[tuple[Any, Any]] | None:  # noqa: ARG002  (for overriders)
        """Batches that this process makes itself, iterated again in each epoch; None to use `train_data`.

        Processes may have different numbers of batches.
        """
        return None

    def inputs(self, samples: Any) -> Any:
        """Makes the model's input from a batch of a data set's samples, which is already on the model's device.

        Thus samples can be small while they are sent from a worker to the device: images can be bytes, for example,
        instead of floats.
        """
        return samples

    def test_data(self) -> Dataset[Any] | None:
        """The held-out set, on which the model is evaluated after each epoch; None if there is none."""
        return None

    def broken_samples(self, world: World) -> int | None:  # noqa: ARG002  (for overriders)
        """How many broken samples have been replaced by others since the start; None if they are errors.

        Called after each epoch, on all ranks at the same time, so that they can exchange what they have found.
        """
        return None

    def loss(self, output: Any, target: Any) -> Tensor:
        """The mean loss over a batch."""
        smoothing = self.config.optimisation.label_smoothing
        return nn.functional.cross_entropy(
            output, target, label_smoothing=self.label_smoothing if smoothing is None else smoothing
        )

    def optimizer(self, model: nn.Module) -> Optimizer:
        """The optimizer of the model's parameters."""
        asked = self.config.optimisation
        return torch.optim.SGD(
            model.parameters(),
            lr=self.config.lr or self.lr,
            momentum=self.momentum if asked.momentum is None else asked.momentum,
            weight_decay=self.weight_decay if asked.weight_decay is None else asked.weight_decay,
        )

    def scheduler(self, optimizer: Optimizer, total_steps: int) -> LRScheduler | None:
        """A learning rate schedule that is advanced after each step; None if the rate is constant.

        Raises:
            ConfigError: An option belongs to another schedule.
        """
        return scheduled(optimizer, self.config.optimisation, self.lr_scheduler, total_steps, self.steps_per_epoch)

    def metrics(self, output: Any, target: Any) -> Mapping[str, Tensor]:
        """Sums over a batch, by name. Evaluation prints their means over all samples. Empty without class scores."""
        likeliest = _likeliest(output)
        if likeliest is None or not isinstance(target, Tensor) or target.shape != likeliest.shape:
            return {}
        return {"accuracy": (likeliest == target).sum()}

    def predictions(self, output: Any) -> Tensor:
        """The prediction for each sample of a batch, one row per sample.

        If the output has several numbers per sample, the prediction is the index of the greatest number, which is the
        most likely class. Otherwise it is the output itself.
        """
        likeliest = _likeliest(output)
        return output if likeliest is None else likeliest


def load_task(config: TrainConfig) -> Task:
    """The task that `--workload` names.

    Raises:
        ConfigError: The module or the attribute does not exist, or the attribute does not make a task.
    """
    factory = _factory(config.workload)
    task = factory(config)
    if not isinstance(task, Task):
        raise ConfigError(
            f"--workload {config.workload} makes {_a(task)}: it must be a subclass of "
            "ddpjob_trainer.task.Task, or a function that takes a TrainConfig and returns an instance of "
            "one"
        )
    return task


def _factory(workload: str) -> Callable[[TrainConfig], object]:
    module_name, colon, attribute = BUILT_IN.get(workload, workload).partition(":")
    if not (module_name and colon and attribute):
        raise ConfigError(f"--workload {workload}: it must be {', '.join(BUILT_IN)} or MODULE:ATTRIBUTE")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # The task's module was found, but it imports a module that is missing. Its author needs the traceback.
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise ConfigError(f"--workload {workload}: there is no module {error.name} in {here} or installed") from None
    factory = getattr(module, attribute, None)
    if not callable(factory):
        found = "has no" if factory is None else "has a value that is not callable as"
        raise ConfigError(f"--workload {workload}: {module.__file__} {found} attribute {attribute}")
    return factory  # type: ignore[no-any-return]


def _likeliest(output: Any) -> Tensor | None:
    """The most likely class of each sample; None if the output does not contain scores of several classes."""
    scores = isinstance(output, Tensor) and output.dim() > 1 and output.shape[1] > 1
    return output.argmax(1) if scores else None


def _a(value: object) -> str:
    return f"an instance of {type(value).__name__}" if value is not None else "None"
