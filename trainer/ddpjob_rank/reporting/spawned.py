"""Sees the steps and bars of processes that a program spawns, as `torch.multiprocessing.spawn` does.

A forked process has all that was installed in its parent. A spawned one is a new interpreter, which begins here.
"""

import os
from typing import Any

from ddpjob_rank.environment import Env
from ddpjob_rank.importing import once_imported

from . import bars_seen, hugging_face, steps_seen

SPAWN = "multiprocessing.spawn"
BEGIN = f"""\
try:
    import {__name__}
    {__name__}.begin()
except Exception:
    pass
"""
"""Another Python (`multiprocessing.set_executable`) may have nothing of ours: its steps are not counted then."""


def install() -> None:
    """Makes spawned processes begin here from now on, if this process has a supervisor that wants to know."""
    if Env.HEARTBEAT in os.environ:
        once_imported(SPAWN, _let_begin_here)


def begin() -> None:
    """What a spawned process does first."""
    steps_seen.install()
    bars_seen.install()
    hugging_face.install()
    install()


def _let_begin_here(spawn: Any) -> None:
    command = spawn.get_command_line

    def beginning_here(**known: Any) -> list[str]:
        words: list[str] = command(**known)
        program = words.index("-c") + 1 if "-c" in words else 0  # It does not exist in a frozen executable.
        return [f"{BEGIN}{word}" if program and index == program else word for index, word in enumerate(words)]

    spawn.get_command_line = beginning_here
