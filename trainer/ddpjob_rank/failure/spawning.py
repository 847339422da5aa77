"""Recognizes mistakes of programs that spawn processes, for example with `torch.multiprocessing.spawn`."""

import ast
import os
import traceback

from ddpjob_rank.environment import Env
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.machine.port_holder import is_held_by_kin

from .own_code import own_frames, statements_of
from .taken_port import SPAWNED_RAISED, TAKEN

EXITED = "ProcessExitedException"
"""The type of the exception by which `torch.multiprocessing.spawn` reports that a process has ended abnormally.
Only the name is compared, because torch is not imported here."""

BOOTSTRAPPING = "current process has finished its bootstrapping phase"
"""Part of multiprocessing's message if a process spawns another process while it is itself being spawned."""

GUARDS = frozenset({"__name__", "parent_process", "current_process"})
"""Names that scripts use to distinguish their first process from processes that import the script."""


def spawning_mistake(error: BaseException) -> ConfigError | None:
    """A one-line error if a program spawned processes in a way that cannot work; None for any other error."""
    kind = type(error).__name__
    if BOOTSTRAPPING in str(error) or (kind == EXITED and _spawned_and_failed(error)):
        return _unguarded(error)
    found = TAKEN.search(str(error)) if kind == SPAWNED_RAISED and _has_siblings() else None
    if found and is_held_by_kin(port := int(found["port"] or found["bound"])):
        return ConfigError(
            f"port {port} is taken, because each rank of this machine spawns processes"
            " that listen on it: a script that spawns its processes itself needs one rank per node"
            " (--procs-per-node 1)"
        )
    return None


def _has_siblings() -> bool:
    """Whether this machine has other ranks; a script may have changed the variable to anything."""
    size = os.environ.get(Env.LOCAL_WORLD_SIZE, "1")
    return size.isascii() and size.isdecimal() and size.lstrip("0") not in {"", "1"}


def _spawned_and_failed(error: BaseException) -> bool:
    """Whether a process was spawned, not forked (so it had imported the script), and ended as after an exception."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    forked = any(frame.f_locals.get("start_method") == "fork" for frame in frames)
    return str(error).endswith("exit code 1") and not forked


def _unguarded(error: BaseException) -> ConfigError | None:
    """The error of a program that spawns processes whenever it is imported; None if the program does not."""
    frame = next(iter(own_frames(error)), None)
    if frame is None or frame.lineno is None or not _is_unguarded(frame.filename, frame.lineno):
        return None
    return ConfigError(
        f"{frame.filename}:{frame.lineno} starts processes whenever the script is imported, and each process that is"
        " spawned imports the script: put this line, and all that only the first process should do, below"
        " if __name__ == '__main__':"
    )


def _is_unguarded(file: str, line: int) -> bool:
    """Whether a line of a script also runs if the script is not the main module."""
    found = next(
        (node for node in statements_of(file) if node.lineno <= line <= (node.end_lineno or node.lineno)), None
    )
    guarded = isinstance(found, ast.If) and any(
        {getattr(node, "id", None), getattr(node, "attr", None)} & GUARDS for node in ast.walk(found.test)
    )
    return found is not None and not guarded
