"""Batches: samples fetched in a given order and moved to the device."""

from collections.abc import Iterable, Iterator, Sized
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset

from ddpjob_trainer.errors import ConfigError


def batches(data: Dataset[Any], indices: Iterable[Tensor], device: torch.device) -> Iterator[tuple[Any, Any]]:
    """Pairs of inputs and targets, one for each tensor of indices."""
    for inputs, target in _loader(data, indices):
        yield moved(inputs, device), moved(target, device)


def sample_count(data: Dataset[Any]) -> int:
    """How many samples a data set has.

    Raises:
        ConfigError: None, or it does not know, so that it cannot be divided among processes.
    """
    if not isinstance(data, Sized):
        raise ConfigError(f"{type(data).__name__} has no length: a task's data must be indexed and have one")
    if len(data) == 0:
        raise ConfigError(f"{type(data).__name__} is empty: a task's data must have samples")
    return len(data)


def _loader(data: Dataset[Any], indices: Iterable[Tensor]) -> DataLoader[Any]:
    # A generator of its own: the loader draws a seed, and where an epoch is begun anew in its middle that must not
    # shift the random numbers that the model draws.
    generator = torch.Generator()
    if isinstance(data, TensorDataset):
        # One indexing of whole tensors in place of one per sample and a collation.
        return DataLoader(data, batch_size=None, sampler=_Indices(indices), generator=generator)
    return DataLoader(data, batch_sampler=_Lists(indices), generator=generator)


class _Indices:
    """Batches of indices, as the loader's sampler."""

    def __init__(self, indices: Iterable[Tensor]) -> None:
        self._indices = indices

    def __iter__(self) -> Iterator[Any]:
        return iter(self._indices)


class _Lists(_Indices):
    """The same as lists of numbers, for data sets that are indexed sample by sample."""

    def __iter__(self) -> Iterator[list[int]]:
        return (batch.tolist() for batch in self._indices)


def moved(batch: Any, device: torch.device) -> Any:
    """A batch on a device, whatever its structure."""
    match batch:
        case Tensor():
            return batch.to(device, non_blocking=True)
        case dict():
            return {key: moved(value, device) for key, value in batch.items()}
        case list() | tuple():
            return type(batch)(moved(value, device) for value in batch)
        case _:
            return batch
