"""Batches: what a data set gives, and what is made of it."""

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import torch
from ddpjob.data.order import Order
from ddpjob_rank.errors import ConfigError
from ddpjob_trainer.data.copying import moved, prefetch_one
from ddpjob_trainer.data.loader import Loader, sample_count
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, TensorDataset

CPU = torch.device("cpu")


def batches(data: Dataset[Any], *indices: list[int], workers: int = 0) -> list[tuple[Any, Any]]:
    loader = Loader(data, seed=0, device=CPU, workers=workers)
    return list(loader.batches(1, map(torch.tensor, indices)))


class OpenedLate(Dataset[tuple[int, int]]):
    """As one that opens a file for its first sample; tells which process did, and which one reads."""

    opened_by: int | None = None

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> tuple[int, int]:
        self.opened_by = self.opened_by or os.getpid()
        return self.opened_by, os.getpid()


def test_without_workers_the_process_itself_fetches_the_first_batch() -> None:
    loader = Loader(OpenedLate(), seed=0, device=CPU)
    assert set(loader.batch(torch.arange(2))[1].tolist()) == {os.getpid()}


class Turned(TensorDataset):
    """Does something with each sample."""

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        row, label = super().__getitem__(index)
        return row.flip(0), label


def test_a_class_derived_from_a_data_set_in_memory_is_asked_for_one_sample_after_another() -> None:
    data = Turned(torch.arange(6).view(3, 2), torch.arange(3))
    ((rows, labels),) = batches(data, [2, 0])
    assert rows.tolist() == [[5, 4], [1, 0]]
    assert labels.tolist() == [2, 0]


class Given(Dataset[Any]):
    """The same sample always."""

    def __init__(self, sample: Any) -> None:
        self._sample = sample

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        return self._sample


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("sample", "what"),
    [({"image": 1.0, "label": 1}, "dict"), ((1.0, 2.0, 3), "list of 3"), (torch.zeros(2), "Tensor")],
)
def test_a_sample_that_is_no_pair_is_one_clear_error(sample: Any, what: str, workers: int) -> None:
    with pytest.raises(ConfigError, match=f"a batch is a {what}: it must be a pair"):
        batches(Given(sample), [0, 1], workers=workers)


class Named(NamedTuple):
    words: Tensor
    mask: list[Tensor]


def test_a_batch_keeps_its_structure_on_its_device() -> None:
    batch = {"named": Named(torch.zeros(1), [torch.ones(1)]), "name": "x"}
    there = moved(batch, torch.device("meta"))
    assert isinstance(there["named"], Named)
    assert [there["named"].words.device.type, there["named"].mask[0].device.type] == ["meta", "meta"]
    assert there["name"] == "x"


class Stream(IterableDataset[int]):
    def __len__(self) -> int:
        return 8

    def __iter__(self) -> Iterator[int]:
        return iter(range(8))


def test_a_stream_is_told_from_a_data_set_with_what_to_do() -> None:
    with pytest.raises(ConfigError, match="Stream cannot be indexed: have the task's train_loader return batches"):
        sample_count(Stream())


def test_an_order_that_leaves_samples_out_is_an_error() -> None:
    order = Order(10, 2, 0, 1, 0, lambda _: torch.arange(8))
    with pytest.raises(ConfigError, match="returned 8 indices for 10 samples"):
        next(order.batches(1))


def test_a_batch_is_made_while_the_one_before_it_is_used() -> None:
    """As on a GPU; on the CPU streams do nothing."""
    made: list[int] = []

    def pairs() -> Iterator[tuple[Any, Any]]:
        for number in range(3):
            made.append(number)
            yield {"inputs": torch.tensor(number)}, [torch.tensor(number)]

    seen = [(inputs["inputs"].item(), target[0].item(), len(made)) for inputs, target in prefetch_one(pairs(), CPU)]
    assert seen == [(0, 0, 2), (1, 1, 3), (2, 2, 3)]


def test_a_data_set_has_at_least_one_sample() -> None:
    assert [sample_count(TensorDataset(torch.zeros(count, 1))) for count in (1, 2)] == [1, 2]
    with pytest.raises(ConfigError, match=r"^TensorDataset is empty: a task's data must have samples$"):
        sample_count(TensorDataset(torch.zeros(0, 1)))


class Drawing(Dataset[Any]):
    """Each sample is drawn when it is fetched."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.rand(1), index


def test_what_is_drawn_for_samples_leaves_the_generators_of_the_model_as_they_were() -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    batches(Drawing(), [0, 1], [2, 3])
    assert torch.equal(torch.rand(1), expected)
