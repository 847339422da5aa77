"""Lets a program save when it is asked to, by `ddpjob checkpoint`: the supervisor passes the request on to rank 0.

The supervisor writes a byte into a pipe, whose path consists of the path of the heartbeat file and a suffix. A thread
that sleeps in a read calls the program's function, so that a request costs nothing until it comes. A pipe that nobody
reads means that the program does not save on request, which the supervisor reports instead of waiting for it.
"""

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

from ddpjob_rank.environment import Env

from .teller import warn_once

PIPE = ".save"
"""The suffix of the pipe."""

ASKED, OVER = b"a", b"o"
"""What is written into the pipe: a request; and the end of the thread that reads."""


def on_save_request(callback: Callable[[], None] | None) -> None:
    """Calls `callback`, in a thread of its own, whenever this process is asked to save; None: it saves no more.

    Only the process of rank 0 is asked, so `callback` has to make all ranks save after the same step. It must return
    soon: it only notes the wish to save. The request is fulfilled as soon as `report(checkpoint=…)` names a step that
    is not older than the last one that was finished when the request came. The last `callback` counts. Without a
    supervisor it is never called.
    """
    global _callback, _pipe  # noqa: PLW0603  (a process has one supervisor)
    _callback = callback
    path = Path(f"{os.environ[Env.HEARTBEAT]}{PIPE}") if Env.HEARTBEAT in os.environ else None
    if path is None or (callback is None) == (_pipe is None):
        return
    with contextlib.suppress(OSError):  # The program runs without it.
        path.unlink(missing_ok=True)
        if _pipe is not None:
            os.write(_pipe, OVER)
            _pipe = None
            return
        os.mkfifo(path, 0o600)
        # Opened for writing as well, because otherwise a read would return as soon as the supervisor closes the pipe.
        _pipe = os.open(path, os.O_RDWR)
        threading.Thread(target=_listen, args=(_pipe,), name="save requests", daemon=True).start()


_callback: Callable[[], None] | None = None
_pipe: int | None = None
"""The pipe that is read; None if none is."""


def _listen(pipe: int) -> None:
    while OVER not in os.read(pipe, 512):
        try:
            if callback := _callback:
                callback()
        except Exception as error:  # noqa: BLE001  (a request must never end the training)
            warn_once("save request", f"cannot save on request: {type(error).__name__}: {error}")
    os.close(pipe)


def _forget() -> None:
    """Makes a forked child without this thread, such as a worker of a DataLoader, not count as a reader."""
    global _callback, _pipe
    if _pipe is not None:
        os.close(_pipe)
    _callback, _pipe = None, None


os.register_at_fork(after_in_child=_forget)
