"""A model's buffers: statistics, counts and whatever else it keeps besides its weights."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def buffers_kept(modules: Iterable[nn.Module]) -> Iterator[None]:
    """What happens inside leaves no trace in these modules' own buffers.

    That holds whether it writes into one or puts another tensor in its place.
    """
    # named_buffers() leaves out those that are still None, which a first pass may fill.
    kept = [
        (module, name, buffer, None if buffer is None else buffer.detach().clone())
        for module in modules
        for name, buffer in module._buffers.items()  # noqa: SLF001
    ]
    try:
        yield
    finally:
        with torch.no_grad():
            for module, name, buffer, before in kept:
                if buffer is not None and before is not None:
                    buffer.copy_(before)
                setattr(module, name, buffer)
