"""Builds the input of a run from its task and its options."""

from collections.abc import Callable, Sized
from typing import Any

import torch
from ddpjob.data.order import Order, Shuffled
from ddpjob_rank.console import counted
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.machine.cores import threads_of_each
from ddpjob_rank.world import World
from torch.utils.data import Dataset

from ddpjob_trainer.config import TrainConfig
from ddpjob_trainer.recording.position import Position
from ddpjob_trainer.task import Task

from .feed import Divided, Feed, Uneven
from .loader import Loader, sample_count


def feeding(config: TrainConfig, task: Task, world: World) -> Callable[[torch.device], Feed]:
    """Returns a function that builds the run's input for a device.

    The data is checked now, so that a mistake is reported before the processes wait for each other.

    Raises:
        ConfigError: There is no data, or it does not fit an option.
    """
    parts = config.optimisation.gradient_accumulation_steps
    batches = task.train_loader(world.rank, world.world_size)
    if batches is None:
        data = task.train_data()
        order = order_of(config, task, data, world)
        return lambda device: Divided(loader(data, config, task, world, device), order, parts)
    check_sampler(batches)
    if config.global_batch_size or parts > 1:
        raise ConfigError(
            "--global-batch-size and --gradient-accumulation-steps are for train_data: a train_loader makes"
            " its own batches"
        )
    size = config.batch_size or task.batch_size
    return lambda device: Uneven(batches, world, device, batch_size=size, seed=config.seed)


def loader(data: Dataset[Any], config: TrainConfig, task: Task, world: World, device: torch.device) -> Loader:
    """The loader that fetches a data set's samples for this process."""
    return Loader(data, seed=config.seed, device=device, workers=_workers(config, task, world), inputs=task.inputs)


def order_of(config: TrainConfig, task: Task, data: Dataset[Any], world: World) -> Order:
    """The order in which a process sees the samples of a task's training set."""
    of_a_process = (config.batch_size or task.batch_size) * config.optimisation.gradient_accumulation_steps
    whole = config.global_batch_size or of_a_process * world.world_size
    shuffle = data.shuffled if isinstance(data, Shuffled) else None
    return Order(sample_count(data), whole, world.rank, world.world_size, config.seed, shuffle)


def total_steps(position: Position, feed: Feed, epochs: int | None, most: int | None) -> int:
    """The number of the run's last step: the last step of its epochs, but at most `most`.

    If the length of an epoch is unknown, the number is `most`, and training may end earlier.

    Raises:
        ConfigError: The number of the last step is unknown.
    """
    left, whole = feed.left(position.samples), feed.left()
    if epochs is not None and position.epoch > epochs:
        return position.step
    if epochs is None or left is None or whole is None:
        if most is None:
            raise ConfigError("the task's train_loader has no len(): set the number of steps with --max-steps")
        return max(position.step, most)
    total = position.step + left + (epochs - position.epoch) * whole
    return total if most is None else max(position.step, min(total, most))


def _workers(config: TrainConfig, task: Task, world: World) -> int:
    """How many worker processes fetch samples for this process."""
    asked = task.workers if config.loading.workers is None else config.loading.workers
    if asked is not None:
        return asked
    # If this rank is bound to certain cores, it may use all of them, and torch has one thread for each.
    return max(torch.get_num_threads(), threads_of_each(world.local_world_size))


def check_sampler(loader: object) -> None:
    """Checks that a DataLoader and its sampler have the same data set.

    A sampler with a smaller data set would silently leave out samples.

    Raises:
        ConfigError: The sampler's data set has another length.
    """
    data, sampler = getattr(loader, "dataset", None), getattr(loader, "sampler", None)
    # A DistributedSampler keeps its data set as `dataset`, PyTorch's other samplers as `data_source`.
    sampled = getattr(sampler, "dataset", getattr(sampler, "data_source", None))
    if isinstance(data, Sized) and isinstance(sampled, Sized) and len(data) != len(sampled):
        raise ConfigError(
            f"the loader's data set has {counted(len(data), 'sample')}, but its sampler is over another data set"
            f" of {len(sampled)}: both need the same one, as in DataLoader(data, sampler=DistributedSampler(data))"
        )
