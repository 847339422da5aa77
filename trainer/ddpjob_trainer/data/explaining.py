"""Prints which process sees which sample, without training."""

from ddpjob_rank.console import counted, record, say
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.world import World

from ddpjob_trainer.config import TrainConfig
from ddpjob_trainer.task import load_task

from .feeding import order_of


def explain_shards(config: TrainConfig, world_size: int, steps: int) -> None:
    """Prints the samples of each rank in the first `steps` steps of an epoch, by their indices in the training set.

    Raises:
        ConfigError: The task has a train_loader, so each rank itself chooses its samples.
    """
    task = load_task(config)
    if task.train_loader(0, world_size) is not None:
        raise ConfigError("--explain-shards needs train_data: a train_loader itself chooses the samples of its rank")
    data = task.train_data()
    orders = [order_of(config, task, data, World(rank=rank, world_size=world_size)) for rank in range(world_size)]
    first = orders[0]
    left = first.samples - first.steps() * first.global_batch
    say(
        f"{counted(first.samples, 'sample')} for {counted(world_size, 'process')}: {counted(first.steps(), 'step')}"
        f" in an epoch, {counted(first.global_batch, 'sample')} in a step, {left} left out, different ones "
        "in each epoch"
    )
    batches = zip(*(order.batches(epoch=1) for order in orders), strict=True)
    for step, parts in zip(range(1, steps + 1), batches, strict=False):
        for rank, part in enumerate(parts):
            record("shard", epoch=1, step=step, rank=rank, samples=",".join(map(str, part.tolist())))
