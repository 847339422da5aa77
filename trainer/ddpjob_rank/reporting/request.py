"""Lets a program with its own training loop find out whether the job was told to stop.

A signal may reach one rank a step before the others. If that rank stopped immediately, the others would wait for it
in their next collective. Therefore the ranks agree in which of their calls all of them stop.
"""

import importlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any

from ddpjob_rank.environment import Env

from .teller import warn_once

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def stop_requested() -> bool:
    """Whether the job was told to stop: if so, save and exit.

        for x, y in loader:
            train_one_step(x, y)
            if ddpjob.stop_requested():
                torch.save(model.state_dict(), "model.pt")
                break

    After the first call, which must be in the main thread, a first SIGTERM or SIGINT no longer ends this process; a
    second signal does. The n-th call in a process group has the same result on all of its ranks, so that they stop
    after the same step. So all of them must call this function equally often, for example after each step. A warning
    names a rank that does not. The ranks agree in the background, within milliseconds, without a collective: a call
    takes about a microsecond, and does not wait for a GPU. Outside a job the function always returns False, and
    leaves signals as they are.
    """
    global _noticed  # noqa: PLW0603  (a process stops once)
    if _delegated:
        if _when_asked:
            _when_asked()
        return _noticed
    if not _in_a_job():
        return False
    if not _before and not _noticed:
        _listen()
    _noticed = _noticed or _agreed()
    return _noticed


def stop_noticed() -> bool:
    """Whether `stop_requested` has returned True. If the program exits with 0 after that, it has not finished."""
    return _noticed


def stops_by(wish: Callable[[], None], *, always: bool, asked: Callable[[], object] | None = None) -> None:
    """Makes the caller responsible for stops: it agrees with the other ranks, and then calls `notice_stop`.

    Args:
        wish: Called in the handler of a first signal.
        always: Whether SIGTERM is caught outside a job as well, because the caller can save.
        asked: Called in each call of `stop_requested`, before it returns.
    """
    global _tell, _delegated, _when_asked
    _tell, _delegated, _when_asked = wish, True, asked
    if not _before and (always or _in_a_job()):
        _listen(SIGNALS if _in_a_job() else SIGNALS[:1])
    elif _asked:
        wish()


def stops_no_more() -> None:
    """Undoes `stops_by`, and restores the previous signal handlers."""
    global _tell, _delegated, _when_asked
    if _delegated:
        _tell, _delegated, _when_asked = None, False, None
        with suppress(ValueError):  # This is not the main thread.
            _unlisten()
        _before.clear()


def notice_stop() -> None:
    """Notes that all ranks have agreed to stop."""
    global _noticed  # noqa: PLW0603  (as above)
    _noticed = True


def _in_a_job() -> bool:
    return Env.NAME in os.environ or Env.HEARTBEAT in os.environ


_delegated = False
"""Whether `stops_by` was called."""
_when_asked: Callable[[], object] | None = None
_asked = _noticed = False
_tell: Callable[[], None] | None = None
"""Tells the other ranks of the group to stop."""
_agreeing: Any = None
"""The module group_agreement, once there is a group."""
_agreement: object = None
_calls = 0
"""How many times this rank has called `stop_requested` in its group."""
_before: dict[signal.Signals, Any] = {}
"""The handlers that the signals had before the first call."""


def _listen(signals: Sequence[signal.Signals] = SIGNALS) -> None:
    try:
        for number in signals:
            _before[number] = signal.signal(number, _note) or signal.SIG_DFL
    except ValueError:
        warn_once("stop", "stop_requested(): cannot catch signals, because its first call was not in the main thread")


def _note(number: int, frame: FrameType | None) -> None:
    """Records the first signal, and restores the former handlers for a second signal."""
    global _asked  # noqa: PLW0603  (as above)
    _asked = True
    if _tell is not None:
        _tell()
    _unlisten()
    former = _before[signal.Signals(number)]
    if callable(former) and former is not signal.default_int_handler:
        former(number, frame)


def _unlisten() -> None:
    for caught, handler in _before.items():
        signal.signal(caught, handler)


def _agreed() -> bool:
    """Whether all ranks of the process group stop in this call."""
    global _agreeing, _agreement, _tell, _calls  # noqa: PLW0603  (as above)
    if "torch.distributed" not in sys.modules:
        return _asked
    if _agreeing is None:
        # That module imports asyncio, which takes longer than the rest of this package, and is needed only in a
        # group.
        _agreeing = importlib.import_module(f"{__package__}.group_agreement")
    agreement = _agreeing.agreement_of_group("stop", "ddpjob.stop_requested()")
    if agreement is not _agreement:
        _agreement, _tell, _calls = agreement, partial(agreement.wish, _agreeing.Wish.STOP), 0
        if _asked:
            _tell()
    _calls += 1
    return agreement.reached(_calls) is _agreeing.Wish.STOP


# A parent ends a forked child, such as one of multiprocessing, with SIGTERM, and waits for its end. So in the child,
# SIGTERM must have its former handler, even if the signal comes before that handler is restored.
def _hold() -> None:
    if signal.getsignal(signal.SIGTERM) is _note:
        _masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM}))


def _let_go() -> None:
    if _masks:
        signal.pthread_sigmask(signal.SIG_SETMASK, _masks.pop())


def _give_back() -> None:
    if signal.getsignal(signal.SIGTERM) is _note:
        signal.signal(signal.SIGTERM, _before.pop(signal.SIGTERM))
    _let_go()


_masks: list[set[int]] = []
"""The signals that were blocked in the forking thread."""

os.register_at_fork(before=_hold, after_in_parent=_let_go, after_in_child=_give_back)
