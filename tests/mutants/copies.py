"""Copies of the project in which mutants run: the checkout itself is never changed."""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from .change import PACKAGES
from .faults import Mutant

CACHE = ".mypy_cache"


@dataclass(frozen=True, slots=True)
class Copy:
    """The project in another directory."""

    root: Path

    @classmethod
    def made(cls, source: Path, root: Path) -> "Copy":
        """All that git knows or would take, as it is now, and what mypy remembers of it."""
        for name in _files(source):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / name, root / name)
        if (source / CACHE).is_dir():
            shutil.copytree(source / CACHE, root / CACHE)
        return cls(root)

    @property
    def said(self) -> str:
        """What the last command printed."""
        return (self.root / "said").read_text(encoding="utf-8", errors="replace")

    @contextmanager
    def mutated(self, mutant: Mutant) -> Iterator[None]:
        """With a mutant in it. Its file gets a time of its own, and then the old one again: bytecode goes by that."""
        file = self.root / mutant.file
        source, times = file.read_bytes(), (file.stat().st_atime, file.stat().st_mtime)
        assert source == mutant.source, f"{file} has changed since {mutant} was made of it"
        file.write_bytes(mutant.mutated)
        os.utime(file, (times[0], times[1] + 1 + mutant.start))
        try:
            yield
        finally:
            file.write_bytes(source)
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


def digest(source: Path) -> str:
    """A hash of all that copies of a project hold."""
    found = hashlib.sha256()
    for name in _files(source):
        found.update(name.encode() + b"\0" + hashlib.sha256((source / name).read_bytes()).digest())
    return found.hexdigest()


def _files(source: Path) -> list[str]:
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=source, check=True, capture_output=True, text=True).stdout
    return sorted({name for name in names.split("\0") if (source / name).is_file()})
