"""Checkpoints as files: a reader finds a whole one or none, and a broken one is skipped.

    step-00000120/state.pt         what is restored, opaque here
    step-00000120/manifest.json    what it is, with size and checksum of the other; written last

Only rank 0 uses this. A directory belongs to one job; yet two of its attempts may be here at once, if an unreachable
machine still runs the earlier one, and so may two jobs by mistake. The earlier one gives way.
"""

import errno
import hashlib
import math
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Generic, TypeVar

from ddpjob_rank.console import counted, warn
from ddpjob_rank.errors import StorageFullError, SupersededError, TrainerError
from ddpjob_rank.machine.storage import ADVICE, kind_of

from ddpjob_trainer.group.shared_file import SharedFile

from .content import Content, Sink, write_synced
from .manifest import MANIFEST, NO_ATTEMPT, Manifest, encoded, read_manifest
from .unusable import UnusableError

STATE = "state.pt"
NAME = re.compile(r"step-(\d{8,})")
TEMPORARY_PREFIX = ".step-"

TAKEN = frozenset({errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR})
"""What rename(2) of a directory says if something has its new name."""


Decoded = TypeVar("Decoded")
Decode = Callable[[Path], Decoded]
"""Reads a state; raises if it cannot be read, though whole."""


@dataclass(frozen=True, slots=True)
class Found(Generic[Decoded]):
    """A valid checkpoint that has been read."""

    path: Path
    manifest: Manifest
    content: SharedFile
    state: Decoded
    """The decoded content."""


class Checkpoints:
    """The checkpoints in one directory.

    Raises:
        ConfigError, StorageFullError, StorageError: The directory cannot be made, read or written.
    """

    def __init__(self, directory: Path, keep: int) -> None:
        self.directory = directory.absolute()
        self._keep = keep
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            for leftover in self.directory.glob(f"{TEMPORARY_PREFIX}*"):
                # An earlier attempt may still be writing into it.
                shutil.rmtree(leftover, ignore_errors=True)
            with TemporaryFile(dir=self.directory):
                pass
            self._paths()
        except OSError as error:
            kind = kind_of(error.errno)
            raise kind(
                f"the checkpoint directory {self.directory} cannot be used: {error.strerror}; {ADVICE[kind]}"
            ) from error

    def newest(self, decode: Decode[Decoded]) -> Found[Decoded] | None:
        """The newest valid checkpoint; a warning is given for invalid ones, and they are skipped."""
        paths = self._paths()
        found = newest(paths, decode)
        if found is None and paths:
            warn(f"there is no valid checkpoint in {self.directory}: training starts from the beginning")
        return found

    def newest_attempt(self) -> int:
        """The latest attempt that has written here, NO_ATTEMPT if none has."""
        return int(self._newest_writer()[0])

    def write(
        self, manifest: Manifest, encode: Callable[[Sink], object], check: Callable[[Path], object] = Path.exists
    ) -> Path:
        """Puts a checkpoint in place, and only then removes the oldest ones.

        Args:
            manifest: What it is; time, size and checksum are filled in.
            encode: Writes the state.
            check: Raises if the file with the state cannot be read back.

        Raises:
            StorageFullError, ConfigError, StorageError: It could not be written: there is no room, it is forbidden,
                or the storage is in trouble. Nothing of it is left, and earlier ones are intact.
            SupersededError: A later attempt has written here, and takes over.
        """
        path, content = self.directory / f"step-{manifest.step:08}", Content()
        try:
            self._refuse_if_late(manifest)
            with self._workspace() as workspace:
                fresh = workspace / path.name
                fresh.mkdir()
                content.fill(fresh / STATE, encode)
                check(fresh / STATE)
                _write_manifest(fresh, manifest, content)
                self._put_in_place(fresh, path, manifest)
            _sync(self.directory)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and self.directory.is_dir():
                raise self._superseded(manifest, "it has removed what this one was writing") from error
            raise self._not_written(path, content.size, error) from error
        self._prune(manifest)
        return path

    @contextmanager
    def _workspace(self) -> Iterator[Path]:
        """A directory that is removed with all that is still in it; if the process dies first, at the next start."""
        with TemporaryDirectory(prefix=TEMPORARY_PREFIX, dir=self.directory, ignore_cleanup_errors=True) as name:
            yield Path(name)

    def _put_in_place(self, fresh: Path, path: Path, manifest: Manifest) -> None:
        """Gives a written checkpoint its name, in place of a broken one or one of an earlier attempt."""
        while True:
            self._set_aside(path, manifest)
            try:
                fresh.rename(path)
            except OSError as error:
                if error.errno not in TAKEN:
                    raise
            else:
                return

    def _prune(self, manifest: Manifest) -> None:
        """Keeps the newest up to the one just written.

        One of a later step is broken or from another line, or it would have been resumed from: it replaces nothing
        else, and is removed when this line has passed its step.
        """
        known = [(_order(path, unknown=NO_ATTEMPT), path) for path in self._paths()]
        ours = [(order, path) for order, path in known if order <= manifest.order and order[1] <= manifest.step]
        for _, path in sorted(ours)[: -self._keep]:
            try:
                self._set_aside(path, manifest)
            except OSError as error:
                warn(f"the old checkpoint {path} could not be removed: {error.strerror}")

    def _set_aside(self, path: Path, manifest: Manifest) -> None:
        """Removes a checkpoint, if there is one, so that its name never refers to half of it.

        Raises:
            SupersededError: There is one of a later writer than the manifest's. It stays.
        """
        with self._workspace() as workspace, suppress(FileNotFoundError):
            aside = workspace / path.name
            path.rename(aside)
            # Checked here, where nothing can put another one in its place.
            if _order(aside, unknown=NO_ATTEMPT)[0] > manifest.writer:
                aside.rename(path)
        self._refuse_if_late(manifest)

    def _refuse_if_late(self, manifest: Manifest) -> None:
        newest = self._newest_writer()
        if newest > manifest.writer:
            evidence = f"there is a checkpoint of {_named(newest)}, and this is {_named(manifest.writer)}"
            raise self._superseded(manifest, evidence)

    def _newest_writer(self) -> tuple[float, str]:
        return max((_order(path, unknown=NO_ATTEMPT)[0] for path in self._paths()), default=(NO_ATTEMPT, ""))

    def _superseded(self, manifest: Manifest, evidence: str) -> SupersededError:
        return SupersededError(
            f"a later run has taken over {self.directory}: {evidence}. Step {manifest.step} is not saved. If both"
            " shall run, give each a --checkpoint-dir of its own"
        )

    def _paths(self) -> list[Path]:
        return checkpoints_in(self.directory)

    def _not_written(self, path: Path, needed: int, error: OSError) -> TrainerError:
        kind = kind_of(error.errno)
        room = f" (needed {needed} bytes, free {_free(self.directory)})" if kind is StorageFullError else ""
        return kind(
            f"checkpoint {path} could not be saved: {error.strerror}{room}; {ADVICE[kind]}."
            " The checkpoints before it are intact"
        )


def checkpoints_in(directory: Path) -> list[Path]:
    """All checkpoints of a directory, valid or not."""
    return [path for path in directory.iterdir() if NAME.fullmatch(path.name)]


def newest(checkpoints: Iterable[Path], decode: Decode[Decoded]) -> Found[Decoded] | None:
    """The newest valid one of some checkpoints; a warning is given for invalid ones, and they are skipped.

    It only reads: training may go on there.
    """
    # One that does not say its place comes first, so that a warning is given.
    for path in sorted(checkpoints, key=lambda path: _order(path, unknown=math.inf), reverse=True):
        try:
            return _read(path, decode)
        except Exception as error:  # noqa: BLE001  (whatever is wrong with it, the one before may be right)
            warn(f"checkpoint {path} is passed over: {error}")
    return None


def _free(directory: Path) -> str:
    try:
        return str(shutil.disk_usage(directory).free)
    except OSError:
        return "unknown"


def _write_manifest(path: Path, manifest: Manifest, content: Content) -> None:
    whole = replace(
        manifest,
        savedAt=datetime.now(UTC).isoformat(timespec="milliseconds"),
        size=content.size,
        sha256=content.sha256,
    )
    write_synced(path / MANIFEST, encoded(whole))
    _sync(path)


def _sync(directory: Path) -> None:
    """Makes names in a directory durable: fsync(2) of a file does not."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(path: Path, decode: Decode[Decoded]) -> Found[Decoded]:
    manifest, content, checksum = read_manifest(path), SharedFile.opened(path / STATE), hashlib.sha256()
    if content.size != manifest.size:
        raise ValueError(f"{STATE} has {counted(content.size, 'byte')}, its manifest says {manifest.size}")
    for portion in content.portions():
        checksum.update(portion)
    if checksum.hexdigest() != manifest.sha256:
        raise ValueError(f"the checksum of {STATE} is not its manifest's")
    return Found(path, manifest, content, decode(content.path))


def _named(writer: tuple[float, str]) -> str:
    attempt, run = writer
    return f"attempt {attempt} of run {run}" if run else f"attempt {attempt}"


def _order(path: Path, unknown: float) -> tuple[tuple[float, str], int]:
    """The place of a checkpoint among others; with this attempt, if its manifest does not say."""
    try:
        return read_manifest(path).order
    except UnusableError:
        return (unknown, ""), int(path.name.removeprefix("step-"))
