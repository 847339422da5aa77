"""Whether the job was told to stop, for a program that has a loop of its own.

A signal may reach one rank a step before another; if one stopped by itself, the others would wait for it in their
next collective. So all ranks agree in each call, which makes a call a collective.
"""

import os
import signal
import sys
from types import FrameType
from typing import Any

from ddpjob_rank.environment import Env

from .teller import warn_once

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def stop_requested() -> bool:
    """Whether the job was told to stop: then save, and end.

    From the first call on, which must be in the main thread, SIGTERM and SIGINT do not end this process; a second one
    does. In a process group all get the same answer, so that they stop after the same step: each process has to call
    this as often as the others, for example after each step. Outside a job it is always False, and changes nothing.
    """
    global _heeded  # noqa: PLW0603  (a process is asked once)
    if not {Env.NAME, Env.HEARTBEAT} & os.environ.keys():
        return False
    if not _before and not _heeded:
        _listen()
    _heeded = _heeded or _anybodys(asked=_asked)
    return _heeded


def heeded() -> bool:
    """Whether this process knows that it was asked: if it ends successfully after that, it is not done."""
    return _heeded


_asked = _heeded = False
_before: dict[signal.Signals, Any] = {}
"""What the signals did before."""


def _listen() -> None:
    try:
        for number in SIGNALS:
            _before[number] = signal.signal(number, _note) or signal.SIG_DFL
    except ValueError:
        warn_once("stop", "stop_requested(): cannot catch signals, because its first call was not in the main thread")


def _note(number: int, frame: FrameType | None) -> None:
    """Notes the first signal; a second one does what it did before."""
    global _asked  # noqa: PLW0603  (as above)
    _asked = True
    for one, before in _before.items():
        signal.signal(one, before)
    own = _before[signal.Signals(number)]
    if callable(own) and own is not signal.default_int_handler:
        own(number, frame)


def _anybodys(*, asked: bool) -> bool:
    """Whether any process of the group was asked."""
    dist: Any = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return asked
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    told = sys.modules["torch"].tensor(int(asked), device=device)
    dist.all_reduce(told, op=dist.ReduceOp.MAX)
    return bool(told.item())
