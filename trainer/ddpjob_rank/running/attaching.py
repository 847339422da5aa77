"""The terminal of `ddpjob run --attach`: the standard input of a supervisor and its ranks, one of which takes it."""

import contextlib
import fcntl
import io
import os
import sys
import termios
from datetime import timedelta
from types import ModuleType

from ddpjob_rank.environment import Env
from ddpjob_rank.importing import once_imported

STDIN, STDOUT, STDERR = 0, 1, 2

PATIENCE = timedelta(days=7)
"""How long ranks wait in a collective, unless the program sets a timeout: they wait for a person at a debugger."""


def attach() -> bool:
    """Takes the terminal if it is for this rank, and returns whether it is. All other ranks get no terminal."""
    attached = os.environ.get(Env.ATTACH)
    if attached is None:
        return False
    once_imported("torch.distributed.distributed_c10d", _wait_longer)
    if attached != os.environ.get(Env.RANK) or not os.isatty(STDIN):
        with open(os.devnull, "rb") as nothing:  # noqa: PTH123  (pathlib is not needed otherwise)
            os.dup2(nothing.fileno(), STDIN)
        # All ranks come to the same `breakpoint()`, which does nothing where there is no terminal.
        os.environ["PYTHONBREAKPOINT"] = "0"
        once_imported("pdb", _go_on)
        return False
    sys.stdout.flush()
    sys.stderr.flush()
    for output in (STDOUT, STDERR):
        os.dup2(STDIN, output)
    # If this fails, the rank does not notice when the size of the terminal changes.
    with contextlib.suppress(OSError):
        fcntl.ioctl(STDIN, termios.TIOCSCTTY, 0)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    return True


def _go_on(debugger: ModuleType) -> None:
    debugger.set_trace = lambda **_: None  # type: ignore[attr-defined]


def _wait_longer(distributed: ModuleType) -> None:
    for default in ("default_pg_timeout", "default_pg_nccl_timeout"):
        setattr(distributed, default, PATIENCE)
