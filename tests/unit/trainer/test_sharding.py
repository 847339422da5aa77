"""Three ways to divide a data set among ranks, and what each does with a tail that cannot be divided evenly."""

from collections import Counter

import pytest
import torch
from ddpjob.data.order import Order
from ddpjob_rank.errors import ConfigError
from ddpjob_trainer.data.feeding import check_sampler
from torch.utils.data import DataLoader, RandomSampler, TensorDataset
from torch.utils.data.distributed import DistributedSampler

SIZES = [(90, 2), (90, 4), (91, 3), (100, 7)]
BATCH = 6


def by_hand(samples: int, rank: int, world_size: int) -> list[int]:
    """What a script does that has no sampler: every so many-th sample, from its rank on."""
    return list(range(samples))[rank::world_size]


def by_sampler(samples: int, rank: int, world_size: int, epoch: int = 0) -> list[int]:
    sampler = DistributedSampler(TensorDataset(torch.zeros(samples)), num_replicas=world_size, rank=rank)
    sampler.set_epoch(epoch)
    return list(sampler)


def by_order(samples: int, rank: int, world_size: int, epoch: int = 0) -> list[int]:
    order = Order(samples, BATCH * world_size, rank, world_size, 0)
    return [int(index) for batch in order.batches(epoch) for index in batch]


@pytest.mark.parametrize(("samples", "world_size"), SIZES)
def test_shards_made_by_hand_are_the_whole_data_set_with_nothing_twice(samples: int, world_size: int) -> None:
    shards = [by_hand(samples, rank, world_size) for rank in range(world_size)]
    assert Counter(index for shard in shards for index in shard) == Counter(range(samples))


@pytest.mark.parametrize(("samples", "world_size"), SIZES)
def test_the_samplers_are_too_but_for_as_many_samples_twice_as_make_them_even(samples: int, world_size: int) -> None:
    shards = [by_sampler(samples, rank, world_size) for rank in range(world_size)]
    seen = Counter(index for shard in shards for index in shard)
    assert set(seen) == set(range(samples))
    assert len({len(shard) for shard in shards}) == 1
    assert seen.total() - samples == -samples % world_size


@pytest.mark.parametrize(("samples", "world_size"), SIZES)
def test_ours_have_nothing_twice_and_leave_out_what_fills_no_whole_step(samples: int, world_size: int) -> None:
    shards = [by_order(samples, rank, world_size) for rank in range(world_size)]
    seen = Counter(index for shard in shards for index in shard)
    assert set(seen.values()) == {1}
    assert samples - seen.total() == samples % (BATCH * world_size)


@pytest.mark.parametrize("shards_of", [by_sampler, by_order])
def test_an_epoch_has_an_order_of_its_own(shards_of) -> None:  # noqa: ANN001  (one of two functions above)
    assert shards_of(90, 1, 2, epoch=0) != shards_of(90, 1, 2, epoch=1)


def test_over_epochs_ours_leave_out_other_samples_each_time() -> None:
    seen = [{index for rank in range(2) for index in by_order(91, rank, 2, epoch)} for epoch in range(20)]
    assert set.union(*seen) == set(range(91))
    assert len({frozenset(shard) for shard in seen}) > 1


@pytest.mark.parametrize(
    "sampler_of",
    [RandomSampler, lambda data: DistributedSampler(data, num_replicas=2, rank=0)],
    ids=["random", "dist"],
)
def test_a_sampler_over_another_data_set_than_its_loaders_is_refused(sampler_of) -> None:  # noqa: ANN001  (as above)
    data, other = TensorDataset(torch.zeros(10)), TensorDataset(torch.zeros(8))
    check_sampler(DataLoader(data, sampler=sampler_of(data)))
    check_sampler(DataLoader(data))
    check_sampler([torch.zeros(1)])
    with pytest.raises(ConfigError, match="data set has 10 samples, but its sampler is over another data set of 8"):
        check_sampler(DataLoader(data, sampler=sampler_of(other)))
