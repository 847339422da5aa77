"""Warns of packages that come too late for a forked rank, because another version was imported before it."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress

from ddpjob_rank.console import warn
from ddpjob_rank.environment import Env


def warn_of_late_packages(directories: Iterable[str]) -> None:
    """Warns of the modules in these directories that this process has imported from elsewhere.

    They would be found first if they were imported now. Only rank 0 warns, for all ranks.
    """
    if os.environ.get(Env.RANK, "0") != "0":
        return
    if late := sorted({name for directory in directories for name in _late(directory)}):
        them, were = ("it", "is") if len(late) == 1 else ("them", "are")
        warn(
            f"the {', '.join(late)} in PYTHONPATH {were} not used: another version was imported before this run, with"
            f" PyTorch. Install {them} with ddpjob hold --pip"
        )


def _late(directory: str) -> Iterator[str]:
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            name = entry.name.removesuffix(".py")
            module = sys.modules.get(name)
            file = getattr(module, "__file__", None)
            if file and not file.startswith(os.path.join(directory, "")):  # noqa: PTH118  (pathlib drops the slash)
                yield name
