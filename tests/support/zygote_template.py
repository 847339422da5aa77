"""`python -P zygote_template.py DESCRIPTOR ddpjob_supervisor.node.zygote`: forks zygotes for supervisors.

It listens on the socket with this descriptor, and has imported what zygotes import. The last word makes it and its
forks look like zygotes to whoever reads command lines.

A request is four descriptors, the zygote's end of the connection to its supervisor and the standard input, output and
error, and then a dictionary, as zygote_client.py sends it. The answer is the zygote's process ID and, when it has
ended, its exit code. The answer is None if the zygote would not be the same as one that is started, and must be
started.
"""

import ctypes
import os
import resource
import signal
import socket
import sys
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

from ddpjob_rank.importing import uncollected
from ddpjob_rank.machine import parent_death
from ddpjob_supervisor.node import zygote
from ddpjob_supervisor.node.zygote_process import PRELOADED, TRAINER_PRELOADED

READ_BY_IMPORTS = ("OMP_", "MKL_", "KMP_", "GOMP_", "LD_", "MALLOC_", "TORCH", "PYTORCH_", "CUDA_", "PYTHON")
"""What names of variables begin with that Python, its dynamic linker or the imported modules read when they begin."""

PATH = "PYTHONPATH"

BEGUN = dict(os.environ)
"""What the imports see: some of them set variables."""


def main() -> None:
    """Imports modules, and forks a zygote for each request."""
    with uncollected():
        for name in (*PRELOADED, *TRAINER_PRELOADED):
            import_module(name)
    names = {name.partition(".")[0] for name in sys.modules}
    listener, template = socket.socket(fileno=int(sys.argv[1])), os.getpid()
    while True:
        request, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            parent_death.die_with(template)
            _answer(request, names)
        request.close()
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _answer(request: socket.socket, names: set[str]) -> NoReturn:
    """Forks a zygote as a child of this process, because only a parent can get its exit code."""
    _, files, *_ = socket.recv_fds(request, 1, 4)
    told = Connection(request.detach())
    wanted: dict[str, Any] = told.recv()
    if not _is_the_same(wanted, names):
        told.send(None)
        os._exit(0)
    keeper, pid = os.getpid(), os.fork()
    if pid == 0:
        told.close()
        parent_death.die_with(keeper)
        try:
            _become(*files, **wanted)
        finally:
            os._exit(1)
    for file in files:
        os.close(file)
    told.send(pid)
    told.send(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    os._exit(0)


def _is_the_same(wanted: dict[str, Any], names: set[str]) -> bool:
    """Whether a zygote with this environment and in this directory would have imported the same modules."""
    directory, set_by_program, *_ = wanted["words"]
    if set_by_program != "{}" or wanted["ignored"] != _ignored():
        return False
    if _read_by_imports(wanted["environment"]) != _read_by_imports(BEGUN):
        return False
    return names.isdisjoint(_modules(Path(wanted["directory"], directory)))


def _modules(directory: Path) -> set[str]:
    """The modules that can be imported from a directory. A folder without __init__.py comes after all others."""
    files = {file.name.partition(".")[0] for file in directory.glob("*.[ps][yo]*")}
    return files | {file.parent.name for file in directory.glob("*/__init__.py")}


def _ignored() -> list[int]:
    return [number for number in signal.valid_signals() if signal.getsignal(number) is signal.SIG_IGN]


def _read_by_imports(environment: Any) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(READ_BY_IMPORTS) and name != PATH}


def _become(
    connection: int,
    *outputs: int,
    supervisor: int,
    words: list[str],
    environment: dict[str, str],
    directory: str,
    limits: list[tuple[int, tuple[int, int]]],
    cores: list[int],
    priority: int,
    ignored: list[int],  # noqa: ARG001  (these are the template's)
) -> None:
    """Makes this process what a zygote is that its supervisor has started, and runs it."""
    os.setsid()
    os.chdir(directory)
    os.sched_setaffinity(0, cores)
    os.setpriority(os.PRIO_PROCESS, 0, priority)
    for number, limit in limits:
        resource.setrlimit(number, limit)
    for descriptor, output in enumerate(outputs):
        os.dup2(output, descriptor)
        os.close(output)
    os.environ.clear()
    os.environ.update(environment)
    _show_environment()
    sys.path[:0] = [entry for entry in environment.get(PATH, "").split(os.pathsep) if entry and entry not in sys.path]

    def die_with(parent: int) -> None:
        """The supervisor is not this process's parent. Its end also ends the connection, and that the zygote."""
        if parent != supervisor:
            parent_death.die_with(parent)

    zygote.die_with = die_with
    sys.argv = [zygote.__file__ or "", str(connection), str(supervisor), *words]
    zygote.main()


def _show_environment() -> None:
    """Writes the environment to where others read it, /proc/PID/environ: the memory that this process began with."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = (int(fields[number - 3]) for number in (50, 51))
    shown = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in os.environ.items())[: end - begin]
    ctypes.memset(begin, 0, end - begin)
    ctypes.memmove(begin, shown, len(shown))


if __name__ == "__main__":
    main()
