"""Reads and creates files with a secret. A file is never left incomplete."""

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path

LEAST_BYTES, MOST_BYTES = 32, 4096
NAME = "secret"
OTHERS = stat.S_IRWXG | stat.S_IRWXO
# Without O_NONBLOCK, opening a pipe that somebody has planted would hang.
READING = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK


def secret_in(path: Path, *, private: bool) -> bytes:
    """Returns the secret in a file. If `private`, other users must not have access to the file.

    Raises:
        OSError: The file has no usable secret; `strerror` is the reason.
    """
    secret, found = _read(path)
    if private and found.st_mode & OTHERS:
        raise PermissionError(errno.EPERM, "others can reach it")
    return secret


def users_secret(directory: Path) -> bytes:
    """Returns the secret in the file NAME of a directory that only this user can access.

    Creates both if they are missing.

    Raises:
        OSError: The secret cannot be created, or what exists is not safe to use; `strerror` is the reason.
    """
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    place = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _check_owner(os.fstat(place))
        try:
            secret, found = _read(NAME, os.O_NOFOLLOW, place)
        except FileNotFoundError:
            _make(place)
            secret, found = _read(NAME, os.O_NOFOLLOW, place)
        _check_owner(found)
        return secret
    finally:
        os.close(place)


def _check_owner(found: os.stat_result) -> None:
    if found.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "it belongs to another user")
    if found.st_mode & OTHERS:
        raise PermissionError(errno.EPERM, "others can reach it")


def _read(path: Path | str, more: int = 0, place: int | None = None) -> tuple[bytes, os.stat_result]:
    file = os.open(path, READING | more, dir_fd=place)
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        secret = os.read(file, MOST_BYTES + 1).strip()
    finally:
        os.close(file)
    if not LEAST_BYTES <= len(secret) <= MOST_BYTES:
        had = f"{len(secret)} bytes" if len(secret) <= MOST_BYTES else "more"
        raise OSError(errno.EINVAL, f"a secret must have {LEAST_BYTES} to {MOST_BYTES} bytes, but this one {had}")
    return secret, found


def _make(place: int) -> None:
    """Creates the secret under a temporary name first, so that a process that is killed leaves no incomplete NAME."""
    new = f".{NAME}-{secrets.token_hex(8)}"
    writing = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(new, writing, 0o600, dir_fd=place), "wb") as file:
            file.write(secrets.token_hex(LEAST_BYTES).encode())
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):  # Another supervisor has already created the secret.
            os.link(new, NAME, src_dir_fd=place, dst_dir_fd=place)
    finally:
        os.unlink(new, dir_fd=place)
