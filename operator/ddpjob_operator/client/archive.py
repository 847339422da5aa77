"""Packs a program's files into an archive, so that the same files always give the same bytes.

The archive is a zip, not a tar, because a zip has only files, which `zipfile` never unpacks outside a directory.
"""

import hashlib
import io
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass

from ddpjob_operator.api import BadInputError
from ddpjob_operator.api.option_names import option

MOST_BYTES = 1 << 20
"""The maximum size of a ConfigMap."""
NAMED = 3

DATE = (1980, 1, 1, 0, 0, 0)
REGULAR, READABLE, EXECUTABLE = 0o100000, 0o644, 0o755
UNIX = 3


@dataclass(frozen=True, slots=True)
class File:
    """A file to send."""

    name: str
    """The file's path relative to the program's directory, with slashes."""
    content: bytes
    executable: bool = False


@dataclass(frozen=True, slots=True)
class Archive:
    """Packed files."""

    data: bytes
    digest: str
    """SHA-256 of the data, in hexadecimal."""


def pack(files: Sequence[File]) -> Archive:
    """Packs files into an archive, which does not depend on the order of `files`.

    Raises:
        BadInputError: the archive is too large to send with a job; the message names the largest files and a remedy.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for file in sorted(files, key=lambda item: item.name):
            archive.writestr(_entry(file), file.content, zipfile.ZIP_DEFLATED, 9)
        sizes = {entry.filename: entry.compress_size for entry in archive.infolist()}
    data = buffer.getvalue()
    if len(data) > MOST_BYTES:
        raise too_large(sizes, "packed")
    return Archive(data, hashlib.sha256(data).hexdigest())


def too_large(sizes: dict[str, int], how: str) -> BadInputError:
    """The error for files that are too large, by their sizes in bytes. `how` is `packed` or `unpacked`."""
    largest = sorted(sizes, key=lambda name: -sizes[name])[:NAMED]
    named = ", ".join(f"{name} ({readable(sizes[name])})" for name in largest)
    return BadInputError(
        f"the code is {readable(sum(sizes.values()))} {how}, but a job can carry only "
        f"{readable(MOST_BYTES)}; the largest files: {named}. Exclude in .gitignore what the job does not "
        f"need, put data on a volume ({option('volume', 'CLAIM:/data')}), or put the code into an image"
        f" ({option('image')}, or {option('image-volume', 'IMAGE:/code')})"
    )


def readable(size: int) -> str:
    """Formats a number of bytes for people: `1.5 MiB`."""
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:  # noqa: PLR2004  (the factor from unit to unit)
            return f"{size:.4g} {unit}"
        size /= 1024  # type: ignore[assignment]
    return f"{size:.4g} GiB"


def _entry(file: File) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(file.name, DATE)
    entry.create_system = UNIX
    entry.external_attr = (REGULAR | (EXECUTABLE if file.executable else READABLE)) << 16
    return entry
