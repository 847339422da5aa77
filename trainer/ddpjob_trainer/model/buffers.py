"""A model's buffers: statistics, counts and whatever else it keeps besides its weights. And how to leave no trace."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

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


@contextmanager
def without_trace(model: nn.Module) -> Iterator[None]:
    """What is computed inside changes neither buffers nor gradients, whatever numbers come out.

    A factor of 0 is not enough: 0 times infinity is NaN, for all processes. But each parameter gets a gradient, as
    the exchange of gradients demands. Statistics that all processes have together are changed, by all alike.
    """
    parameters = (parameter for parameter in model.parameters() if parameter.requires_grad)
    # Called before the gradient is added, so before it is sent.
    hooks: list[Any] = [
        parameter.register_hook(torch.zeros_like)  # type: ignore[no-untyped-call]
        for parameter in parameters
    ]
    own = (module for module in model.modules() if not isinstance(module, nn.SyncBatchNorm))
    try:
        with buffers_kept(own):
            yield
    finally:
        for hook in hooks:
            hook.remove()
