"""Finding the newest checkpoint that can be used. It only reads: training may go on there.

    step-00000120/state.pt         what is restored, opaque here
    step-00000120/manifest.json    what it is, with size and checksum of the other; written last
    step-00000120-2                the same, where something else had its name
    step-00000120.broken           a broken one that was set aside

`unusable` has the four reasons for which one is passed over, or for which there is no answer.
"""

import hashlib
import math
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from ddpjob_rank.console import counted, warn
from ddpjob_rank.errors import CheckpointUnusableError, ConfigError, StorageUnavailableError, TrainerError
from ddpjob_rank.machine.regular_file import ABSENT, NotRegularError, open_regular
from ddpjob_rank.machine.storage import forbids
from ddpjob_rank.manifests.manifest import NAME, Manifest, read_manifest
from ddpjob_rank.manifests.unusable import BrokenError, NewerError, UnavailableError, UnusableError, VanishedError

from ddpjob_trainer.group.shared_file import SharedFile

STATE = "state.pt"
BROKEN = re.compile(r"step-\d{8,}(?:-\d+)?\.broken(?:-\d+)?")

PATIENCE_SECONDS = 30.0
"""For this long a checkpoint that cannot be read is tried again."""
PAUSE_SECONDS = 0.2

READABLE = "Let this user read it, or train as its owner (in a pod's securityContext: fsGroup, or runAsUser)"

Decoded = TypeVar("Decoded")
Decode = Callable[[Path], Decoded]
"""Reads a state; raises if it cannot be read, though whole."""
Place = tuple[tuple[float, str], int]


@dataclass(frozen=True, slots=True)
class Found(Generic[Decoded]):
    """A valid checkpoint that has been read."""

    path: Path
    manifest: Manifest
    content: SharedFile
    state: Decoded
    """The decoded content."""


@dataclass(frozen=True, slots=True)
class Search(Generic[Decoded]):
    """The newest checkpoint that can be used, and the newer ones that cannot."""

    found: Found[Decoded] | None
    passed_over: dict[Path, UnusableError]

    def told(self) -> "Search[Decoded]":
        """Itself; a warning is given for each that was passed over."""
        for path, why in self.passed_over.items():
            warn(f"checkpoint {path} is passed over: {why}")
        return self

    def of_kind(self, kind: type[UnusableError]) -> list[Path]:
        """Those that were passed over for this reason."""
        return [path for path, why in self.passed_over.items() if isinstance(why, kind)]

    def refuse_newer(self, remedy: str) -> None:
        """Takes no older one where there is one for another version.

        Raises:
            CheckpointUnusableError: There is one.
        """
        for path in self.of_kind(NewerError):
            raise CheckpointUnusableError(f"checkpoint {path} cannot be used: {self.passed_over[path]}. {remedy}")


def look(
    paths: Callable[[], list[Path]], decode: Decode[Decoded], patience: float = PATIENCE_SECONDS
) -> Search[Decoded]:
    """The newest valid one of the checkpoints that are there. What cannot be read now is tried again for a while.

    Args:
        paths: Lists them; is asked again if one has vanished, as when training goes on there.
        decode: Reads a state.
        patience: Seconds.

    Raises:
        StorageUnavailableError: A checkpoint, maybe the newest, cannot be read. No older one is taken in its place.
        ConfigError: It cannot, and by its owner and mode this user never can.
        OSError: There is no such directory.
    """
    until, told = time.monotonic() + patience, False
    while True:
        try:
            return _newest(_listed(paths), decode)
        except UnavailableError as error:
            if time.monotonic() >= until:
                raise _given_up(error, patience) from error
            if not told and not isinstance(error, VanishedError):
                told = True
                warn(f"{error}; retrying for {patience:g} s")
            time.sleep(PAUSE_SECONDS)


def _given_up(error: UnavailableError, patience: float) -> TrainerError:
    told = f"{error}. Retried for {patience:g} s. Training does not start over: "
    cause = error.__cause__
    if isinstance(cause, PermissionError) and cause.filename and (why := forbids(Path(cause.filename))):
        return ConfigError(f"{told}{why}. {READABLE}")
    return StorageUnavailableError(
        f"{told}make it readable for this user ({os.geteuid()}), or have the disk or the file server looked at"
    )


def place_of(path: Path, unknown: float) -> Place:
    """The place of a checkpoint among others; with this attempt, if its manifest does not say."""
    try:
        return read_manifest(path).order
    except UnusableError:
        return (unknown, ""), _step_of(path)


def read_whole(path: Path, *, afresh: bool = False) -> tuple[Manifest, SharedFile]:
    """A checkpoint's manifest, and its state, which is what the manifest says.

    Args:
        path: The checkpoint.
        afresh: From the disk, and not from what the kernel remembers of it, as far as it can be told to.

    Raises:
        UnusableError: It cannot be used.
    """
    manifest = read_manifest(path)
    try:
        content, checksum = SharedFile(open_regular(path / STATE)), hashlib.sha256()
        if content.size != manifest.size:
            raise BrokenError(f"{STATE} has {counted(content.size, 'byte')}, its manifest says {manifest.size}")
        if afresh:
            content.forget()
        for portion in content.portions():
            checksum.update(portion)
    except NotRegularError:
        raise BrokenError(f"{STATE} is not a regular file") from None
    except OSError as error:
        if error.errno in ABSENT:
            raise BrokenError(f"it has no {STATE}") from error
        raise UnavailableError(f"{path / STATE} cannot be read: {error.strerror}") from error
    if checksum.hexdigest() != manifest.sha256:
        raise BrokenError(f"the checksum of {STATE} differs from its manifest's")
    return manifest, content


def _listed(paths: Callable[[], list[Path]]) -> list[Path]:
    try:
        return paths()
    except OSError as error:
        if error.errno in ABSENT:
            raise
        raise UnavailableError(f"{error.filename} cannot be read: {error.strerror}") from error


def _newest(paths: list[Path], decode: Decode[Decoded]) -> Search[Decoded]:
    passed_over: dict[Path, UnusableError] = {}
    known = {path: _identity(path) for path in paths}
    # One that does not say its place comes first, so that it is not taken for an old one.
    for path in sorted(paths, key=lambda path: place_of(path, unknown=math.inf), reverse=True):
        try:
            return Search(_read(path, decode), passed_over)
        except UnavailableError:
            raise
        except UnusableError as why:
            if known[path] is None or _identity(path) != known[path]:
                raise VanishedError(f"checkpoint {path} has been removed while it was read") from why
            passed_over[path] = why
    return Search(None, passed_over)


def _read(path: Path, decode: Decode[Decoded]) -> Found[Decoded]:
    manifest, content = read_whole(path)
    try:
        return Found(path, manifest, content, decode(content.path))
    except (MemoryError, UnusableError):
        raise
    except OSError as error:
        raise UnavailableError(f"{path / STATE} cannot be read: {error.strerror or error}") from error
    except Exception as error:
        raise NewerError(f"{STATE} is whole, but this version cannot read it: {error}") from error


def _identity(path: Path) -> tuple[int, int] | None:
    """What another one of the same name does not have; None if there is none."""
    try:
        known = os.lstat(path)
    except OSError:
        return None
    return known.st_dev, known.st_ino


def _step_of(path: Path) -> int:
    named = NAME.match(path.name)
    return int(named[1]) if named else 0
