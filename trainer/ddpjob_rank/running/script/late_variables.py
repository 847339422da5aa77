"""Warns when a forked rank sets a variable too late for PyTorch, and its script's text did not show that it would."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import Any

from ddpjob_rank.console import warn
from ddpjob_rank.environment import Env
from ddpjob_rank.failure.whose import is_of_a_library, is_ours
from ddpjob_rank.running.program import Program

from .read_at_import import DYNAMO, reader_of
from .script_environment import Place, Variables
from .script_reader import variables_of


def watch(program: Program, seen: Mapping[str, str]) -> None:
    """Warns once if this process sets a variable that PyTorch has already read, to another value than in `seen`.

    `seen` is the environment in which PyTorch was imported. A variable that the script sets after its own import of
    PyTorch does not count, because it would have no effect in plain Python either. Only rank 0 warns, for all ranks.
    """
    if os.environ.get(Env.RANK, "0") != "0":
        return
    # os.environ calls putenv, too, so load_dotenv() and os.environ.update() are noticed. An audit hook would work as
    # well, but it costs 0.4 us for each event that Python audits, such as a call of id().
    os.putenv = _Watch(program, seen, os.putenv)


class _Watch:
    """Replaces `os.putenv` until it has warned."""

    def __init__(self, program: Program, seen: Mapping[str, str], put: Callable[[Any, Any], None]) -> None:
        # The path must be absolute, because the script may change its working directory.
        self._program = program if program.module else replace(program, name=str(Path(program.name).resolve()))
        self._seen = dict(seen)
        self._put = put
        self._process = os.getpid()

    def __call__(self, name: Any, value: Any, /) -> None:
        if os.getpid() == self._process:
            with suppress(Exception):  # Otherwise an error in this check would reach the script.
                self._check(os.fsdecode(name), os.fsdecode(value))
        self._put(name, value)

    def _check(self, name: str, value: str) -> None:
        if (reader := reader_of(name)) is None or self._seen.get(name) == value:
            return
        frames = [frame for frame in _stack() if not is_ours(frame.f_code.co_filename)]
        own = [frame for frame in frames if not is_of_a_library(frame.f_code.co_filename)]
        by_torch = frames[0].f_globals.get("__name__", "").partition(".")[0] == "torch"
        if not own or by_torch or not self._is_before(own, reader):
            return
        if os.putenv is self:
            os.putenv = self._put
        place = Place(own[0].f_code.co_filename, own[0].f_lineno)
        warn(
            f"{place} sets {name} too late: PyTorch reads it when imported, and this rank was forked from a process"
            f" that had imported PyTorch. Set {name} in your shell or with --env, or use --start-method cold"
        )

    @cached_property
    def _found(self) -> Variables:
        return variables_of(self._program, {})

    def _is_before(self, own: list[FrameType], reader: str) -> bool:
        """Whether the script has not reached its own import of PyTorch yet. `own` are the frames of its code."""
        if reader == DYNAMO:
            return True
        found = self._found
        names = sys.modules["__main__"].__dict__
        main = next((frame.f_lineno for frame in reversed(own) if frame.f_globals is names), None)
        if found.imported is None or main is None:
            return main is not None and "torch" not in names
        file, line = Path(found.imported.file).resolve(), found.imported.line
        beside = (frame.f_lineno for frame in own if Path(frame.f_code.co_filename).resolve() == file)
        return main < found.main_line or (main == found.main_line and next(beside, line) < line)


def _stack() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(3)  # noqa: SLF001  (past this module's frames)
    while frame is not None:
        if not frame.f_code.co_filename.startswith("<frozen"):
            yield frame
        frame = frame.f_back
