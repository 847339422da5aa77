"""Copies of the project in which mutants run: the checkout itself is never changed."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from .mutant import Mutant

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("operator", "trainer")


@dataclass(frozen=True, slots=True)
class Copy:
    """The project in another directory."""

    root: Path

    @classmethod
    def made(cls, source: Path, root: Path) -> "Copy":
        """All that git knows or would take, as it is now."""
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=source, check=True, capture_output=True, text=True).stdout
        for name in filter(None, names.split("\0")):
            if (source / name).is_file():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source / name, root / name)
        return cls(root)

    @property
    def said(self) -> str:
        """What the last command printed."""
        return (self.root / "said").read_text(encoding="utf-8", errors="replace")

    @contextmanager
    def mutated(self, mutant: Mutant) -> Iterator[None]:
        """With a mutant in it. Its file gets a time of its own, and then the old one again: bytecode goes by that."""
        file = self.root / mutant.file
        source, times = file.read_text(encoding="utf-8"), (file.stat().st_atime, file.stat().st_mtime)
        changed = mutant.applied(source)
        assert changed is not None, f"does not apply any more: {mutant}"
        file.write_text(changed, encoding="utf-8")
        os.utime(file, (times[0], times[1] + mutant.number))
        try:
            yield
        finally:
            file.write_text(source, encoding="utf-8")
            os.utime(file, times)

    def run(self, seconds: float, *command: str, env: Mapping[str, str]) -> int | None:
        """The exit code of a Python program that finds the copy's packages first; None: it took too long."""
        first = os.pathsep.join([str(self.root), *(str(self.root / package) for package in PACKAGES)])
        process = subprocess.Popen(
            ["nice", "-n", "10", sys.executable, *command],
            cwd=self.root,
            env={**os.environ, "PYTHONPATH": first, **env},
            stdout=(self.root / "said").open("wb"),
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
