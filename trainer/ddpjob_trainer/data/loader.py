"""Fetches batches of samples in a given order, in this process or in workers, and moves the batches to the device.

Before each sample is fetched, the random generators are seeded with the run's seed, the epoch and the sample's index.
Thus a random augmentation of the sample is the same whichever process fetches it: a rank or its worker, before or
after a resumption, with any number of processes.
"""

import functools
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from ddpjob.random_state import rng_preserved, seed_sample
from ddpjob_rank.errors import ConfigError, TrainerError
from ddpjob_rank.machine.parent_death import die_with
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate, get_worker_info

from .copying import Pair, pair, prefetch_on_gpu


class Loader:
    """Fetches sequences of batches of one data set.

    The workers are started with the first sequence and are kept for later ones, because forking new workers would
    copy a rank that has grown and has threads.
    """

    def __init__(
        self,
        data: Dataset[Any],
        *,
        seed: int,
        device: torch.device,
        workers: int = 0,
        inputs: Callable[[Any], Any] = lambda samples: samples,
    ) -> None:
        """`inputs` is called to make the model's inputs from samples that are on the device."""
        self.data, self.samples = data, sample_count(data)
        self._inputs = inputs
        self._device = device
        self._batches = _Batches(data, seed)
        # For data in memory, sending samples from a worker to its rank takes longer than fetching them.
        self._workers = 0 if _in_memory(data) else workers
        self._requests = _Requests(to_workers=self._workers > 0)
        self._loader = self._loading(self._requests, self._workers, stay=self._workers > 0)

    def _loading(self, requests: Iterable["Request"], workers: int, *, stay: bool) -> DataLoader[Any]:
        return DataLoader(
            self._batches,
            batch_size=None,  # A request is a whole batch.
            sampler=requests,
            collate_fn=_as_it_is,
            num_workers=workers,
            persistent_workers=stay,
            # Fork, because forked workers share the data set's memory and are children of the rank.
            multiprocessing_context="fork" if workers else None,
            worker_init_fn=functools.partial(_become_worker, os.getpid()),
            pin_memory=self._device.type == "cuda",
            # The DataLoader draws its seed from this generator, and not from the one that the model uses.
            generator=torch.Generator(),
        )

    def batches(self, epoch: int, indices: Iterable[Tensor]) -> Iterator[tuple[Any, Any]]:
        """Yields pairs of inputs and targets, one pair for each tensor of sample indices.

        Raises:
            TrainerError: The data set has raised this error, because it cannot fetch a sample.
        """
        self._requests.epoch, self._requests.indices = epoch, indices
        pairs = map(self._on_device, self._loader)
        for samples, target in prefetch_on_gpu(pairs, self._device):
            yield self._inputs(samples), target

    def batch(self, indices: Tensor) -> tuple[Any, Any]:
        """Fetches a single batch before the workers are started.

        If there are to be workers, a temporary worker fetches the batch. If this process fetched it, all workers
        would inherit the files that the data set opens for its first sample, and share the position in these files.
        """
        requests = [Request(0, indices.tolist() if self._workers else indices)]
        samples, target = self._on_device(next(iter(self._loading(requests, min(1, self._workers), stay=False))))
        return self._inputs(samples), target

    def _on_device(self, batch: Any) -> Pair:
        if isinstance(batch, TrainerError):
            raise batch
        return pair(batch, self._device)


class Request(NamedTuple):
    """A batch to be fetched."""

    epoch: int
    indices: Tensor | Sequence[int]


def sample_count(data: Dataset[Any]) -> int:
    """How many samples a data set has.

    Raises:
        ConfigError: The data set is empty, or its length is unknown, so that it cannot be divided among processes.
    """
    if isinstance(data, DataLoader):
        raise ConfigError(
            f"{type(data).__name__} is not a data set: give the data set that it loads, because ddpjob-train makes "
            "the batches of each process"
        )
    if isinstance(data, IterableDataset):
        raise ConfigError(
            f"{type(data).__name__} cannot be indexed: have the task's train_loader return batches, "
            "different ones for each process"
        )
    if not isinstance(data, Sized):
        raise ConfigError(f"{type(data).__name__} has no length: a task's data must have a length and be indexed")
    if len(data) == 0:
        raise ConfigError(f"{type(data).__name__} is empty: a task's data must have samples")
    return len(data)


def _in_memory(data: Dataset[Any]) -> bool:
    """Whether one indexing can fetch many samples, as in a TensorDataset (but not in every subclass of it)."""
    return isinstance(data, TensorDataset) and type(data).__getitem__ is TensorDataset.__getitem__


class _Requests:
    """The sampler of the DataLoader: yields a request for each batch to fetch."""

    epoch = 0
    indices: Iterable[Tensor] = ()

    def __init__(self, *, to_workers: bool) -> None:
        self._to_workers = to_workers

    def __iter__(self) -> Iterator[Request]:
        # Workers get lists, because tensors would be sent through shared memory.
        return (Request(self.epoch, batch.tolist() if self._to_workers else batch) for batch in self.indices)


class _Batches(Dataset[Any]):
    """A data set whose items are whole batches. It seeds the generators before each sample."""

    def __init__(self, data: Dataset[Any], seed: int) -> None:
        self._data = data
        self._seed = seed
        self._at_once = _in_memory(data)

    def __getitem__(self, request: Request) -> Any:
        """Returns the batch, or the error. If a worker raised the error instead, a long traceback would hide it."""
        if self._at_once:
            return self._data[request.indices]  # Indexes whole tensors once, which draws no random numbers.
        # In a rank, the model uses the same generators, so their state is restored. A worker has no model.
        with nullcontext() if get_worker_info() else rng_preserved():
            try:
                return default_collate([self._sample(request.epoch, index) for index in map(int, request.indices)])
            except TrainerError as error:
                return error

    def _sample(self, epoch: int, index: int) -> Any:
        seed_sample(self._seed, epoch, index)
        return self._data[index]


def _as_it_is(batch: Any) -> Any:
    return batch


def _become_worker(rank: int, _number: int) -> None:
    """Makes a worker end only when its rank ends. It ignores signals, because only the rank must handle them."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    die_with(rank)
