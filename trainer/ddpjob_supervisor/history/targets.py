"""Where a history is written: a directory, or an object store. Only the history's own thread waits for them."""

import os
import shutil
from pathlib import Path
from typing import Protocol

from ddpjob_rank.errors import ConfigError
from ddpjob_rank.machine.storage import checked_address
from ddpjob_rank.manifests.unusable import UnavailableError

from .segments import Segment

ERRORS = (OSError, ConfigError, UnavailableError)
"""The errors of a target. All may pass: a disk may get room, a server may come back, an administrator may help."""


class Target(Protocol):
    """The folder of one node, in which each of its processes has a folder."""

    def save(self, folder: str, segment: Segment) -> None:
        """Saves what of a segment is not saved yet. After an error, the same call can be repeated.

        Raises:
            ERRORS: It cannot be saved now.
        """
        ...

    def remove(self, folder: str, name: str) -> None:
        """Removes a segment.

        Raises:
            ERRORS: It cannot be removed now.
        """
        ...

    def folders(self) -> list[str]:
        """The folders of the node's processes, the oldest first.

        Raises:
            ERRORS: They cannot be listed now.
        """
        ...

    def remove_folder(self, folder: str) -> None:
        """Removes a folder and its segments.

        Raises:
            ERRORS: It cannot be removed now.
        """
        ...


class DirectoryTarget:
    """A folder of a directory. Only its owner can read what is written: programs may print secrets."""

    def __init__(self, node: Path) -> None:
        self._node = node
        self._open: tuple[Path, int] | None = None
        """The file to which the last segment was saved, and its descriptor."""

    def save(self, folder: str, segment: Segment) -> None:
        """As `Target.save`."""
        end = segment.saved
        try:
            descriptor = self._descriptor(self._node / folder / segment.name)
            while end < len(segment.content):
                # At a position, so that a repeated call overwrites what an interrupted one has left.
                end += os.pwrite(descriptor, segment.content[end:], end)
            os.fdatasync(descriptor)
        except OSError:
            self._close()
            raise
        segment.saved = end

    def remove(self, folder: str, name: str) -> None:
        """As `Target.remove`."""
        (self._node / folder / name).unlink(missing_ok=True)

    def folders(self) -> list[str]:
        """As `Target.folders`."""
        with os.scandir(self._node) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))

    def remove_folder(self, folder: str) -> None:
        """As `Target.remove_folder`."""
        shutil.rmtree(self._node / folder)

    def _descriptor(self, path: Path) -> int:
        if self._open is None or self._open[0] != path:
            self._close()
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._open = path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        return self._open[1]

    def _close(self) -> None:
        if self._open is not None:
            _, descriptor = self._open
            self._open = None
            os.close(descriptor)


def open_target(address: str, node: str) -> Target:
    """Opens the folder `node` of the directory or the object store that an address names.

    Raises:
        ConfigError: The address is wrong, or a package for object stores is missing.
    """
    place = checked_address(address)
    if isinstance(place, Path):
        return DirectoryTarget(place / node)
    try:
        from .store_target import StoreTarget  # noqa: PLC0415  (needs an extra)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{place}: an object store needs another package: pip install 'ddpjob[store]'") from error
    return StoreTarget(place, node)
