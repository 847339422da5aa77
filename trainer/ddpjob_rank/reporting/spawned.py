"""Observes steps and progress bars in processes that a program spawns, as with `torch.multiprocessing.spawn`.

A forked process inherits what is installed in its parent. A spawned process is a new interpreter, so its command line
is changed to call `begin` first.
"""

import os
from typing import Any

from ddpjob_rank.environment import Env
from ddpjob_rank.importing import once_imported

from . import bars_seen, evaluations_seen, hugging_face, steps_seen

SPAWN = "multiprocessing.spawn"
BEGIN = f"""\
try:
    import {__name__}
    {__name__}.begin()
except Exception:
    pass
"""
"""Code for the spawned interpreter. If it is another Python (`multiprocessing.set_executable`) without DDPJob, the
import fails, and steps are not counted."""


def install() -> None:
    """Makes processes that are spawned from now on call `begin` first, if this process has a supervisor."""
    if Env.HEARTBEAT in os.environ:
        once_imported(SPAWN, _let_begin_here)


def begin() -> None:
    """Installs everything that observes the program. A spawned process calls this first."""
    steps_seen.install()
    evaluations_seen.install()
    bars_seen.install()
    hugging_face.install()
    install()


def _let_begin_here(spawn: Any) -> None:
    command = spawn.get_command_line

    def beginning_here(**known: Any) -> list[str]:
        words: list[str] = command(**known)
        program = words.index("-c") + 1 if "-c" in words else 0  # A frozen executable has no `-c`.
        return [f"{BEGIN}{word}" if program and index == program else word for index, word in enumerate(words)]

    spawn.get_command_line = beginning_here
