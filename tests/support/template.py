"""`python -P template.py SOCKET MODULE OTHER ...`: imports modules, and forks processes that run MODULE's `main`.

A request is a JSON object with `argv`, `environment` and `directory`, which is null if processes need no working
directory of their own. It comes with two descriptors: the file or pipe for the output, and the writing end of a pipe.
The process's ID is written into that pipe and, when the process has ended, its exit code.
"""

import gc
import json
import os
import random
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from io import BufferedWriter, FileIO, TextIOWrapper
from multiprocessing.connection import Connection
from typing import Any

from ddpjob_rank.machine.parent_death import die_with

MOST_BYTES = 2**17


def main() -> None:
    """Serves requests until nobody can send any more. A process is forked for each request."""
    descriptor, module, *others = sys.argv[1:]
    run: Callable[[], str | int | None] = import_module(module).main
    for other in others:
        import_module(other)
    requests = socket.socket(fileno=int(descriptor))
    gc.freeze()  # Otherwise the first garbage collection in each process would copy shared memory.
    while True:
        request, files, *_ = socket.recv_fds(requests, MOST_BYTES, 2)
        if not request:
            return
        template = os.getpid()
        if os.fork() == 0:
            requests.close()
            _keep(template, run, json.loads(request), *files)
        for file in files:
            os.close(file)
        _reap()


def _reap() -> None:
    """Reaps keepers that have ended, instead of ignoring SIGCHLD, because this counts what the forks have used."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _keep(
    template: int, run: Callable[[], str | int | None], request: dict[str, Any], output: int, pipe: int
) -> None:
    """Runs the requested process as a child of this one, because only a parent can get its exit code."""
    die_with(template)
    told = Connection(pipe, readable=False)
    keeper, pid = os.getpid(), os.fork()
    if pid == 0:
        told.close()
        die_with(keeper)
        _become(output, **request)
        sys.exit(run())  # The scripts of entry points exit in the same way.
    os.close(output)
    told.send(pid)
    told.send(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    os._exit(0)


def _become(output: int, argv: list[str], environment: dict[str, str], directory: str | None) -> None:
    os.setsid()
    if directory is not None:
        os.chdir(directory)
    random.seed()
    sys.argv = argv
    os.environ.clear()
    os.environ.update(environment)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.close(output)
    # New ones, because the old ones may have been made for a file, and the output may be a pipe.
    sys.stdout = sys.__stdout__ = TextIOWrapper(BufferedWriter(FileIO(1, "wb", closefd=False)))  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = TextIOWrapper(  # type: ignore[misc]
        BufferedWriter(FileIO(2, "wb", closefd=False)), errors="backslashreplace", line_buffering=True
    )


if __name__ == "__main__":
    main()
