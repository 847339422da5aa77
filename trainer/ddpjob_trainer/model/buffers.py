"""Contexts in which a pass through a model does not change the model's buffers, such as statistics and counts."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


@contextmanager
def buffers_kept(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Restores these modules' own buffers at the end of the block.

    It does not matter whether the block writes into a buffer or replaces the buffer's tensor.
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
    """In the block, a forward and backward pass changes neither buffers nor gradients, whatever numbers it computes.

    Multiplying the loss by 0 would not be enough, because 0 times infinity is NaN, which the exchange of gradients
    would spread to all processes. Each parameter still gets a gradient, of zeros, because the exchange needs it.
    SyncBatchNorm's statistics do change, but all processes share them, and change them in the same way.
    """
    parameters = (parameter for parameter in model.parameters() if parameter.requires_grad)
    # The hooks run before a gradient is accumulated, and therefore before it is sent.
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
