"""A training program in the form that `python` takes, run in this process as if it had been started by itself."""

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
    """What to run: a script with its arguments, or a module with its own."""

    module: bool
    name: str
    arguments: tuple[str, ...] = ()

    @property
    def is_trainer(self) -> bool:
        """Whether it is `ddpjob-train`, which can do more than any program."""
        return self.module and self.name == TRAINER

    @property
    def words(self) -> list[str]:
        """Its command line, in the form that `program_of` takes."""
        return [*(["-m"] if self.module else []), self.name, *self.arguments]

    @property
    def directory(self) -> str:
        """The directory in which Python first looks for what it imports."""
        return str(Path.cwd() if self.module else Path(self.name).resolve().parent)

    def check(self) -> None:
        """Checks what can be wrong with it before anything runs.

        Raises:
            ConfigError: There is no such script.
        """
        if not self.module and not Path(self.name).is_file():
            raise ConfigError(f"there is no script {self.name} in {Path.cwd()}")

    def run(self) -> None:
        """Becomes the program: its `__main__`, its arguments, its place in the search path."""
        if self.module:
            sys.argv = ["-m", *self.arguments]  # runpy puts the module's file in the first place.
            sys.path[0] = self.directory
            runpy.run_module(self.name, run_name="__main__", alter_sys=True)
        else:
            sys.argv = [self.name, *self.arguments]
            sys.path[0] = self.directory
            _run_as_main(Path(self.name))


def program_of(words: Sequence[str]) -> Program:
    """The program that the words of a command line name: `train.py --lr 0.1`, or `-m package.train --lr 0.1`.

    Raises:
        ConfigError: They name none.
    """
    if not words or words == ["-m"]:
        raise ConfigError("no program is given: name a script, or a module after -m")
    if words[0] == "-m":
        return Program(True, words[1], tuple(words[2:]))
    return Program(False, words[0], tuple(words[1:]))


def _run_as_main(script: Path) -> None:
    """Runs a script in a `__main__` of its own, which stays: what multiprocessing spawns looks for its file."""
    main = types.ModuleType("__main__")
    main.__file__ = str(script)
    main.__builtins__ = builtins  # type: ignore[attr-defined]
    sys.modules["__main__"] = main
    code = compile(script.read_bytes(), str(script), "exec", dont_inherit=True)
    exec(code, main.__dict__)  # noqa: S102  It is what was asked for.
