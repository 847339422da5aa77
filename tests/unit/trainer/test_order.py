"""The order of samples, whatever the number of processes."""

from collections import Counter

import pytest
import torch
from ddpjob.data.order import Order
from ddpjob_rank.errors import ConfigError
from hypothesis import given
from hypothesis import strategies as st

from tests.support.seed import examples


@st.composite
def worlds(draw: st.DrawFn) -> list[Order]:
    """The orders of all ranks of a world."""
    size = draw(st.integers(1, 7))
    global_batch = draw(st.integers(size, 30))
    samples = draw(st.integers(global_batch, 120))
    seed = draw(st.integers(0, 2**40))
    return [Order(samples, global_batch, rank, size, seed) for rank in range(size)]


def steps(world: list[Order], epoch: int, cursor: int = 0) -> list[list[int]]:
    """The samples of all ranks together, step by step."""
    parts = [list(order.batches(epoch, cursor)) for order in world]
    return [torch.cat(step).tolist() for step in zip(*parts, strict=True)]


@given(worlds(), st.integers(1, 5))
@examples(0.6)
def test_each_step_is_divided_without_overlap_or_gap(world: list[Order], epoch: int) -> None:
    seen = Counter(sample for step in steps(world, epoch) for sample in step)
    first = world[0]
    assert set(seen.values()) == {1}
    assert len(seen) == first.samples - first.samples % first.global_batch
    sizes = [order.batch_size for order in world]
    assert (sum(sizes), max(sizes) - min(sizes) <= 1) == (first.global_batch, True)


@given(worlds(), st.integers(1, 7), st.data())
@examples(0.6)
def test_a_run_goes_on_at_the_next_sample_in_a_world_of_another_size(
    world: list[Order], other_size: int, data: st.DataObject
) -> None:
    first = world[0]
    size = min(other_size, first.global_batch)
    other = [Order(first.samples, first.global_batch, rank, size, first.seed) for rank in range(size)]
    done = data.draw(st.integers(0, first.steps()))
    assert steps(other, 3, done * first.global_batch) == steps(world, 3)[done:]


def test_of_a_data_set_that_has_become_shorter_nothing_is_left_of_the_epoch() -> None:
    order = Order(40, 10, 0, 1, seed=0)
    assert [(order.steps(seen), len(list(order.batches(2, seen)))) for seen in (30, 35, 40, 90)] == [
        *((1, 1), (0, 0), (0, 0), (0, 0)),
    ]


@given(worlds())
@examples(0.6)
def test_weights_make_the_average_of_means_the_mean_of_the_whole_batch(world: list[Order]) -> None:
    first = world[0]
    values = torch.rand(first.global_batch, dtype=torch.float64)
    means = [values[order.part].mean() * order.weight for order in world]
    assert torch.isclose(torch.stack(means).mean(), values.mean(), rtol=1e-12)


def test_even_parts_need_no_weight() -> None:
    assert [Order(100, 96, rank, 3, seed=0).weight for rank in range(3)] == [1.0, 1.0, 1.0]


def test_each_epoch_and_each_seed_has_an_order_of_its_own() -> None:
    orders = {tuple(map(tuple, steps([Order(40, 10, 0, 1, seed)], epoch))) for seed in (0, 50) for epoch in (1, 2)}
    assert len(orders) == 4


@pytest.mark.parametrize(
    ("samples", "global_batch", "size", "message"),
    [
        (63, 64, 2, "one step takes 64 samples across all processes, but the data set has only 63"),
        (64, 2, 3, "the global batch has 2 samples, but there are 3 processes"),
    ],
)
def test_too_few_samples_are_an_error(samples: int, global_batch: int, size: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Order(samples, global_batch, 0, size, seed=0)


def test_no_epoch_of_one_seed_has_the_order_of_an_epoch_of_another() -> None:
    orders = [
        tuple(torch.cat([*Order(50, 5, 0, 1, seed).batches(epoch)]).tolist())
        for seed in range(5)
        for epoch in range(1, 6)
    ]
    assert len(set(orders)) == len(orders)
