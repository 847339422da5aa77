"""Lets all ranks of a process group learn in the same call that one of them was told to stop.

Each call starts an all-reduce. While steps are short, its result is read in the next call: by then the result has
arrived, so that no rank waits for the others, and the CPU does not wait for the GPU. If steps are long, one more step
might exceed the grace period, and waiting costs next to nothing: then the result is read immediately. The ranks agree
on this as well: each sends whether its last step was long, and acts on what all have sent.
"""

import math
import os
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ddpjob_rank.environment import Env

LONG_SECONDS = 1.0
"""A step that takes at least this long counts as long."""

SHORT, LONG, STOP = range(3)
"""The values that a rank can send. The greatest value that any rank sends counts."""


class Vote:
    """The last decision on which the ranks of the default process group have agreed.

    Each rank makes the same calls.
    """

    def __init__(self) -> None:
        self._group: Any = None
        self._sent: _Reduced | None = None
        """The all-reduce whose result has not been read yet."""
        self._result = LONG
        self._called = -math.inf

    def stop(self, torch: Any, *, asked: bool) -> bool:
        """Whether any rank was told to stop. `asked` means that this rank was."""
        dist = torch.distributed
        seconds, self._called = time.monotonic() - self._called, time.monotonic()
        if self._group is not dist.group.WORLD:  # The all-reduce of a former group may never finish.
            self._group, self._sent, self._result = dist.group.WORLD, None, LONG
        if self._sent is not None:
            self._result = self._sent.read()
        if self._result == STOP:
            return True  # All ranks do the same, so no all-reduce is unfinished when they leave the group.
        self._sent = _Reduced(torch, self._group, STOP if asked else LONG if seconds >= LONG_SECONDS else SHORT)
        if self._result == LONG:
            self._result, self._sent = self._sent.read(), None
        return self._result == STOP


class _Reduced:
    """The greatest of the values that all ranks send in one call."""

    def __init__(self, torch: Any, group: Any, sent: int) -> None:
        device = device_of(torch, group)
        self._device_module = None if device.type == "cpu" else getattr(torch, device.type)
        self._device = device
        # `torch.tensor` would copy to the device, and that would wait for all of the device's work.
        self._greatest = torch.full((), sent, dtype=torch.int32, device=device)
        maximum = torch.distributed.ReduceOp.MAX
        self._work = torch.distributed.all_reduce(self._greatest, op=maximum, async_op=True)

    def read(self) -> int:
        """Waits for the result, but not for work that the device was given after the all-reduce."""
        with self._beside():
            self._work.wait()
            return int(self._greatest.item())

    def _beside(self) -> AbstractContextManager[Any]:
        if self._device_module is None:
            return nullcontext()
        stream: AbstractContextManager[Any] = self._device_module.stream(self._device_module.Stream(self._device))
        return stream


def device_of(torch: Any, group: Any) -> Any:
    """The device for small tensors of a group: the CPU or, if the group lacks it, this rank's own device."""
    kinds = [pair.partition(":")[0] for pair in torch.distributed.get_backend_config(group).split(",")]
    if "cpu" in kinds:
        return torch.device("cpu")
    bound = getattr(group, "bound_device_id", None)
    if bound is not None and bound.type in kinds:
        return bound
    devices, local_rank = getattr(torch, kinds[0]), os.environ.get(Env.LOCAL_RANK, "")
    own = local_rank.isdecimal() and int(local_rank) < devices.device_count()
    return torch.device(kinds[0], int(local_rank) if own else devices.current_device())
