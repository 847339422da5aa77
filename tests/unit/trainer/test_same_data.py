"""What tells a run's data from other data, and what does not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ddpjob_examples.images.files import ImageFiles
from ddpjob_examples.images.shards import ImageShards
from ddpjob_trainer.data.data_identity import DataIdentity
from ddpjob_trainer.data.fingerprint import fingerprint
from torch import Tensor
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

from tests.training.pictures import as_files, as_shards

A = DataIdentity(0, 1437, ("float32[1437,64]", "0.25", "int64[1437]", "7"))


@pytest.mark.parametrize(
    ("then", "now", "told"),
    [
        (A, A, []),
        (DataIdentity(), A, []),
        (A, DataIdentity(0), []),
        (DataIdentity(0), DataIdentity(1), ["--seed was 0, is 1"]),
        (DataIdentity(0, 1437), DataIdentity(0, 1, ("b",)), ["the data set had 1437 samples, has 1"]),
        (
            A,
            DataIdentity(1, 1437, ("float32[1437,64]", "-1")),
            ["--seed was 0, is 1", "the data set's fingerprint had 0.25, has -1 in its place"],
        ),
        (
            DataIdentity(0, 3, ("a", "b")),
            DataIdentity(0, 3, ("a",)),
            ["the data set's fingerprint had b, has nothing in its place"],
        ),
        (DataIdentity(0, 3, ("0.25", "1e-9", "nan")), DataIdentity(0, 3, ("0.25001", "-3e-8", "nan")), []),
    ],
    ids=["the same", "unknown then", "unknown now", "seed", "length", "two things", "less", "rounding"],
)
def test_what_differs_is_told_with_both_values_and_what_is_unknown_is_the_same(
    then: DataIdentity, now: DataIdentity, told: list[str]
) -> None:
    assert then.differences(now) == told


@pytest.mark.parametrize(
    ("samples", "within"), [(0, False), (64, True), (1437 - 64, True), (1437 - 63, False), (2000, False)]
)
def test_a_position_is_within_an_epoch_if_steps_come_before_and_after_it(samples: int, within: bool) -> None:  # noqa: FBT001  (a column of the table)
    assert A.within_epoch(samples, 64) is within
    assert not DataIdentity(0).within_epoch(samples, 64)


class Unreadable(Dataset[Any]):
    """Others' samples, which nobody may fetch here."""

    def __init__(self, **kept: Any) -> None:
        vars(self).update(kept)

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("a sample was fetched")


class Named(Unreadable):
    def fingerprint(self) -> str:
        return str(vars(self)["name"])


def digits(seed: int, *shape: int) -> Tensor:
    return torch.randint(10, shape, generator=torch.Generator().manual_seed(seed))


Make = Callable[[int], Any]
DATA: dict[str, Make] = {
    "tensors": lambda seed: TensorDataset(torch.zeros(90, 5), digits(seed, 90)),
    "their shape": lambda seed: TensorDataset(torch.zeros(90, 5 + seed)),
    "their type": lambda seed: TensorDataset(torch.zeros(90, dtype=(torch.uint8, torch.float16)[seed])),
    "an array": lambda seed: Unreadable(data=digits(seed, 90, 8, 8).numpy()),
    "a list": lambda seed: Unreadable(targets=digits(seed, 90).tolist()),
    "a part": lambda seed: Subset(Unreadable(), range(seed, seed + 9)),
    "a part of another": lambda seed: Subset(TensorDataset(digits(seed, 90)), range(9)),
    "parts": lambda seed: ConcatDataset([TensorDataset(digits(part * seed, 9)) for part in range(3)]),
    "one within another": lambda seed: Unreadable(images=Unreadable(targets=digits(seed, 90))),
    "what it says itself": lambda seed: Subset(Named(name=f"version {seed}"), range(9)),
}


@pytest.mark.parametrize("what", DATA)
def test_of_two_data_sets_that_differ_the_fingerprints_do_and_of_the_same_they_are_the_same(what: str) -> None:
    make = DATA[what]
    one, same, other = (DataIdentity(0, 9, fingerprint(make(seed))) for seed in (0, 0, 1))
    assert one.fingerprint
    assert one.differences(same) == []
    assert len(one.differences(other)) == 1


STRANGE: dict[str, Any] = {
    "no data set": [1, 2, 3],
    "nothing to see": Unreadable(),
    "nothing in it": TensorDataset(torch.zeros(0, 3)),
    "a single number": Unreadable(data=torch.tensor(3.0)),
    "no numbers": Unreadable(targets=["cat", "dog"], data=np.array([object(), None])),
    "sparse": Unreadable(data=torch.eye(3).to_sparse()),
    "memory that is not in a row": Unreadable(data=digits(0, 8, 9).T),
    "an empty list": Unreadable(targets=[], data=[]),
}


@pytest.mark.parametrize("what", STRANGE)
def test_whatever_a_data_set_keeps_it_is_no_error(what: str) -> None:
    assert fingerprint(STRANGE[what]) == fingerprint(STRANGE[what])


def test_a_data_set_within_itself_has_an_end() -> None:
    data = Unreadable(targets=[1])
    vars(data)["next"] = data
    assert fingerprint(data)


def test_sums_in_another_order_as_on_another_machine_are_no_other_data() -> None:
    drawn = torch.randn(3000, 64, generator=torch.Generator().manual_seed(0)) + 1
    one, other = drawn - drawn.mean(0), drawn - drawn.cumsum(0)[-1] / len(drawn)
    assert not torch.equal(one, other), "the premise"
    identities = [DataIdentity(0, 3000, fingerprint(TensorDataset(each))) for each in (one, other)]
    assert identities[0].differences(identities[1]) == []


def lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + bytes(512))


CHANGES: dict[str, tuple[Callable[..., Path], Callable[[Path], object]]] = {
    "an image has another name": (as_files, lambda train: (train / "cat/00001.jpg").rename(train / "cat/00001.png")),
    "an image has another size": (as_files, lambda train: lengthen(train / "dog/00002.jpg")),
    "an image is of another class": (as_files, lambda train: (train / "dog/00002.jpg").rename(train / "cat/2.jpg")),
    "a class has another name": (as_files, lambda train: (train / "cat").rename(train / "cow")),
    "a shard has another name": (as_shards, lambda train: (train / "train-0001.tar").rename(train / "1.tar")),
    "a shard has another size": (as_shards, lambda train: lengthen(train / "train-0001.tar")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_images_may_be_elsewhere_and_are_others_once_one_has_changed(tmp_path: Path, change: str) -> None:
    make, change_it = CHANGES[change]

    def found(directory: Path) -> tuple[str, ...]:
        kind = ImageFiles if make is as_files else ImageShards
        return fingerprint(kind(directory / "train", lambda image: torch.tensor(image.size)))

    before = found(make(tmp_path / "here", train=4, val=0))
    there = (tmp_path / "here").rename(tmp_path / "there")
    assert found(there) == before
    change_it(there / "train")
    assert found(there) != before
