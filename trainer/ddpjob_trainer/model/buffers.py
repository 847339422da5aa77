"""A model's buffers, such as statistics and counts: contexts in which a pass through the model keeps them."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


@contextmanager
def buffers_kept(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Restores these modules' own buffers at the end of the block.

    That works whether the block writes into a buffer or puts another tensor in its place.
    """
    # named_buffers() leaves out buffers that are still None, but a first pass may fill them.
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
    """A forward and backward pass in the block changes neither buffers nor gradients, whatever numbers it computes.

    Multiplying the loss by 0 would not do: 0 times infinity is NaN, and the exchange of gradients would spread that
    to all processes. Each parameter still gets a gradient, of zeros, because that exchange needs one. SyncBatchNorm's
    statistics do change: all processes share them, and change them in the same way.
    """
    parameters = (parameter for parameter in model.parameters() if parameter.requires_grad)
    # The hooks run before a gradient is added to the others, and so before it is sent.
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
