"""Finds the newest checkpoint that can be used. Changes nothing, because training may be writing to the same storage.

    step-00000120/state.pt         the state, which this module does not interpret
    step-00000120/__1_0.distcp     tensors of a sharded state, written by rank 1
    step-00000120/manifest.json    the description, with size and checksum of the state; written last
    step-00000120-2                a checkpoint whose name without `-2` was taken
    step-00000120.broken           a broken checkpoint that was set aside

A `Reader` says how checkpoints are read: here those in directories, in `object_store` those in a bucket.

`manifests.unusable` defines the four reasons why a checkpoint cannot be used. For three of them, the search passes
over the checkpoint. For the fourth (the checkpoint is unavailable), the search fails.
"""

import hashlib
import math
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from ddpjob_rank.console import counted, warn
from ddpjob_rank.errors import CheckpointUnusableError, ConfigError, StorageUnavailableError, TrainerError
from ddpjob_rank.machine.regular_file import ABSENT, NotRegularError, open_regular
from ddpjob_rank.machine.storage import forbids
from ddpjob_rank.manifests.manifest import NAME, Manifest, Shard, read_manifest
from ddpjob_rank.manifests.unusable import BrokenError, NewerError, UnavailableError, UnusableError, VanishedError

from ddpjob.group.shared_file import SharedFile

STATE = "state.pt"
BROKEN = re.compile(r"step-\d{8,}(?:-\d+)?\.broken(?:-\d+)?")

PATIENCE_SECONDS = 30.0
"""How long to keep trying to read a checkpoint."""
PAUSE_SECONDS = 0.2

MOST_AT_ONCE = 8
"""How many shards are read at the same time: one core reads and hashes 1 to 2 GB/s, and a file server can deliver
more."""

READABLE = (
    "Allow the user that runs the training to read the checkpoint (in a pod: securityContext.fsGroup), or run the"
    " training as the checkpoint's owner (securityContext.runAsUser)"
)

Entry = TypeVar("Entry")
"""A checkpoint's path or, in an object store, its URL."""
Decoded = TypeVar("Decoded")
Decode = Callable[[Path], Decoded]
"""A function that reads a state from its file. It raises an error if this version cannot read an intact file."""
SortKey = tuple[tuple[float, str], int, str]


class Reader(ABC, Generic[Entry]):
    """Reads checkpoints of one kind of storage."""

    @abstractmethod
    def manifest(self, checkpoint: Entry) -> Manifest:
        """The manifest of a checkpoint.

        Raises:
            UnusableError: There is no manifest, or it cannot be used.
        """

    @abstractmethod
    def whole(self, checkpoint: Entry) -> tuple[Manifest, SharedFile]:
        """The manifest of a checkpoint and its state, whose size and checksum agree with the manifest.

        Raises:
            UnusableError: The checkpoint cannot be used.
        """

    @abstractmethod
    def identity(self, checkpoint: Entry) -> object | None:
        """A value that changes if the checkpoint is replaced; None if the checkpoint does not exist."""

    @abstractmethod
    def given_up(self, error: UnavailableError) -> tuple[type[TrainerError], str]:
        """The class of the error for a checkpoint that stayed unavailable, and a sentence that says what to do."""

    def sort_key(self, checkpoint: Entry, unknown: float) -> SortKey:
        """The key that sorts checkpoints from the oldest to the newest.

        If the manifest cannot be read, the key contains `unknown` as the attempt, and the step in the checkpoint's
        name.
        """
        try:
            return self.manifest(checkpoint).order
        except UnusableError:
            return (unknown, ""), _step_of(str(checkpoint)), ""


class FileReader(Reader[Path]):
    """Reads checkpoints that are directories."""

    def manifest(self, checkpoint: Path) -> Manifest:
        """Like `Reader.manifest`."""
        return read_manifest(checkpoint)

    def whole(self, checkpoint: Path) -> tuple[Manifest, SharedFile]:
        """Like `Reader.whole`."""
        manifest, content = read_whole(checkpoint)
        check_shards(checkpoint, manifest.shards)
        return manifest, content

    def identity(self, checkpoint: Path) -> tuple[int, int] | None:
        """Like `Reader.identity`: the device and the inode."""
        try:
            known = os.lstat(checkpoint)
        except OSError:
            return None
        return known.st_dev, known.st_ino

    def given_up(self, error: UnavailableError) -> tuple[type[TrainerError], str]:
        """Like `Reader.given_up`. If owners and modes forbid reading, waiting does not help."""
        cause = error.__cause__
        if isinstance(cause, PermissionError) and cause.filename and (why := forbids(Path(cause.filename))):
            return ConfigError, f"{why}. {READABLE}"
        return StorageUnavailableError, (
            f"make the checkpoint readable for this user ({os.geteuid()}), or have the disk or the file server looked"
            " at"
        )


FILES = FileReader()


@dataclass(frozen=True, slots=True)
class Found(Generic[Decoded]):
    """A valid checkpoint that has been read."""

    location: str
    """The checkpoint's path or URL."""
    manifest: Manifest
    content: SharedFile
    state: Decoded
    """The decoded `content`."""


@dataclass(frozen=True, slots=True)
class Search(Generic[Entry, Decoded]):
    """The newest checkpoint that can be used, and the newer checkpoints that were passed over."""

    found: Found[Decoded] | None
    passed_over: dict[Entry, UnusableError]

    def warn_passed_over(self) -> "Search[Entry, Decoded]":
        """Prints a warning for each checkpoint that was passed over; returns this search."""
        for checkpoint, why in self.passed_over.items():
            warn(f"checkpoint {checkpoint} is passed over: {why}")
        return self

    def of_kind(self, kind: type[UnusableError]) -> list[Entry]:
        """The checkpoints that were passed over with an error of this class."""
        return [checkpoint for checkpoint, why in self.passed_over.items() if isinstance(why, kind)]

    def refuse_newer(self, remedy: str) -> None:
        """Refuses to use an older checkpoint if a newer one needs another version of this program.

        Raises:
            CheckpointUnusableError: A checkpoint that needs another version was passed over.
        """
        for newer in self.of_kind(NewerError):
            raise CheckpointUnusableError(f"checkpoint {newer} cannot be used: {self.passed_over[newer]}. {remedy}")


def find_newest(
    listed: Callable[[], list[Entry]],
    decode: Decode[Decoded],
    retry_seconds: float = PATIENCE_SECONDS,
    *,
    reader: Reader[Entry],
) -> Search[Entry, Decoded]:
    """Finds the newest valid checkpoint. If a checkpoint cannot be read now, tries again for a while.

    Args:
        listed: Lists the checkpoints. Called again if a checkpoint has vanished, as can happen during training.
        decode: Reads a state.
        retry_seconds: How many seconds to keep trying.
        reader: Reads the checkpoints of this kind of storage.

    Raises:
        StorageUnavailableError: A checkpoint that may be the newest cannot be read. An older one is not used instead.
        ConfigError: A checkpoint's owner and mode do not allow this user to read it.
        OSError: The directory does not exist.
    """
    until, warned = time.monotonic() + retry_seconds, False
    while True:
        try:
            return _newest(_list(listed), decode, reader)
        except UnavailableError as error:
            if time.monotonic() >= until:
                kind, remedy = reader.given_up(error)
                raise kind(
                    f"{error}. Retried for {retry_seconds:g} s. Training does not start over: {remedy}"
                ) from error
            if not warned and not isinstance(error, VanishedError):
                warned = True
                warn(f"{error}; retrying for {retry_seconds:g} s")
            time.sleep(PAUSE_SECONDS)


def read_whole(path: Path, *, afresh: bool = False) -> tuple[Manifest, SharedFile]:
    """Reads a checkpoint. Returns its manifest and its state, whose size and checksum agree with the manifest.

    Args:
        path: The checkpoint.
        afresh: Whether to read from the disk rather than from the kernel's page cache, if the kernel allows it.

    Raises:
        UnusableError: The checkpoint cannot be used.
    """
    manifest = read_manifest(path)
    return manifest, _read_intact(path / STATE, manifest.size, manifest.sha256, afresh)


def check_shards(path: Path, shards: Sequence[Shard], *, afresh: bool = False) -> None:
    """Checks, by size and checksum, that the files of a sharded state are those that were written.

    Args:
        path: The checkpoint.
        shards: The files. Several are read at the same time.
        afresh: As for `read_whole`.

    Raises:
        UnusableError: A file is missing, differs, or cannot be read.
    """
    if not shards:
        return
    with ThreadPoolExecutor(min(len(shards), MOST_AT_ONCE), "checksum") as threads:
        list(threads.map(lambda shard: _read_intact(path / shard.name, shard.size, shard.sha256, afresh), shards))


def _read_intact(file: Path, size: int, sha256: str, afresh: bool) -> SharedFile:  # noqa: FBT001
    """Reads a file, and compares it with the size and the checksum in its manifest."""
    try:
        content, checksum = SharedFile(open_regular(file)), hashlib.sha256()
        if content.size != size:
            raise BrokenError(f"{file.name} has {counted(content.size, 'byte')}, its manifest says {size}")
        if afresh:
            content.drop_page_cache()
        for portion in content.portions():
            checksum.update(portion)
    except NotRegularError:
        raise BrokenError(f"{file.name} is not a regular file") from None
    except OSError as error:
        if error.errno in ABSENT:
            raise BrokenError(f"it has no {file.name}") from error
        raise UnavailableError(f"{file} cannot be read: {error.strerror}") from error
    if checksum.hexdigest() != sha256:
        raise BrokenError(f"the checksum of {file.name} differs from its manifest's")
    return content


def _list(listed: Callable[[], list[Entry]]) -> list[Entry]:
    try:
        return listed()
    except OSError as error:
        if error.errno in ABSENT:
            raise
        raise UnavailableError(f"{error.filename} cannot be read: {error.strerror}") from error


def _newest(checkpoints: list[Entry], decode: Decode[Decoded], reader: Reader[Entry]) -> Search[Entry, Decoded]:
    passed_over: dict[Entry, UnusableError] = {}
    known = [(checkpoint, reader.identity(checkpoint)) for checkpoint in checkpoints]
    # If a manifest is unreadable, its checkpoint may be the newest, so it comes first.
    known.sort(key=lambda pair: reader.sort_key(pair[0], unknown=math.inf), reverse=True)
    for checkpoint, identity in known:
        try:
            return Search(_read(checkpoint, decode, reader), passed_over)
        except UnavailableError:
            raise
        except UnusableError as why:
            if identity is None or reader.identity(checkpoint) != identity:
                raise VanishedError(f"checkpoint {checkpoint} was removed while it was being read") from why
            passed_over[checkpoint] = why
    return Search(None, passed_over)


def _read(checkpoint: Entry, decode: Decode[Decoded], reader: Reader[Entry]) -> Found[Decoded]:
    manifest, content = reader.whole(checkpoint)
    try:
        return Found(str(checkpoint), manifest, content, decode(content.path))
    except (MemoryError, UnusableError):
        raise
    except OSError as error:
        raise UnavailableError(f"{checkpoint}/{STATE} cannot be read: {error.strerror or error}") from error
    except Exception as error:
        raise NewerError(f"{STATE} is whole, but this version cannot read it: {error}") from error


def _step_of(checkpoint: str) -> int:
    named = NAME.match(checkpoint.rpartition("/")[2])
    return int(named[1]) if named else 0
