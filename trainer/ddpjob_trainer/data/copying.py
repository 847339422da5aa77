"""Copies batches to the device. A GPU can compute with one batch while the next one is copied."""

from collections.abc import Iterator
from typing import Any

import torch
from ddpjob_rank.console import with_article
from ddpjob_rank.errors import ConfigError
from torch import Tensor

Pair = tuple[Any, Any]
"""The inputs and the target of a batch."""


def pair(batch: Any, device: torch.device) -> tuple[Any, Any]:
    """The inputs and the target of a batch, on a device.

    Raises:
        ConfigError: The batch is not a pair.
    """
    if not (isinstance(batch, list | tuple) and len(batch) == len(("inputs", "target"))):
        size = f" of {len(batch)}" if isinstance(batch, list | tuple) else ""
        raise ConfigError(
            f"a batch is {with_article(type(batch).__name__)}{size}: it must be a pair of the model's input and the "
            "loss's target, and so must each sample"
        )
    inputs, target = batch
    return moved(inputs, device), moved(target, device)


def moved(batch: Any, device: torch.device) -> Any:
    """Moves a batch to a device, including all tensors within its dicts, lists and tuples."""
    match batch:
        case Tensor():
            return batch.to(device, non_blocking=True)
        case dict():
            return {key: moved(value, device) for key, value in batch.items()}
        case tuple() if hasattr(batch, "_fields"):  # A named tuple.
            return type(batch)(*(moved(value, device) for value in batch))
        case list() | tuple():
            return type(batch)(moved(value, device) for value in batch)
        case _:
            return batch


def prefetch_on_gpu(pairs: Iterator[Pair], device: torch.device) -> Iterator[Pair]:
    """Calls `prefetch_one` only if the device is a GPU, because a CPU cannot copy while it computes."""
    return prefetch_one(pairs, device) if device.type == "cuda" else pairs


def prefetch_one(pairs: Iterator[Pair], device: torch.device) -> Iterator[Pair]:
    """Yields the same pairs, but copies each in a separate CUDA stream while the device uses the previous pair.

    This takes memory for one more batch on the device. `pairs` must not draw random numbers, because the next pair
    has already been made when the state of the random generators is saved after a step.
    (https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-streams)
    """
    streams = torch.get_device_module(device)
    stream = streams.Stream(device) if device.type != "cpu" else streams.Stream()

    def begin() -> tuple[Pair | None, Any]:
        with streams.stream(stream):
            return next(pairs, None), stream.record_event()

    made, ready = begin()
    while made is not None:
        following = begin()
        current = streams.current_stream(device)
        current.wait_event(ready)
        for tensor in _tensors(made):
            if tensor.device.type != "cpu":
                tensor.record_stream(current)  # Otherwise a later batch may get this memory while it is still in use.
        yield made
        made, ready = following


def _tensors(batch: Any) -> Iterator[Tensor]:
    match batch:
        case Tensor():
            yield batch
        case dict():
            for value in batch.values():
                yield from _tensors(value)
        case list() | tuple():
            for value in batch:
                yield from _tensors(value)
