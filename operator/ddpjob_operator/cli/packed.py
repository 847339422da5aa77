"""A program that exists only in memory, such as a function with its modules: its files, and which of them to run."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ddpjob_operator.api.contract import Env
from ddpjob_operator.api.entrypoint import Entrypoint, job_name, script, started
from ddpjob_operator.local import CODE

HERE = f"$({Env.RUN_DIR})/{CODE}"
"""The directory with the files, as the command of a container on this machine names it."""


@dataclass(frozen=True)
class PackedProgram:
    """The files of a program."""

    files: Mapping[str, bytes]
    """Their contents, by their paths, which are relative and have slashes."""
    script: str
    """The path of the file to run."""
    name: str
    """What a person would call the program. The job's name is made from it."""
    told: tuple[str, ...] = ()
    """What its user is told."""
    origin: Path = Path()
    """The folder from which its files come, as far as they are not made."""

    def entrypoint(self, start_method: str | None) -> Entrypoint:
        """How ranks run it, in the directory with its files."""
        return started(replace(script(self.script), name=job_name(self.name)), start_method)

    def here(self, document: dict[str, Any]) -> dict[str, Any]:
        """A job that runs it, changed so that its ranks may work in any directory of this machine."""
        copy: dict[str, Any] = deepcopy(document)
        copy["spec"]["template"]["spec"]["containers"][0]["command"][-1] = f"{HERE}/{self.script}"
        return copy
