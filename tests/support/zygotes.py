"""Zygotes that are forked from one process, because the import of PyTorch costs each of them four seconds of a core.

A zygote is forked only if it would import the same modules in the same environment: one whose directory hides a
module, or whose program chooses OMP_NUM_THREADS, is started as usual.
"""

import atexit
import os
import socket
import sys
import tempfile
from functools import cache
from pathlib import Path

from tests.plant.processes import start_with_us

TEMPLATE = Path(__file__).with_name("zygote_template.py")
CLIENT = Path(__file__).with_name("forked_zygotes")
ZYGOTE = "ddpjob_supervisor.node.zygote"
SHOWN_BYTES = 2**15
"""The room for the environment of a forked process in /proc."""


@cache
def forked_zygotes() -> dict[str, str]:
    """The variables of a process whose supervisors fork their zygotes, here: all zygotes of this process's tests."""
    folder = tempfile.TemporaryDirectory(prefix="ddpjob-zygotes-")
    address = Path(folder.name) / "socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        listener.listen(64)
        path = os.pathsep.join(filter(None, (str(CLIENT), os.environ.get("PYTHONPATH"))))
        variables = {"ZYGOTE_TEMPLATE": str(address), "PYTHONPATH": path}
        room = {"ROOM": " " * SHOWN_BYTES}
        words = (sys.executable, "-P", TEMPLATE, str(listener.fileno()), ZYGOTE)
        process = start_with_us(*words, pass_fds=[listener.fileno()], env={**os.environ, **room})
    atexit.register(folder.cleanup)
    atexit.register(process.wait)
    atexit.register(process.kill)
    return variables
