"""Lets a program with its own training loop find out whether the job was told to stop.

A signal may reach one rank a step before the others. If that rank stopped immediately, the others would wait for it
in their next collective. Therefore the ranks agree in each call, which makes each call a collective itself.
"""

import os
import signal
import sys
from types import FrameType
from typing import Any

from ddpjob_rank.environment import Env

from .teller import warn_once
from .vote import Vote

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def stop_requested() -> bool:
    """Whether the job was told to stop: if so, save and exit.

    After the first call, which must be in the main thread, a first SIGTERM or SIGINT no longer ends this process; a
    second signal does. All ranks of a process group get the same answer, so that they stop after the same step. So
    all of them must call this function the same number of times, for example after each step. If steps are shorter
    than a second, they stop one step after the one in which a rank was told to. Outside a job the function always
    returns False, and leaves signals as they are.
    """
    global _noticed  # noqa: PLW0603  (a process stops once)
    if not {Env.NAME, Env.HEARTBEAT} & os.environ.keys():
        return False
    if not _before and not _noticed:
        _listen()
    _noticed = _noticed or _anybodys(asked=_asked)
    return _noticed


def stop_noticed() -> bool:
    """Whether `stop_requested` has returned True. If the program exits with 0 after that, it has not finished."""
    return _noticed


_asked = _noticed = False
_vote = Vote()
_before: dict[signal.Signals, Any] = {}
"""The handlers that the signals had before the first call."""


def _listen() -> None:
    try:
        for number in SIGNALS:
            _before[number] = signal.signal(number, _note) or signal.SIG_DFL
    except ValueError:
        warn_once("stop", "stop_requested(): cannot catch signals, because its first call was not in the main thread")


def _note(number: int, frame: FrameType | None) -> None:
    """Records the first signal, and restores the former handlers for a second signal."""
    global _asked  # noqa: PLW0603  (as above)
    _asked = True
    for caught, handler in _before.items():
        signal.signal(caught, handler)
    former = _before[signal.Signals(number)]
    if callable(former) and former is not signal.default_int_handler:
        former(number, frame)


def _anybodys(*, asked: bool) -> bool:
    """Whether any rank of the process group was told to stop."""
    dist: Any = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return asked
    return _vote.stop(sys.modules["torch"], asked=asked)
