"""`python -P template.py MODULE SOCKET`: imports MODULE once, and forks a process that runs its `main` on request.

A request is a JSON object with `argv` and `environment`. It comes with two descriptors: the file for the output, and
the writing end of a pipe. The process's ID is written into the pipe and, when the process has ended, its exit code.
"""

import gc
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

from ddpjob_rank.machine.parent_death import die_with

MOST_BYTES = 2**17


def main() -> None:
    """Serves requests until nobody can send any more. A process is forked for each request."""
    module, descriptor = sys.argv[1:]
    run: Callable[[], str | int | None] = import_module(module).main
    requests = socket.socket(fileno=int(descriptor))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Otherwise keepers would become zombies.
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


def _keep(
    template: int, run: Callable[[], str | int | None], request: dict[str, Any], output: int, pipe: int
) -> None:
    """Runs the requested process as a child of this one, because only a parent can get its exit code."""
    die_with(template)
    told = Connection(pipe, readable=False)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    keeper, pid = os.getpid(), os.fork()
    if pid == 0:
        told.close()
        die_with(keeper)
        _become(output, **request)
        sys.exit(run())  # The scripts of entry points exit in the same way.
    told.send(pid)
    told.send(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    os._exit(0)


def _become(output: int, argv: list[str], environment: dict[str, str]) -> None:
    os.setsid()
    sys.argv = argv
    os.environ.clear()
    os.environ.update(environment)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.close(output)


if __name__ == "__main__":
    main()
