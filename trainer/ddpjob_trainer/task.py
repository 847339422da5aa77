"""Task: the interface by which training code plugs in.

A whole task, in a file `shirts.py` beside which `ddpjob-train --workload shirts:Shirts` runs:

    class Shirts(Task):
        epochs = 5

        def model(self) -> nn.Module:
            return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))

        def train_data(self) -> Dataset:
            return TensorDataset(images, labels)

A task is a classifier trained by SGD unless it says otherwise.
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
    """What is trained. Each process makes its own, from the same configuration.

    Samples are pairs of what the model takes and what the loss compares its output with; each may be a tensor, or a
    dict, list or tuple of tensors.
    """

    epochs: int = 10
    batch_size: int = 32
    """Of each process."""
    lr: float = 0.01
    momentum: float = 0.0
    weight_decay: float = 0.0
    lr_scheduler: Schedule = "constant"
    label_smoothing: float = 0.0
    workers: int | None = 0
    """Processes that fetch samples for each rank; 0: the rank itself does; None: its share of the machine's cores."""
    steps_per_epoch: int = 0
    """Known once `scheduler` is called."""

    def __init__(self, config: TrainConfig) -> None:
        self.config = config

    @abstractmethod
    def model(self) -> nn.Module:
        """The model, with initial weights; torch's random generator is seeded, and rank 0's weights win."""

    def train_data(self) -> Dataset[Any]:
        """The whole training set, the same in each process; each trains on its own part of every batch."""
        raise ConfigError(f"{type(self).__name__} has no data: define train_data or train_loader")

    def train_loader(self, rank: int, world_size: int) -> Iterable[tuple[Any, Any]] | None:  # noqa: ARG002  (for overriders)
        """Batches that this process makes itself, in place of `train_data`; iterated again in each epoch.

        Another process may have another number of them.
        """
        return None

    def inputs(self, samples: Any) -> Any:
        """What the model takes of a batch of a data set's samples, which is on the model's device by then.

        Samples may be small, such as the bytes of images: they have a way to go.
        """
        return samples

    def test_data(self) -> Dataset[Any] | None:
        """The held-out set, evaluated after each epoch; None: there is none."""
        return None

    def broken_samples(self, world: World) -> int | None:  # noqa: ARG002  (for overriders)
        """How many broken samples have had others in their place since the start, after each epoch; None: none may.

        All ranks ask at once, so that they may tell each other.
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
        """A learning rate schedule that is advanced after each step; None: the rate is constant.

        Raises:
            ConfigError: An option belongs to another schedule.
        """
        return scheduled(optimizer, self.config.optimisation, self.lr_scheduler, total_steps, self.steps_per_epoch)

    def metrics(self, output: Any, target: Any) -> Mapping[str, Tensor]:
        """Sums over a batch; evaluation prints their means over all samples. Without classes there are none."""
        likeliest = _likeliest(output)
        if likeliest is None or not isinstance(target, Tensor) or target.shape != likeliest.shape:
            return {}
        return {"accuracy": (likeliest == target).sum()}

    def predictions(self, output: Any) -> Tensor:
        """What the trained model says about each sample of a batch, in a row each.

        If there are several numbers for each sample, the index of the greatest, the most likely class; otherwise the
        output.
        """
        likeliest = _likeliest(output)
        return output if likeliest is None else likeliest


def load_task(config: TrainConfig) -> Task:
    """The task that `--workload` names.

    Raises:
        ConfigError: There is no such module or attribute, or it makes no task.
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
        # Another module that the task's own imports do not find is its author's error, with its traceback.
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise ConfigError(f"--workload {workload}: there is no module {error.name} in {here} or installed") from None
    factory = getattr(module, attribute, None)
    if not callable(factory):
        found = "has no" if factory is None else "has a value, but no callable, as"
        raise ConfigError(f"--workload {workload}: {module.__file__} {found} attribute {attribute}")
    return factory  # type: ignore[no-any-return]


def _likeliest(output: Any) -> Tensor | None:
    """The likeliest classes; None: the output is no scores of several."""
    scores = isinstance(output, Tensor) and output.dim() > 1 and output.shape[1] > 1
    return output.argmax(1) if scores else None


def _a(value: object) -> str:
    return f"an instance of {type(value).__name__}" if value is not None else "None"
