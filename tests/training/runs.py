"""Runs of one test, which end with it."""

from pathlib import Path
from typing import Any

from tests.training import ranks


class Runs:
    """Starts runs, each in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.started: list[ranks.Run] = []

    def start(self, size: int, *arguments: object, **more: Any) -> ranks.Run:
        run = ranks.start(self.directory / f"run-{len(self.started)}", size, *arguments, **more)
        self.started.append(run)
        return run

    def train(self, size: int, *arguments: object, **more: Any) -> ranks.Run:
        """A run that is expected to succeed, to its end."""
        run = self.start(size, *arguments, **more)
        assert run.end() == [0] * size, run.story()
        return run

    def command(self, *words: object, code: int = 0) -> ranks.Run:
        """A command beside training, in one process, to its end."""
        run = self.start(1, *words, flags=())
        assert run.end() == [code], run.story()
        return run
