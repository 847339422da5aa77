"""Ranks and supervisors forked from a template, which has imported all that they import: that takes them seconds.

Each process of pytest has one template, a fork server of multiprocessing's. A supervisor's zygote is forked in its
turn from the supervisor, which makes it as warm. How both are started cold, tests say that name it.
"""

import multiprocessing
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from ddpjob_supervisor.node import zygote, zygote_process

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.training.template"])


def settle(environment: Mapping[str, str], outputs: Iterable[tuple[int, Path]]) -> None:
    """Gives a child of the template an environment of its own, and descriptors that write to files."""
    for descriptor, file in outputs:
        # Appended to: of two descriptors of one file, each would write from its beginning, over the other's words.
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND), descriptor)
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]  # It may have workers.
    os.environ.clear()
    os.environ.update(environment)


class Forked:
    """A child of the template, as subprocess has it."""

    def __init__(self, process: Any) -> None:
        self._process = process
        self.pid: int = process.pid

    def poll(self) -> int | None:
        code: int | None = self._process.exitcode
        return code

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired([self._process.name], timeout or 0.0)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


Supervisor = Forked | subprocess.Popen[bytes]
Launch = Callable[[str, Sequence[str], Mapping[str, str], Path, Path], Supervisor]
"""A way to start what `python -m MODULE WORDS` does: its environment, its directory, and a file for its output."""


def fork_supervisor(
    module: str,
    words: Sequence[str],
    environment: Mapping[str, str],
    directory: Path,
    output: Path,
    *,
    before: Callable[[], None] | None = None,
) -> Forked:
    """`before` is called in the process first: it takes it into a network namespace, say."""
    output.touch()
    process = FORKS.Process(
        target=_supervise,
        args=(module, words, dict(environment), directory, output),
        kwargs={"before": before},
        daemon=True,
    )
    process.start()
    return Forked(process)


def start_supervisor_cold(
    module: str, words: Sequence[str], environment: Mapping[str, str], directory: Path, output: Path
) -> subprocess.Popen[bytes]:
    with output.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", module, *words],
            env=environment,
            cwd=directory,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _supervise(
    module: str,
    words: Sequence[str],
    environment: Mapping[str, str],
    directory: Path,
    output: Path,
    *,
    before: Callable[[], None] | None,
) -> None:
    if before is not None:
        before()
    os.setsid()
    os.chdir(directory)
    settle(environment, [(1, output), (2, output)])
    sys.path.insert(0, str(directory))
    sys.argv = [module, *words]
    zygote_process.start = fork_zygote  # type: ignore[assignment]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


class _Zygote:
    """A zygote that was forked, as subprocess has processes."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def wait(self) -> int:
        if self.returncode is None:
            _, status = os.waitpid(self.pid, 0)
            self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def fork_zygote(connection: socket.socket, preload: zygote_process.Preload) -> _Zygote:
    """Stands for `zygote_process.start`."""
    supervisor = os.getpid()
    if pid := os.fork():
        return _Zygote(pid)
    try:
        _become_zygote(connection, supervisor, zygote_process.words_of(preload))
    finally:
        os._exit(1)


def _become_zygote(connection: socket.socket, supervisor: int, words: Sequence[str]) -> NoReturn:
    """Leaves of the supervisor what exec() would leave, and is its zygote."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
    os.setsid()
    for descriptor in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        _close_unless_inherited(descriptor, connection.fileno())
    os.environ.pop("OMP_NUM_THREADS", None)  # The template has imported PyTorch without it: ranks have to tell it.
    del sys.path[0]  # As -P has none for the working directory.
    sys.argv = ["zygote", str(connection.fileno()), str(supervisor), *words]
    zygote.main()
    raise AssertionError("a zygote does not return")


def _close_unless_inherited(descriptor: int, kept: int) -> None:
    try:
        if descriptor != kept and not os.get_inheritable(descriptor):
            os.close(descriptor)
    except OSError:  # That of the listing itself.
        pass
