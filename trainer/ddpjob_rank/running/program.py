"""A training program, given as on Python's command line, and run as if Python had been started with it."""

import builtins
import runpy
import sys
import types
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ddpjob_rank.errors import ConfigError

TRAINER = "ddpjob_trainer"
"""The module of `ddpjob-train`."""


@dataclass(frozen=True, slots=True)
class Program:
    """A script or a module, and its arguments."""

    module: bool
    name: str
    arguments: tuple[str, ...] = ()

    @property
    def is_trainer(self) -> bool:
        """Whether the program is `ddpjob-train`, for which a supervisor can do more than for other programs."""
        return self.module and self.name == TRAINER

    @property
    def words(self) -> list[str]:
        """The command line of the program, which `program_of` parses."""
        return [*(["-m"] if self.module else []), self.name, *self.arguments]

    @property
    def directory(self) -> str:
        """The directory that Python searches first when the program imports a module."""
        return str(Path.cwd() if self.module else Path(self.name).resolve().parent)

    def check(self) -> None:
        """Checks that the program can be started.

        Raises:
            ConfigError: The script does not exist.
        """
        if not self.module and not Path(self.name).is_file():
            raise ConfigError(f"there is no script {self.name} in {Path.cwd()}")

    def run(self) -> None:
        """Runs the program in this process as `__main__`, with its arguments and with its directory on `sys.path`."""
        if self.module:
            sys.argv = ["-m", *self.arguments]  # runpy replaces `-m` with the module's file.
            sys.path[0] = self.directory
            runpy.run_module(self.name, run_name="__main__", alter_sys=True)
        else:
            sys.argv = [self.name, *self.arguments]
            sys.path[0] = self.directory
            _run_as_main(Path(self.name))


def program_of(words: Sequence[str]) -> Program:
    """Parses a command line, such as `train.py --lr 0.1` or `-m package.train --lr 0.1`.

    Raises:
        ConfigError: The command line names no program.
    """
    if not words or [*words] == ["-m"]:
        raise ConfigError("no program is given: name a script, or a module after -m")
    if words[0] == "-m":
        return Program(True, words[1], tuple(words[2:]))
    return Program(False, words[0], tuple(words[1:]))


def _run_as_main(script: Path) -> None:
    """Runs a script in a new `__main__`, which remains afterwards: multiprocessing reads the script's file there."""
    main = types.ModuleType("__main__")
    main.__file__ = str(script)
    main.__builtins__ = builtins  # type: ignore[attr-defined]
    sys.modules["__main__"] = main
    code = compile(script.read_bytes(), str(script), "exec", dont_inherit=True)
    exec(code, main.__dict__)  # noqa: S102  (running the user's script is the purpose)
