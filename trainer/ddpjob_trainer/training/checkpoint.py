"""Checkpoints as files: whoever looks finds a whole one or none, and a broken one is passed over.

    step-00000120/state.pt         what is restored, opaque here
    step-00000120/manifest.json    what it is, with size and checksum of the other; written last

Only rank 0 comes here. A directory is of one job.
"""

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

from ddpjob_trainer.console import warn
from ddpjob_trainer.errors import ConfigError, StorageFullError

FORMAT = 1
STATE, MANIFEST = "state.pt", "manifest.json"
NAME = re.compile(r"step-(\d{8,})")
TEMPORARY_PREFIX = ".step-"

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a checkpoint is; its fields are the keys of manifest.json."""

    step: int
    epoch: int
    samples: int
    """The cursor: samples of the epoch that all processes together have seen."""
    worldSize: int  # noqa: N815  (a JSON key)
    globalBatchSize: int  # noqa: N815
    uid: str
    """Of the job."""
    lineage: tuple[int, ...]
    """The job's incarnations that led here, the last one the writer's."""
    savedAt: str = ""  # noqa: N815
    size: int = 0
    sha256: str = ""
    format: int = FORMAT


@dataclass(frozen=True, slots=True)
class Found:
    """A valid checkpoint that has been read."""

    path: Path
    manifest: Manifest
    content: bytes


class Checkpoints:
    """The checkpoints in one directory.

    Raises:
        ConfigError: The directory cannot be made, read or written.
    """

    def __init__(self, directory: Path, keep: int) -> None:
        self.directory = directory.absolute()
        self._keep = keep
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            for leftover in self.directory.glob(f"{TEMPORARY_PREFIX}*"):
                shutil.rmtree(leftover)
            with TemporaryFile(dir=self.directory):
                pass
            self._paths()
        except OSError as error:
            raise ConfigError(
                f"the checkpoint directory {self.directory} cannot be used: {error.strerror};"
                " it must be a directory that this user may read and write"
            ) from error

    def newest(self, readable: Callable[[bytes], object]) -> Found | None:
        """The newest valid checkpoint; those that are not are warned of and passed over.

        Args:
            readable: Raises if a state, though whole, cannot be read.
        """
        paths = self._paths()
        for path in reversed(paths):
            try:
                return _read(path, readable)
            except Exception as error:  # noqa: BLE001  (whatever is wrong with it, the one before may be right)
                warn(f"checkpoint {path} is passed over: {error}")
        if paths:
            warn(f"there is no valid checkpoint in {self.directory}: training starts from the beginning")
        return None

    def write(self, manifest: Manifest, content: bytes) -> Path:
        """Puts a checkpoint in place, and only then removes the oldest ones.

        Raises:
            StorageFullError: It could not be written; nothing of it is left, and the ones before are intact.
        """
        manifest = replace(
            manifest,
            savedAt=datetime.now(UTC).isoformat(timespec="milliseconds"),
            size=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
        )
        path = self.directory / f"step-{manifest.step:08}"
        try:
            with self._workspace() as workspace:
                _write_checkpoint(workspace / path.name, manifest, content)
                self._set_aside(path)
                (workspace / path.name).rename(path)
                _sync(self.directory)
        except OSError as error:
            raise self._not_written(path, len(content), error) from error
        self._prune(manifest.step)
        return path

    @contextmanager
    def _workspace(self) -> Iterator[Path]:
        """A directory that vanishes with all that is still in it; if the process dies first, at the next start."""
        with TemporaryDirectory(prefix=TEMPORARY_PREFIX, dir=self.directory, ignore_cleanup_errors=True) as name:
            yield Path(name)

    def _prune(self, step: int) -> None:
        """Keeps the newest up to a step; a later one is broken, or it would have been resumed from."""
        paths = [path for path in self._paths() if _step(path) <= step]
        for path in paths[: -self._keep]:
            try:
                self._set_aside(path)
            except OSError as error:
                warn(f"the old checkpoint {path} could not be removed: {error.strerror}")

    def _set_aside(self, path: Path) -> None:
        """Removes a checkpoint so that at no moment half of it stands under its name."""
        if path.exists():
            with self._workspace() as workspace:
                path.rename(workspace / path.name)

    def _paths(self) -> list[Path]:
        return sorted((path for path in self.directory.iterdir() if NAME.fullmatch(path.name)), key=_step)

    def _not_written(self, path: Path, needed: int, error: OSError) -> StorageFullError:
        advice = (
            "free some space, or name another --checkpoint-dir"
            if error.errno in NO_ROOM
            else "make the directory writable, or name another --checkpoint-dir"
        )
        free = _free(self.directory)
        return StorageFullError(
            f"checkpoint {path} could not be saved: {error.strerror} (needed {needed} bytes, free {free});"
            f" {advice}. The checkpoints before it are intact"
        )


def _free(directory: Path) -> str:
    try:
        return str(shutil.disk_usage(directory).free)
    except OSError:
        return "unknown"


def _write_checkpoint(path: Path, manifest: Manifest, content: bytes) -> None:
    path.mkdir()
    _write_synced(path / STATE, content)
    _write_synced(path / MANIFEST, json.dumps(asdict(manifest), indent=1).encode())
    _sync(path)


def _write_synced(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync(directory: Path) -> None:
    """Makes names in a directory durable: fsync(2) of a file does not."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(path: Path, readable: Callable[[bytes], object]) -> Found:
    manifest = _manifest((path / MANIFEST).read_bytes())
    content = (path / STATE).read_bytes()
    if len(content) != manifest.size:
        raise ValueError(f"{STATE} has {len(content)} bytes, its manifest says {manifest.size}")
    if hashlib.sha256(content).hexdigest() != manifest.sha256:
        raise ValueError(f"the checksum of {STATE} is not its manifest's")
    readable(content)
    return Found(path, manifest, content)


def _manifest(content: bytes) -> Manifest:
    try:
        fields = json.loads(content)
        if fields["format"] == FORMAT:
            return Manifest(**{**fields, "lineage": tuple(fields["lineage"])})
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{MANIFEST} is damaged ({error})") from error
    raise ValueError(f"its format is {fields['format']}, this version reads {FORMAT}")


def _step(path: Path) -> int:
    return int(path.name.removeprefix("step-"))
