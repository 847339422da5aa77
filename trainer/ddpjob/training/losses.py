"""Reads the losses of a training run without waiting for a GPU."""

import math
from collections import deque
from typing import SupportsFloat

import torch
from ddpjob_rank.console import warn
from torch import Tensor
from torch.distributed.tensor import DTensor


class Losses:
    """The losses that a program has noted. A loss on a GPU is copied to the CPU while the GPU goes on."""

    def __init__(self) -> None:
        self.nonfinite: tuple[int, float] | None = None
        """The first step whose loss is known not to be finite, with its loss."""
        self._coming = deque[tuple[int, Tensor, torch.cuda.Event]]()
        self._warned = False

    def note(self, step: int, loss: SupportsFloat) -> float | None:
        """Notes the loss of a step; returns the newest loss that is known, unless it was returned before."""
        if not isinstance(loss, Tensor):
            return self._known(step, loss)
        if loss.numel() != 1:
            self._leave_out(f"it has {loss.numel()} numbers, not one. Pass their mean: training.step(loss.mean())")
            return None
        if isinstance(loss, DTensor):
            loss = loss.to_local()  # Getting the whole value would need a collective.
        if loss.is_cpu:
            return self._known(step, loss)
        if loss.is_cuda:
            copy = torch.empty((), dtype=loss.dtype, pin_memory=True)
            copy.copy_(loss.detach().reshape(()), non_blocking=True)
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            # The loss may be on another GPU than the current one.
            event.record(torch.cuda.current_stream(loss.device))
            self._coming.append((step, copy, event))
        return self.arrived()

    def arrived(self) -> float | None:
        """The newest loss that has arrived from the GPU since the last call; None if none has."""
        newest = None
        while self._coming and self._coming[0][2].query():  # type: ignore[no-untyped-call]
            step, copy, _ = self._coming.popleft()
            newest = self._known(step, copy)
        return newest

    def _known(self, step: int, loss: SupportsFloat) -> float | None:
        try:
            # float() of a tensor that requires a gradient prints a warning; item() does not.
            number = float(loss.item() if isinstance(loss, Tensor) else loss)
        except (TypeError, ValueError, OverflowError, RuntimeError):
            self._leave_out(f"it is of type {type(loss).__name__}, not a number")
            return None
        if self.nonfinite is None and not math.isfinite(number):
            self.nonfinite = step, number
        return number

    def _leave_out(self, why: str) -> None:
        if not self._warned:
            self._warned = True
            warn(f"training.step(loss): the loss is left out, because {why}")
