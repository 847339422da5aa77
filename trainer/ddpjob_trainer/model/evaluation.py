"""Evaluates a model: its mean loss and metrics over a held-out set, in which each sample counts once."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import takewhile
from typing import Any

import torch
from ddpjob.group.collectives import all_gather, broadcast_buffers
from ddpjob.random_state import rng_preserved
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.world import World
from torch import Tensor, nn

from ddpjob_trainer.data.loader import Loader
from ddpjob_trainer.recording.reporter import Evaluation
from ddpjob_trainer.task import Task

from .amp import Autocast

OWN = frozenset(
    {"loss", "epoch", "step", "samples", "samples_per_second", "seconds", "time", "event", "attempt", "word"}
)
"""Names that a task's metrics must not have, because the run reports other values under these names."""


class IncompleteError(Exception):
    """A rank did not finish the evaluation, because it was told to stop."""


Sums = tuple[int, dict[str, float]]
"""The number of samples, and the sums of their loss and metrics by name."""

OnBatch = Callable[[Tensor, Any, Any], object]
"""A function that is called for each batch of this rank with its samples' indices, the output and the target."""


def evaluate(
    model: nn.Module,
    task: Task,
    data: Loader,
    *,
    autocast: Autocast = nullcontext,
    world: World,
    batch_size: int,
    on_batch: OnBatch = lambda *_: None,
    goes_on: Callable[[], bool] = lambda: True,
) -> Evaluation | None:
    """Evaluates on all ranks together; rank 0 gets the result, the others None.

    `goes_on` is called before each batch of this rank. If it returns False, the remaining batches are skipped.

    `model` must not be wrapped in DistributedDataParallel, which would make each rank wait for the others in every
    batch: ranks may have different numbers of batches.

    Raises:
        IncompleteError: A rank has skipped some of its batches. All ranks raise this.
    """
    broadcast_buffers(model, world)
    shard = _shard(data.samples, world, batch_size)
    was_training = model.training
    model.eval()
    with torch.no_grad(), rng_preserved(), autocast():
        pairs = takewhile(lambda _: goes_on(), data.batches(0, shard))
        parts = all_gather(_sums(model, task, shard, pairs, on_batch), world)
    model.train(was_training)
    if sum(samples for samples, _ in parts) < data.samples:
        raise IncompleteError
    return _result(parts) if world.leads else None


def _shard(samples: int, world: World, batch_size: int) -> list[Tensor]:
    """This rank's batches. Each sample belongs to one rank, without padding, so a rank may have one sample more."""
    mine = torch.arange(samples)[world.rank :: world.world_size]
    return [batch for batch in torch.split(mine, batch_size) if len(batch)]


def _sums(
    model: nn.Module, task: Task, shard: list[Tensor], pairs: Iterator[tuple[Any, Any]], on_batch: OnBatch
) -> Sums:
    samples = 0
    sums: dict[str, Tensor] = {}  # They stay on the device: reading each value would make the CPU wait.
    for indices, (inputs, target) in zip(shard, pairs, strict=False):
        output = model(inputs)
        on_batch(indices, output, target)
        samples += len(indices)
        metrics = task.metrics(output, target)
        if taken := OWN & metrics.keys():
            raise ConfigError(
                f"{type(task).__name__}.metrics has a metric named {min(taken)}, a name that the run uses "
                "itself: choose another one"
            )
        for name, value in {**metrics, "loss": task.loss(output, target) * len(indices)}.items():
            sums[name] = sums.get(name, 0.0) + torch.as_tensor(value, dtype=torch.float64)
    return samples, {name: value.item() for name, value in sums.items()}


def _result(parts: list[Sums]) -> Evaluation:
    samples = sum(count for count, _ in parts)
    names = list(dict.fromkeys(name for _, sums in parts for name in sums))
    means = {name: sum(sums.get(name, 0.0) for _, sums in parts) / samples for name in names}
    return Evaluation(loss=means.pop("loss"), metrics=means, samples=samples)
