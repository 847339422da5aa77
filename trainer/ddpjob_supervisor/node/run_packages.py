"""Packages that programs of a held gang need besides those of the image: installed once, and kept for later runs."""

import asyncio
import hashlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ddpjob_rank.environment import Env
from ddpjob_rank.failure.failure_report import read_report

from ddpjob_supervisor.watch.threads import in_thread

from .ranks import StartError

INSTALL = (sys.executable, "-P", "-m", "ddpjob_supervisor.node.install")
"""-P keeps the working directory, which belongs to the program, out of the module search path."""

PATH = "PYTHONPATH"
INDEX = ("PIP_", "UV_")
"""How the variables begin that decide from where packages come."""

KEPT = 4
"""How many sets of packages are kept: those that were used last."""

REFERENCE = re.compile(r"^[ \t]*-[cer]", re.MULTILINE)
"""An option of a line of a requirements file, which may be written without a space before its value."""


class NotInstalledError(StartError):
    """Packages cannot be installed. The message has pip's last error."""

    def __init__(self, message: str, cause: str) -> None:
        """`cause` is that of the rank's failure."""
        super().__init__(message)
        self.cause = cause


@dataclass(frozen=True, slots=True)
class PackageSet:
    """A set of packages, as a program names them."""

    names: Sequence[str]
    """Requirements as pip takes them, such as `einops>=0.8`."""
    file: str
    """A requirements file in the program's directory; empty if there is none."""

    @property
    def words(self) -> list[str]:
        """The arguments of pip, in the program's directory."""
        return [*self.names, *(("--requirement", self.file) if self.file else ())]

    def key(self, directory: Path, env: Mapping[str, str]) -> str:
        """What is equal for two runs that need the same packages from the same index.

        `directory` is that of the program. If the requirements file refers to a file there, a change of the code
        counts as a change of the packages.
        """
        text = ""
        with suppress(OSError):  # pip will say so.
            text = (directory / self.file).read_text(encoding="utf-8", errors="replace") if self.file else ""
        words = filter(None, re.split(r"[\s=]+", REFERENCE.sub("", text)))
        # A word may be no name that a file can have, such as a long line of a comment: Path.exists would raise.
        refers = any(os.path.exists(directory / word) for word in words)  # noqa: PTH110
        index = sorted((name, value) for name, value in env.items() if name.startswith(INDEX))
        whole = [sorted(self.names), text, directory.name if refers else "", index]
        return hashlib.sha256(json.dumps(whole).encode()).hexdigest()


class RunPackages:
    """Installs sets of packages on this node.

    Each set has a directory of its own, so that no program sees the packages of another one.
    """

    def __init__(self) -> None:
        self.pids: set[int] = set()
        """The process that installs; it is nobody's stray."""
        self._root: Path | None = None
        self._sets: dict[str, Path] = {}
        """The directory of each set that is installed, by its key; the one that was used last comes last."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)

    async def searched(self, wanted: PackageSet, directory: Path, env: Mapping[str, str]) -> str:
        """The PYTHONPATH with which a program finds its packages, which are installed now unless they are here.

        `directory` is that of the program, `env` the environment of its ranks. If this is cancelled, pip is killed,
        and what it has installed does not count.

        Raises:
            NotInstalledError: pip has failed.
        """
        key = wanted.key(directory, env)
        place = self._sets.pop(key, None)
        if place is None or not place.is_dir():  # A program may have cleared the directory of temporary files.
            await self._make_room()
            place = self._empty_place()
            await self._install(wanted, place, directory, env)
        self._sets[key] = place
        return _path_with(place, env)

    async def _make_room(self) -> None:
        """Removes the sets that were not used for longest, so that there can be another one."""
        while len(self._sets) >= KEPT:
            await in_thread(_remove, self._sets.pop(next(iter(self._sets))))

    def _empty_place(self) -> Path:
        """A new directory.

        Raises:
            NotInstalledError: There is no room on the disk.
        """
        try:
            self._root = self._root or Path(tempfile.mkdtemp(prefix="ddpjob-packages-"))
            self._root.mkdir(mode=0o700, exist_ok=True)
            return Path(tempfile.mkdtemp(dir=self._root))
        except OSError as error:
            raise _unable(error) from error

    async def _install(self, wanted: PackageSet, place: Path, directory: Path, env: Mapping[str, str]) -> None:
        report = place.with_name(f"{place.name}.json")
        environment = {**env, PATH: _path_with(place, env), Env.TERMINATION_LOG: str(report)}
        code = None
        try:
            code = await self._run([*INSTALL, str(place), *wanted.words], directory, environment)
            _check(report, code)
        finally:
            report.unlink(missing_ok=True)
            if code != 0:  # Who has cancelled this does not wait until gigabytes are removed.
                threading.Thread(target=_remove, args=(place,), name="remove packages", daemon=True).start()

    async def _run(self, command: Sequence[str], directory: Path, env: Mapping[str, str]) -> int:
        """Runs a command to its end, and returns its exit code. Kills what is left of its processes.

        Some are left if this is cancelled, or if the command is killed, for example because memory is short.

        Raises:
            NotInstalledError: There can be no more processes.
        """
        try:
            process = await asyncio.create_subprocess_exec(*command, env=env, cwd=directory, start_new_session=True)
        except OSError as error:
            raise _unable(error) from error
        self.pids.add(process.pid)
        try:
            return await process.wait()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            self.pids.discard(process.pid)


def _remove(place: Path) -> None:
    """Removes a set of packages. That may take seconds, in which the supervisor has to answer others."""
    shutil.rmtree(place, ignore_errors=True)


def _path_with(place: Path, env: Mapping[str, str]) -> str:
    """The PYTHONPATH of `env`, with the packages at its end, after the user's own directories."""
    return os.pathsep.join(filter(None, (env.get(PATH), str(place / "site"))))


def _unable(error: OSError) -> NotInstalledError:
    return NotInstalledError(f"cannot install packages: {error.strerror}", StartError.cause)


def _check(report: Path, code: int) -> None:
    """Checks how the process has ended that installs packages.

    Raises:
        NotInstalledError: It has failed, for the reason in its failure report.
    """
    if not code:
        return
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    message, cause = f"cannot install packages: pip {how}", StartError.cause
    with suppress(TypeError, KeyError):  # What pip builds knows the report's path, too, and may write anything.
        told = read_report(report) or {}
        message, cause = str(told["message"]), str(told["cause"])
    raise NotInstalledError(message, cause)
