"""Lets a program save when `ddpjob checkpoint` requests it: the supervisor passes the request on to rank 0.

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
"""The bytes written into the pipe: one is a request, the other ends the thread that reads."""


def on_save_request(callback: Callable[[], None] | None) -> None:
    """Registers a function that is called, in a separate thread, when somebody requests a checkpoint.

        import threading

        requested = threading.Event()
        ddpjob.on_save_request(requested.set)
        for step, (x, y) in enumerate(loader, start=1):
            train_one_step(x, y)
            ddpjob.report(step=step)
            if requested.is_set():
                requested.clear()
                torch.save(model.state_dict(), "model.pt")
                ddpjob.report(checkpoint=step)

    The function is called in rank 0's process only. If other ranks have to save as well, the program must make all of
    them save after the same step. The function must return soon, so it only notes the request. The request is
    fulfilled once `report(checkpoint=…)` names the last step that was finished when the request came, or a later
    step. A later `callback` replaces an earlier one; None means that this process no longer saves on request. Without
    a supervisor, `callback` is never called.
    """
    global _callback, _pipe  # noqa: PLW0603  (a process has one supervisor)
    _callback = callback
    path = Path(f"{os.environ[Env.HEARTBEAT]}{PIPE}") if Env.HEARTBEAT in os.environ else None
    if path is None or (callback is None) == (_pipe is None):
        return
    with contextlib.suppress(OSError):  # The program also runs without the pipe.
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
"""The descriptor of the pipe that is read; None if there is no such pipe."""


def _listen(pipe: int) -> None:
    while OVER not in os.read(pipe, 512):
        try:
            if callback := _callback:
                callback()
        except Exception as error:  # noqa: BLE001  (a request must never end the training)
            warn_once("save request", f"cannot save on request: {type(error).__name__}: {error}")
    os.close(pipe)


def _forget() -> None:
    """Keeps a forked child, such as a DataLoader worker, from counting as a reader: it does not have the thread."""
    global _callback, _pipe
    if _pipe is not None:
        os.close(_pipe)
    _callback, _pipe = None, None


os.register_at_fork(after_in_child=_forget)
