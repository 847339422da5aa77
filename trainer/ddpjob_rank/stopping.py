"""Stopping on request: what SIGTERM and SIGINT do at each stage of a run.

Before the training loop begins, a signal ends the process immediately. The program sets the handler in its first
line, because the kernel drops a signal for which the first process of a container has no handler: a pod that is
suspended while Python imports modules would continue until its grace period is over. (Until Python itself has
started, the trainer image blocks the signal, so that it stays pending.) While the loop runs, the first signal makes
it save and stop, and a second signal ends the process immediately.

A thread acts on the signals, because Python's own handlers run only between two bytecodes of the main thread, which
may be inside a collective that waits for a peer for minutes. The C-level handler writes each signal's number to a
socket (signal.set_wakeup_fd), whatever the main thread is doing.
"""

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

from .console import say
from .exit_codes import SIGNAL_BASE, ExitCode

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def leave_on_request() -> None:
    """Makes SIGTERM end this process immediately until another handler is set: there is nothing to save yet."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(ExitCode.SAVED_AND_STOPPED))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


class StoppedOnRequest(Exception):  # noqa: N818  (an end, not an error)
    """The run ends because it was told to stop, and has saved its last step."""


class StopRequest:
    """Whether this process has been told to stop."""

    def __init__(self) -> None:
        self.made = False
        self._stop_loop: Callable[[], None] | None = None

    def listen(self) -> None:
        """Starts to act on signals. To be called only once, from the main thread."""
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        signal.set_wakeup_fd(writer.fileno())  # This must come first, because the handlers below ignore the signals.
        for number in SIGNALS:
            signal.signal(number, lambda *_: None)
        # A forked DataLoader worker shares the socket, but its signals are not meant for this process.
        os.register_at_fork(after_in_child=_forget_wakeup)
        threading.Thread(target=self._watch, args=(reader, writer), name="signals", daemon=True).start()

    def loop_begins(self, stop: Callable[[], None]) -> None:
        """From now on, the first signal calls `stop`, in another thread, instead of ending the process."""
        self._stop_loop = stop

    def _watch(self, reader: socket.socket, _keep_open: socket.socket) -> None:
        while True:
            for number in reader.recv(16):
                if number in SIGNALS:
                    self._act(number)

    def _act(self, number: int) -> None:
        if self.made:
            say(f"stopped at once by a second signal ({signal.Signals(number).name})")
            leave_at_once(SIGNAL_BASE + number)
        if self._stop_loop is None:
            say("stopped before the first step")
            leave_at_once(ExitCode.SAVED_AND_STOPPED)
        name = signal.Signals(number).name
        say(f"told to stop ({name}): finishing the step; a second signal ends the process at once")
        self.made = True
        self._stop_loop()


def leave_at_once(code: int) -> NoReturn:
    """Ends the process without cleanup, because cleanup may wait for peers that are gone."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # The stream is closed, or its reader is gone.
            stream.flush()
    os._exit(code)


def _forget_wakeup() -> None:
    signal.set_wakeup_fd(-1)
