"""Our batch sampler: each sample once in an epoch, wherever it is interrupted, whatever number of ranks goes on."""

import random
from collections import Counter
from itertools import chain, islice
from typing import Any

import pytest
import torch
from ddpjob.data import DistributedBatchSampler
from ddpjob.data.resumable_loader import ResumableLoader
from ddpjob_rank.errors import ConfigError
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from tests.support.seed import SEED, examples


def of_ranks(samples: int, batch: int, size: int, **options: Any) -> list[DistributedBatchSampler]:
    return [DistributedBatchSampler(range(samples), batch, size, rank, **options) for rank in range(size)]


@st.composite
def lives(draw: st.DrawFn) -> tuple[int, int, list[tuple[int, int, int]]]:
    """Samples, samples per step, and for each part of an epoch: the ranks, their steps, and what they draw ahead."""
    batch = draw(st.integers(1, 12))
    part = st.tuples(st.integers(1, batch), st.integers(0, 5), st.integers(0, 4))
    return (
        draw(st.integers(batch, 80)),
        batch,
        [*draw(st.lists(part, max_size=4)), (draw(st.integers(1, batch)), 99, 0)],
    )


@given(lives(), st.booleans())
@examples(1)
def test_an_epoch_that_is_interrupted_and_resized_at_random_loses_and_repeats_no_sample(
    drawn: tuple[int, int, list[tuple[int, int, int]]],
    shuffle: bool,  # noqa: FBT001
) -> None:
    samples, batch, parts = drawn
    cursor, seen, repeated = 0, Counter[int](), 0
    for size, steps, ahead in parts:
        ranks = of_ranks(samples, batch, size, shuffle=shuffle)
        for sampler in ranks:
            sampler.load_state_dict({"epoch": 3, "samples": cursor, "of": samples, "seed": 0})
            sampler.set_epoch(3)
        each = [list(islice(sampler, steps + ahead))[:steps] for sampler in ranks]
        for step in zip(*each, strict=True):
            assert max(map(len, step)) - min(map(len, step)) <= 1
            assert all(step), "each rank has a sample in each step"
            seen.update(chain(*step))
        (after,) = {sampler.state_dict(len(each[0]))["samples"] for sampler in ranks}
        repeated += max(0, size - (samples - cursor)) if each[0] else 0
        cursor = after
    assert set(seen) == set(range(samples))
    assert seen.total() - samples == repeated


@pytest.mark.parametrize(("samples", "size", "sizes"), [(20, 3, [8, 8, 4]), (18, 3, [8, 10]), (16, 3, [8, 8])])
def test_the_last_batch_is_smaller_or_takes_what_is_too_little_for_all_ranks(
    samples: int, size: int, sizes: list[int]
) -> None:
    ranks = of_ranks(samples, 8, size)
    assert [sum(map(len, step)) for step in zip(*ranks, strict=True)] == sizes
    assert len(ranks[0]) == len(sizes)


def test_after_a_resize_before_a_last_batch_with_fewer_samples_than_ranks_some_are_repeated() -> None:
    ranks = of_ranks(10, 4, 4)
    for sampler in ranks:
        sampler.load_state_dict({"epoch": 0, "samples": 8, "of": 10, "seed": 0})
    ((*parts,),) = zip(*ranks, strict=True)
    assert [len(part) for part in parts] == [1, 1, 1, 1]
    assert len({index for part in parts for index in part}) == 2


def test_the_last_samples_can_be_left_out_other_ones_in_each_epoch() -> None:
    (sampler,) = of_ranks(10, 4, 1, drop_last=True)
    left = {tuple(set(range(10)).difference(*sampler)) for _ in range(5)}
    assert (len(sampler), {len(out) for out in left}) == (2, {2})
    assert len(left) > 1


def test_an_epoch_follows_the_other_even_if_set_epoch_is_forgotten() -> None:
    (sampler,) = of_ranks(20, 4, 1)
    first, second = list(sampler), list(sampler)
    sampler.set_epoch(1)
    assert (first != second, list(sampler)) == (True, second)
    sampler.set_epoch(1)
    assert list(sampler) == second, "an epoch that is asked for again"


def test_a_loop_that_is_left_begins_the_epoch_again() -> None:
    (sampler,) = of_ranks(20, 4, 1)
    first = next(iter(sampler))
    assert next(iter(sampler)) == first


def test_a_position_of_other_data_is_refused() -> None:
    (sampler,), (other,), (shorter,) = of_ranks(20, 4, 1), of_ranks(20, 4, 1, seed=1), of_ranks(19, 4, 1)
    for changed in (other, shorter):
        with pytest.raises(ConfigError, match="the position in the data is that of 20 samples with seed 0, but "):
            changed.load_state_dict(sampler.state_dict())


def test_a_data_set_may_choose_its_order() -> None:
    class Backwards(list[int]):
        def shuffled(self, _: torch.Generator) -> torch.Tensor:
            return torch.arange(len(self)).flip(0)

    assert list(DistributedBatchSampler(Backwards(range(4)), 2)) == [[3, 2], [1, 0]]
    assert list(DistributedBatchSampler(range(4), 2, shuffle=False)) == [[0, 1], [2, 3]]


@pytest.mark.parametrize("workers", [0, 2])
def test_in_a_plain_loader_the_position_is_what_training_has_got(workers: int) -> None:
    number = random.Random(SEED)
    seen, states, samples = Counter[int](), [], 53
    for size, steps in ((2, number.randrange(1, 5)), (3, None)):
        after = []
        for rank in range(size):
            sampler = DistributedBatchSampler(range(samples), 6, size, rank)
            data = DataLoader(range(samples), batch_sampler=sampler, num_workers=workers)  # type: ignore[arg-type]
            loader = ResumableLoader(data, rank=rank, size=size)
            loader.restore(states)
            for batch in islice(loader.batches(2), steps):
                seen.update(batch.tolist())
            after.append(loader.state())
        states = after
    assert seen == Counter(range(samples))


def test_an_epoch_whose_position_is_that_of_other_data_begins_again(capsys: pytest.CaptureFixture[str]) -> None:
    def loader(samples: int, rank: int = 0) -> ResumableLoader:
        sampler = DistributedBatchSampler(range(samples), 4, 1)
        data: Any = DataLoader(range(samples), batch_sampler=sampler)  # type: ignore[arg-type]
        return ResumableLoader(data, rank=rank, size=rank + 1)

    first = loader(20)
    seen = [batch.tolist() for batch in islice(first.batches(1), 2)]
    state = first.state()
    shorter = loader(16)
    shorter.restore([state])
    assert sorted(chain(*(batch.tolist() for batch in shorter.batches(1)))) == list(range(16))
    assert capsys.readouterr().err.startswith(
        "warning: epoch 2 begins again, and the samples seen in it are seen twice: the position in the data is that"
        " of 20 samples with seed 0, but the data set has 16 samples"
    )
    again = loader(20)
    again.restore([state])
    assert len({index for batch in again.batches(1) for index in batch.tolist()} | {*chain(*seen)}) == 20
    other = loader(16, rank=1)
    other.restore([state, state])
    list(other.batches(1))
    assert capsys.readouterr().err == "", "rank 0 alone says so"
