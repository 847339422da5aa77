"""Where a history is written: a directory, or an object store. Only the history's own thread waits for them."""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Protocol

from ddpjob_rank.errors import ConfigError
from ddpjob_rank.machine.storage import checked_address
from ddpjob_rank.manifests.unusable import UnavailableError

from .segments import HEAD_BYTES, JOBS, RESULT, HistoryWriter, Segment

ERRORS = (OSError, ConfigError, UnavailableError)
"""The errors of a target. All may pass: a disk may get room, a server may come back, an administrator may help."""
LASTING = frozenset(
    {
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.EEXIST,
        errno.ELOOP,
        errno.ENAMETOOLONG,
    }
)
"""The numbers of errors that stay until somebody changes the place or its permissions."""


SHARED = 2
"""So many levels of folders, those of namespaces and of names, have several jobs, and maybe of several users."""
TO_WRITE = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""O_NONBLOCK, because a pipe that somebody else has made would keep its writer waiting."""
LEFT_BYTES, LEFT_SHARE = 1 << 30, 20
"""What the history leaves free of a volume: so many bytes, or one part of so many if that is less."""
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def is_lasting(error: Exception) -> bool:
    """Whether the same write would fail again, unless somebody changes the place, its permissions or the job."""
    match error:
        case ConfigError():
            return True
        case UnavailableError():
            return error.lasting
        case OSError():
            return error.errno in LASTING
    return False


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
        """The names of the folders in the node's folder, sorted.

        Raises:
            ERRORS: They cannot be listed now.
        """
        ...

    def remove_folder(self, folder: str) -> None:
        """Removes the segments of a former process, and its folder if nothing else is in it.

        A file is removed only if its name and its first line both say that it is a segment of this process.

        Raises:
            ERRORS: They cannot be removed now.
        """
        ...

    def mark(self, name: str, content: bytes) -> None:
        """Writes a file of the index of jobs.

        Raises:
            ERRORS: It cannot be written now.
        """
        ...

    def unmark(self, name: str) -> None:
        """Removes a file of the index of jobs, if it exists.

        Raises:
            ERRORS: It cannot be removed now.
        """
        ...


class DirectoryTarget:
    """A folder of a directory. Only its owner can read what is written: programs may print secrets.

    Several users may share the directory. Below it, links are not followed, because somebody else may have made them.
    """

    def __init__(self, place: Path, writer: HistoryWriter) -> None:
        self._place, self._writer = place, writer
        self._node = writer.node_folder.split("/")
        self._open: tuple[str, str, int] | None = None
        """The folder and the name of the file to which the last segment was saved, and its descriptor."""

    def save(self, folder: str, segment: Segment) -> None:
        """As `Target.save`."""
        end = segment.saved
        try:
            descriptor = self._descriptor(folder, segment.name)
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
        with contextlib.suppress(FileNotFoundError), self._entered(*self._node, folder) as descriptor:
            os.unlink(name, dir_fd=descriptor)

    def folders(self) -> list[str]:
        """As `Target.folders`."""
        with self._entered(*self._node) as descriptor, os.scandir(descriptor) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))

    def remove_folder(self, folder: str) -> None:
        """As `Target.remove_folder`."""
        with self._entered(*self._node, folder) as descriptor:
            with os.scandir(descriptor) as entries:
                names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
            for name in names:
                if self._writer.has_written(folder, name, partial(_start, name, descriptor)):
                    os.unlink(name, dir_fd=descriptor)
        with self._entered(*self._node) as descriptor, contextlib.suppress(OSError):  # Something else is in it.
            os.rmdir(folder, dir_fd=descriptor)

    def mark(self, name: str, content: bytes) -> None:
        """As `Target.mark`."""
        with self._entered(self._writer.namespace, JOBS, make=True) as descriptor:
            file = os.open(name, TO_WRITE, 0o600, dir_fd=descriptor)
        try:
            os.write(file, content)
        finally:
            os.close(file)

    def unmark(self, name: str) -> None:
        """As `Target.unmark`."""
        with (
            contextlib.suppress(FileNotFoundError),
            self._entered(self._writer.namespace, JOBS) as descriptor,
        ):
            os.unlink(name, dir_fd=descriptor)

    @contextlib.contextmanager
    def _entered(self, *folders: str, make: bool = False) -> Iterator[int]:
        """A descriptor of a folder in the place. With `make`, folders that do not exist are made."""
        if make:
            self._place.mkdir(parents=True, exist_ok=True)
        path, owners = self._place, {os.geteuid(), 0}
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            owners.add(os.fstat(descriptor).st_uid)
            for depth, name in enumerate(folders):
                path /= name
                made = make and _make(path, descriptor)
                inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=descriptor)
                outer, descriptor = descriptor, inner
                if made and depth < SHARED:
                    _share(descriptor, outer)
                os.close(outer)
                owner = os.fstat(descriptor).st_uid
                if depth >= SHARED and owner not in owners:
                    raise ConfigError(f"{path} belongs to user {owner}, not to this process's user {os.geteuid()}")
            yield descriptor
        finally:
            os.close(descriptor)

    def _descriptor(self, folder: str, name: str) -> int:
        if self._open is None or self._open[:2] != (folder, name):
            self._close()
            with self._entered(*self._node, folder, make=True) as descriptor:
                _check_room(descriptor, name)
                file = os.open(name, TO_WRITE, 0o600, dir_fd=descriptor)
            self._open = folder, name, file
        else:
            _check_room(self._open[2], name)
        return self._open[2]

    def _close(self) -> None:
        if self._open is not None:
            *_, descriptor = self._open
            self._open = None
            os.close(descriptor)


def _check_room(descriptor: int, name: str) -> None:
    """Checks that the volume of a file or folder has more room than is left to checkpoints.

    A result may take of that room, too: it is small, it is the last to be saved, and training was for it.

    Raises:
        OSError: It has less.
    """
    if name.startswith(f"{RESULT}-"):
        return
    volume = os.fstatvfs(descriptor)
    least = min(LEFT_BYTES, volume.f_blocks * volume.f_frsize // LEFT_SHARE)
    if volume.f_bavail * volume.f_frsize < least:
        raise OSError(errno.ENOSPC, f"the last {least >> 20} MiB of the volume are left to checkpoints")


def _make(path: Path, parent: int) -> bool:
    """Makes a folder, and returns whether it did not exist.

    Raises:
        ConfigError: The parent is somebody else's, who alone may make folders there.
    """
    try:
        os.mkdir(path.name, 0o700, dir_fd=parent)
    except FileExistsError:
        return False
    except PermissionError as error:
        owner = os.fstat(parent).st_uid
        raise ConfigError(
            f"{path.parent} belongs to user {owner}, and this process's user {os.geteuid()} may not make {path.name}"
            " in it"
        ) from error
    return True


def _share(folder: int, parent: int) -> None:
    """Lets whoever can make folders in a folder's parent do so in the folder, too."""
    mode = stat.S_IMODE(os.fstat(parent).st_mode)
    with contextlib.suppress(OSError):  # Some file systems have no modes.
        # Sticky: others cannot remove or rename what is not theirs.
        os.fchmod(folder, mode | (stat.S_ISVTX if mode & OTHERS_WRITE else 0))


def _start(name: str, folder: int) -> bytes:
    with os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder), "rb") as file:
        return file.read(HEAD_BYTES)


def open_target(address: str, writer: HistoryWriter) -> Target:
    """Opens the folder of a writer's node in the directory or the object store that an address names.

    Raises:
        ConfigError: The address is wrong, or a package for object stores is missing.
    """
    place = checked_address(address)
    if isinstance(place, Path):
        return DirectoryTarget(place, writer)
    try:
        from .store_target import StoreTarget  # noqa: PLC0415  (needs an extra)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{place}: an object store needs another package: pip install 'ddpjob[store]'") from error
    return StoreTarget(place, writer)
