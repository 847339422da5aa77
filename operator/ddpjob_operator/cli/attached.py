"""`ddpjob run --attach RANK`: gives the user's terminal to one rank.

The rank gets a terminal of its own (a pty), and a thread copies between this terminal and the user's. So Ctrl-C and
Ctrl-Z act on `ddpjob run`, what the rank prints is also in its log, and the user's terminal gets its settings back.
"""

import contextlib
import os
import queue
import re
import select
import signal
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ddpjob_operator.api import BadInputError, DDPJob
from ddpjob_operator.engine import Event
from ddpjob_operator.text import one_line

from .display import origin
from .phrases import check_rank

STDIN, STDOUT = 0, 1
LOCAL_MODES = 3
"""The index of the local modes in the result of tcgetattr."""

CHUNK = 1 << 14
REFRESH_SECONDS = 0.1
LAST_SECONDS = 5.0
"""How long the rank's last output may take to be printed."""

END_OF_INPUT = b"\x04"
END_SECONDS = 1.0
"""How often to send an end of input to a rank that was told to stop, because a debugger survives SIGINT."""

NO_TEXT = re.compile(rb"\r(?=\n)|\x1b\[\?[0-9;]{0,16}[hl]")
"""What a terminal's output contains but a log should not: carriage returns before line feeds, and terminal modes."""
LONGEST_LINE = 1 << 16


def check_attach(rank: int, job: DDPJob) -> None:
    """Checks whether the job has this rank, and can give it a terminal.

    Raises:
        BadInputError: there is no such rank, or the job has no supervisor.
    """
    ranks = job.spec.nodes * job.spec.resolved_procs_per_node()
    check_rank("--attach", rank, job.metadata.name, ranks)
    if job.spec.supervisor is None:
        raise BadInputError(
            f"--attach {rank} is for scripts and modules: only they are started by ddpjob-supervise, which gives a"
            " rank the terminal"
        )


class Attached:
    """The user's terminal, and the terminal that a rank gets in its place."""

    def __init__(self, rank: int) -> None:
        """Raises BadInputError if this command has no terminal."""
        for stream, descriptor in (("input", STDIN), ("output", STDOUT)):
            if not os.isatty(descriptor):
                raise BadInputError(
                    f"--attach {rank} gives rank {rank} this terminal, but the {stream} of ddpjob is not a terminal:"
                    " call it without a pipe or a redirection"
                )
        self.rank = rank
        self._settings = termios.tcgetattr(STDIN)
        self._master, self._slave = os.openpty()
        os.set_blocking(self._master, False)
        termios.tcsetattr(self._slave, termios.TCSANOW, self._settings)
        self._resize()
        self._typed = b""
        """Typed text that the rank's terminal has not accepted yet."""
        self._taken = False
        """Whether the rank has taken its terminal. Anything typed earlier would only be echoed, even into the log."""
        self._in_line = False
        """Whether the cursor's line already has text."""
        self._log: int | None = None
        self._unfinished = b""
        """The rank's last line, while it is incomplete and therefore not in the log yet."""
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._over = threading.Event()

    def open_terminal(self, log: Path) -> int:
        """The descriptor of the rank's terminal, whose output is also appended to the log from now on."""
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return self._slave

    def tell(self, event: Event) -> None:
        """Shows an event, on a line of its own."""
        self._events.put(event)

    @contextmanager
    def following(
        self, lost: Callable[[], None], stopped: Callable[[], bool], greeting: Iterable[str] = ()
    ) -> Iterator[None]:
        """Connects the two terminals while the context is open.

        Calls `lost` if the user's terminal is closed. `stopped` returns whether the ranks were told to stop. The
        lines of the greeting are shown when the rank takes its terminal.
        """
        acts = {signal.SIGTSTP: self._pause, signal.SIGCONT: self._take_over, signal.SIGWINCH: self._resize}
        copying = threading.Thread(target=self._copy, args=(lost, stopped, greeting), name="terminal", daemon=True)
        former = {number: signal.signal(number, act) for number, act in acts.items()}
        try:
            self._take_over()
            copying.start()
            yield
        finally:
            self._over.set()
            copying.join(LAST_SECONDS)
            for number, act in former.items():
                signal.signal(number, act)
            self._give_back()

    def _take_over(self, *_: object) -> None:
        """Makes the user's terminal pass on every key unchanged, except those that send signals to this command."""
        with contextlib.suppress(termios.error):  # It was closed.
            tty.setraw(STDIN, termios.TCSADRAIN)
            settings = termios.tcgetattr(STDIN)
            settings[LOCAL_MODES] |= termios.ISIG
            termios.tcsetattr(STDIN, termios.TCSADRAIN, settings)
        self._resize()

    def _give_back(self) -> None:
        with contextlib.suppress(termios.error):
            termios.tcsetattr(STDIN, termios.TCSADRAIN, self._settings)

    def _pause(self, *_: object) -> None:
        """Suspends this process, as Ctrl-Z does. After a SIGCONT, the process takes the terminal over again."""
        self._give_back()
        os.kill(os.getpid(), signal.SIGSTOP)

    def _resize(self, *_: object) -> None:
        with contextlib.suppress(termios.error):
            termios.tcsetwinsize(self._master, termios.tcgetwinsize(STDIN))

    def _copy(self, lost: Callable[[], None], stopped: Callable[[], bool], greeting: Iterable[str]) -> None:
        open_ends, ending = {self._master, STDIN}, None
        while True:
            over = self._over.is_set()
            listened = open_ends - ({STDIN} if over or self._typed or not self._taken else set())
            ready, _, _ = select.select(listened, [self._master] if self._typed else [], [], REFRESH_SECONDS)
            if not self._taken and os.tcgetpgrp(self._master):  # Not 0: a process controls the terminal.
                self._taken = True
                with contextlib.suppress(termios.error):
                    termios.tcflush(STDIN, termios.TCIFLUSH)
                for line in greeting:
                    self._show_event(Event(warning=False, reason="Notice", message=line))
            for descriptor in ready:
                if not (data := _read(descriptor)):
                    open_ends.discard(descriptor)
                elif descriptor == STDIN:
                    self._typed += data
                elif not self._show(data):
                    lost()
            if not self._events.empty():
                self._show_event(self._events.get())
            if stopped() and time.monotonic() > (ending := ending or time.monotonic() + END_SECONDS):
                self._typed, ending = END_OF_INPUT, None
            self._type()
            if over and self._master not in ready and self._events.empty():
                self._note(b"")
                return

    def _type(self) -> None:
        with contextlib.suppress(OSError):  # The terminal's buffer is full; the rest waits.
            while self._typed:
                self._typed = self._typed[os.write(self._master, self._typed) :]

    def _show(self, data: bytes) -> bool:
        """Prints what the rank has printed, and adds it to the log; returns whether the user can see it."""
        self._note(data)
        self._in_line = not data.endswith(b"\n")
        try:
            while data:
                data = data[os.write(STDOUT, data) :]
        except OSError:
            return False
        return True

    def _show_event(self, event: Event) -> None:
        begin = "\r\n" if self._in_line else ""
        self._in_line = False
        with contextlib.suppress(OSError):
            os.write(STDOUT, f"{begin}{origin(event)}{one_line(event.message)}\r\n".encode())

    def _note(self, data: bytes) -> None:
        """Appends whole lines to the log, so that lines of several ranks do not mix. Empty `data` adds the rest."""
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        if self._unfinished and (not data or len(self._unfinished) > LONGEST_LINE):
            lines.append(self._unfinished)
            self._unfinished = b""
        if lines and self._log is not None:
            with contextlib.suppress(OSError):  # The disk is full: the rank goes on.
                os.write(self._log, NO_TEXT.sub(b"", b"\n".join([*lines, b""])))


def _read(descriptor: int) -> bytes:
    """What can be read now; empty if the terminal is closed."""
    with contextlib.suppress(OSError):
        return os.read(descriptor, CHUNK)
    return b""
