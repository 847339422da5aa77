"""Reads the losses of a training without waiting for a GPU."""

import math
from collections import deque
from typing import SupportsFloat

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor


class Losses:
    """The losses that a program has noted. A loss on a GPU is copied to the CPU while the GPU goes on."""

    def __init__(self) -> None:
        self._coming = deque[tuple[int, Tensor, torch.cuda.Event]]()

    def note(self, step: int, loss: SupportsFloat) -> tuple[int, float] | None:
        """Notes the loss of a step; returns the newest step whose loss is known, with its loss."""
        if not isinstance(loss, Tensor):
            return step, float(loss)
        if loss.numel() != 1:
            return None
        if isinstance(loss, DTensor):
            loss = loss.to_local()  # The whole value would take a collective.
        if not loss.is_cuda:
            return (step, float(loss.detach())) if loss.is_cpu else None
        copy = torch.empty((), dtype=loss.dtype, pin_memory=True)
        copy.copy_(loss.detach().reshape(()), non_blocking=True)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        self._coming.append((step, copy, event))
        return self.arrived()

    def arrived(self) -> tuple[int, float] | None:
        """The newest step whose loss has arrived from the GPU, or the first one whose loss is not finite."""
        newest = None
        while self._coming and self._coming[0][2].query():  # type: ignore[no-untyped-call]
            step, copy, _ = self._coming.popleft()
            newest = step, float(copy)
            if not math.isfinite(newest[1]):
                break
        return newest
