"""The zygote: a process that imports the modules that every rank needs, and then forks a rank for each request.

It runs no tensor operation, because a child that is forked from a process with a pool of OpenMP threads hangs.

The zygote reads requests from a socket that its supervisor passes to it, one JSON object per line, and answers on the
same socket: first `{"ready": true}`, or `{"error": "cannot import ..."}`; for each request `{"id": 1, "pid": 4711}`
and, when that rank has ended, `{"pid": 4711, "status": 9}`, with the status from waitpid. The zygote ends when the
supervisor ends, and the ranks end when the zygote ends.
"""

import contextlib
import importlib
import json
import os
import random
import selectors
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from ddpjob_rank.exit_codes import ExitCode
from ddpjob_rank.failure.hidden_modules import hidden_module
from ddpjob_rank.importing import uncollected
from ddpjob_rank.machine.parent_death import die_with
from ddpjob_rank.running.program import program_of
from ddpjob_rank.running.rank import become
from ddpjob_rank.running.script.late_packages import warn_of_late_packages
from ddpjob_rank.running.script.late_variables import watch

Request = dict[str, Any]

SHARED_BY_THREADS = 1 << 18
"""A tensor with this many elements is so large that PyTorch computes it with several threads."""

CUDA = "/dev/nvidia-uvm"
"""A device that CUDA opens at its first use and keeps open. NVML, which modules may use, does not open it."""

OURS = frozenset({"torch", "ddpjob_trainer"})
"""Packages with modules that are imported even without --preload."""

THREADS, PATH = "OMP_NUM_THREADS", "PYTHONPATH"

TRIAL_SECONDS, LOOK_SECONDS = 10.0, 0.01
"""How long a trial child may run (normally only a moment), and how often to check whether it has ended."""

REQUESTS = frozenset({signal.SIGINT, signal.SIGTERM})
"""Signals that request a stop."""

UNHEEDED = (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that would end the zygote, and so all ranks, if they are sent to all processes of a container."""


def main() -> None:
    """Imports modules and serves requests until the supervisor is gone. In a forked child, runs the program."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    die_with(int(sys.argv[2]))
    for number in UNHEEDED:
        if signal.getsignal(number) is signal.SIG_DFL:  # If nohup has set SIGHUP to be ignored, it stays ignored.
            signal.signal(number, _go_on)
    sys.path.insert(0, sys.argv[3])
    set_by_program: dict[str, str] = json.loads(sys.argv[4])
    # A program sets these variables only after it has started. If they were in the environment with which the zygote
    # is started, Python and the dynamic linker would already read some of them then.
    os.environ.update(set_by_program)
    seen = dict(os.environ)
    # Objects that the garbage collector does not visit also stay in memory that is shared with the children.
    with uncollected():
        for name in sys.argv[5:]:
            _import(name, connection)
    request = _serve(connection)
    if request is None:
        os._exit(0)
    _settle(request, seen, set_by_program)
    if request["directory"] is not None:
        os.chdir(request["directory"])
    if (path := os.environ.get(PATH, "")) != seen.get(PATH, ""):  # Python has read it when this process started.
        known = seen.get(PATH, "").split(os.pathsep)
        sys.path[1:1] = [str(Path(entry).absolute()) for entry in path.split(os.pathsep) if entry]
        warn_of_late_packages(entry for entry in path.split(os.pathsep) if entry not in {"", *known})
    program = program_of(request["program"])
    if "torch" in sys.modules and not program.is_trainer:
        watch(program, seen)
    become(program)


def _go_on(*_: object) -> None:
    """Handles a signal that is not meant for the zygote, by ignoring it."""


def _import(name: str, connection: socket.socket) -> None:
    torch, threads, asked = sys.modules.get("torch"), _threads(), _has_opened(CUDA)
    try:
        importlib.import_module(name)
    except (Exception, SystemExit) as error:
        if hidden := hidden_module(error, sys.path[0], own_code=False):
            _refuse(connection, str(hidden))
        if not isinstance(error, ImportError):
            raise
        _refuse(connection, f"cannot import {name}, which is imported before the ranks are forked: {error}")
    if torch is not None and _threads() > threads and not _a_child_computes(torch):
        _refuse(
            connection,
            f"{name} computes with PyTorch when it is imported, and ranks that are forked after that would hang:"
            " leave it out of --preload, or use --start-method cold",
        )
    if not asked and name.partition(".")[0] not in OURS and _has_opened(CUDA):
        _refuse(
            connection,
            f"{name} asks CUDA for its devices when it is imported, and ranks that are forked after that cannot use"
            " CUDA: leave it out of --preload, or use --start-method cold",
        )


def _refuse(connection: socket.socket, why: str) -> NoReturn:
    _tell(connection, {"error": why})
    os._exit(ExitCode.BAD_INPUT)


def _has_opened(file: str) -> bool:
    """Whether this process has opened the file; False if the system does not report it."""
    for link in Path("/proc/self/fd").glob("*"):
        with contextlib.suppress(OSError):
            if str(link.readlink()) == file:
                return True
    return False


def _threads() -> int:
    """The number of threads of this process; 0 if the system does not report it."""
    try:
        return len(os.listdir("/proc/self/task"))  # noqa: PTH208  (pathlib's is a generator)
    except OSError:
        return 0


def _a_child_computes(torch: Any) -> bool:
    """Whether a forked child can compute with PyTorch. It hangs if this process has a pool of OpenMP threads."""
    zygote = os.getpid()
    pid = os.fork()
    if not pid:
        die_with(zygote)
        torch.set_num_threads(2)
        torch.ones(SHARED_BY_THREADS).add_(1)
        os._exit(0)
    deadline = time.monotonic() + TRIAL_SECONDS
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return False
        time.sleep(LOOK_SECONDS)
    return True


def _settle(request: Request, seen: Mapping[str, str], set_by_program: Mapping[str, str]) -> None:
    """Gives a forked child its own environment, cores, random seeds and threads, as a new process would have.

    `seen` is the environment in which the modules were imported.
    """
    os.environ.clear()
    os.environ.update(request["env"])
    # The old directory was chosen when torch._dynamo was imported, but TMPDIR may differ now.
    tempfile.tempdir = None
    if request["cores"]:
        os.sched_setaffinity(0, request["cores"])
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    # OpenMP read OMP_NUM_THREADS in the zygote. If the rank has another value, PyTorch must be given that value.
    threads = request["env"].get(THREADS)
    if "torch" in sys.modules and threads not in {None, seen.get(THREADS)} and THREADS not in set_by_program:
        sys.modules["torch"].set_num_threads(int(threads))


def _serve(connection: socket.socket) -> Request | None:
    """Forks a child for each request.

    Returns the request in the child, and None in the zygote when the supervisor has closed the connection.
    """
    wakeup, woken = _child_signals()
    _tell(connection, {"ready": True})
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        lines = _Lines(connection)
        while True:
            for key, _ in selector.select():
                if key.fileobj is woken:
                    woken.recv(512)
                    _report_ends(connection)
                    continue
                for line in lines.read():
                    request: Request = json.loads(line)
                    if _forked(request, connection):
                        for end in (wakeup, woken):
                            end.close()
                        return request
                if lines.over:
                    return None


def _forked(request: Request, connection: socket.socket) -> bool:
    """Forks. Returns True in the child, after resetting the zygote's signal handlers and closing its connection."""
    zygote = os.getpid()
    pid = os.fork()
    if pid:
        _tell(connection, {"id": request["id"], "pid": pid})
        return False
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for number in UNHEEDED:
        if signal.getsignal(number) is _go_on:
            signal.signal(number, signal.SIG_DFL)
    os.setsid()
    die_with(zygote)
    connection.close()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, REQUESTS)
    return True


def _child_signals() -> tuple[socket.socket, socket.socket]:
    """Ignores stop requests. Returns a pair of sockets; the second becomes readable when a child ends."""
    wakeup, woken = socket.socketpair()
    wakeup.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakeup.fileno(), warn_on_full_buffer=False)
    for number in REQUESTS:
        signal.signal(number, signal.SIG_IGN)  # The supervisor decides when the zygote ends.
    # A signal to a new child stays pending until the child has its handlers.
    signal.pthread_sigmask(signal.SIG_BLOCK, REQUESTS)
    return wakeup, woken


def _report_ends(connection: socket.socket) -> None:
    for pid, status in _ended():
        _tell(connection, {"pid": pid, "status": status})


def _ended() -> Iterator[tuple[int, int]]:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        yield pid, status


def _tell(connection: socket.socket, what: dict[str, Any]) -> None:
    connection.sendall(json.dumps(what).encode() + b"\n")


class _Lines:
    """Splits the data that a socket receives into complete lines."""

    def __init__(self, connection: socket.socket) -> None:
        self.over = False
        self._connection = connection
        self._rest = b""

    def read(self) -> Iterable[bytes]:
        """Receives data once, and returns the lines that are now complete."""
        got = self._connection.recv(1 << 16)
        self.over = not got
        *lines, self._rest = (self._rest + got).split(b"\n")
        return lines


if __name__ == "__main__":
    main()
