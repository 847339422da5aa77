"""What random numbers are drawn: others by each rank and in each epoch, and the same in each start."""

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from ddpjob.random_state import capture, derive_seed, seed_all, seed_sample
from ddpjob.training.save_settings import SaveSettings
from ddpjob.training.saver import Saved, TrainingSaver
from ddpjob_rank.reporting.agreement import Agreement
from ddpjob_rank.world import World
from ddpjob_trainer.data import feed
from ddpjob_trainer.data.feed import Uneven
from ddpjob_trainer.data.loader import Request, _Batches
from torch import Tensor
from torch.utils.data import Dataset

RANKS = 3
PLACES = list(product(range(RANKS), range(3), range(3)))
"""Neighbours and successors in each of three numbers: what two of them draw is never the same."""
CPU = torch.device("cpu")


def drawn() -> tuple[float, float, float]:
    """The next number of each generator."""
    return random.random(), float(np.random.rand()), float(torch.rand(1))  # noqa: NPY002


def worlds() -> list[World]:
    return [World(rank=rank, local_rank=rank, world_size=RANKS, local_world_size=RANKS) for rank in range(RANKS)]


def all_differ(numbers: Sequence[Any]) -> bool:
    return len(set(numbers)) == len(numbers)


@pytest.mark.parametrize("seed", [seed_all, seed_sample])
def test_each_few_numbers_seed_all_generators_in_their_own_way(seed: Callable[..., None]) -> None:
    def draws() -> list[tuple[float, float, float]]:
        each = []
        for parts in PLACES:
            seed(*parts)
            each.append(drawn())
        return each

    first = draws()
    assert all(map(all_differ, zip(*first, strict=True)))
    assert draws() == first


def test_numbers_of_any_size_and_sign_make_a_seed() -> None:
    numbers = (-(2**62), -1, 0, 1, 2**32, 2**63, 2**64 - 2)
    assert all_differ([derive_seed(*parts) for parts in product(numbers, numbers)])
    assert derive_seed(2**64 + 7) == derive_seed(7)


class Drawing:
    """Three batches, each of which is drawn when it is made."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return ((torch.rand(1), torch.zeros(1)) for _ in range(3))


def test_what_a_loader_of_its_own_draws_is_each_ranks_epochs_and_batchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "all_gather", lambda value, world: [value] * world.world_size)
    each = [
        [float(inputs) for inputs, _ in Uneven(Drawing(), world, CPU, batch_size=1, seed=0)._from(epoch, 0)]
        for world, epoch in product(worlds(), (1, 2, 3))
    ]
    assert all_differ([number for numbers in each for number in numbers])
    again = Uneven(Drawing(), worlds()[1], CPU, batch_size=1, seed=0)
    assert [float(inputs) for inputs, _ in again._from(2, 1)] == each[1 * 3 + 1][1:], "wherever it goes on"
    other = Uneven(Drawing(), worlds()[1], CPU, batch_size=1, seed=1)
    assert next(other._from(2, 0))[0] != each[1 * 3 + 1][0]


class Augmented(Dataset[Any]):
    """Each sample is drawn when it is fetched."""

    def __getitem__(self, _: int) -> Tensor:
        return torch.rand(1)


def test_what_is_drawn_for_a_sample_is_its_own_in_each_epoch_and_whoever_fetches_it() -> None:
    each = {
        (seed, epoch): [float(one) for one in _Batches(Augmented(), seed)[Request(epoch, [0, 1, 2])]]
        for seed, epoch in product(range(3), (1, 2, 3))
    }
    assert all_differ([number for numbers in each.values() for number in numbers])
    assert [float(one) for one in _Batches(Augmented(), 1)[Request(2, [2, 0])]] == [each[1, 2][2], each[1, 2][0]]


def test_each_rank_goes_on_with_its_own_generators_or_with_new_ones_of_its_own_where_there_were_fewer() -> None:
    saved = []
    for rank in range(RANKS):
        seed_all(rank)
        saved.append(capture())
    went_on = [drawn_after(world, saved, 7) for world in worlds()]
    for rank, numbers in enumerate(went_on):
        seed_all(rank)
        assert drawn() == numbers
    reseeded = [drawn_after(world, saved[:2], step) for world, step in product(worlds(), (7, 8, 9))]
    assert all_differ([*reseeded, *went_on])
    assert drawn_after(worlds()[1], saved[:2], 8) == reseeded[1 * 3 + 1]


def drawn_after(world: World, generators: list[Any], step: int) -> tuple[float, float, float]:
    """What a rank draws that goes on at this step."""
    agreement = Agreement(None, "", hosts=[], rank=0, size=1, warn=pytest.fail)
    saver = TrainingSaver(SaveSettings(uid="", attempt=0), world, agreement, check_finite=lambda _: None)
    ranks = [{"random": each} for each in generators]
    saver.restore_random(Saved({"ranks": ranks, "position": (step, 1, 0)}, ""))
    return drawn()
