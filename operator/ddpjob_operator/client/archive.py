"""Packs a program's files into an archive, so that the same files always give the same bytes.

The archive is a zip, not a tar, because a zip has only files, which `zipfile` never unpacks outside a directory.
"""

import hashlib
import io
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ddpjob_operator.api import BadInputError
from ddpjob_operator.api.option_names import option

NAMED = 5
"""How many of the largest files an error names."""

DATE = (1980, 1, 1, 0, 0, 0)
REGULAR, READABLE, EXECUTABLE = 0o100000, 0o644, 0o755
UNIX = 3


@dataclass(frozen=True, slots=True)
class Limit:
    """How much code can be sent in one way, in bytes."""

    packed: int
    unpacked: int
    """The total size of all files. Larger programs are not read, because packing could not reduce them enough."""
    carrier: str
    """What carries the code, as the subject of a sentence."""
    otherwise: Callable[[], str]
    """What to do with code that is larger, as the end of a sentence with the options that its reader knows."""


IN_A_CONFIG_MAP = Limit(
    1 << 20,
    64 << 20,
    "a job",
    lambda: (
        f"send it through a registry ({option('source-registry', 'registry.example.com/team/code')}), put data on a"
        f" volume ({option('volume', 'CLAIM:/data')}), or put the code into an image ({option('image')}, or"
        f" {option('image-volume', 'IMAGE:/code')})"
    ),
)
"""The code of a job. Its packed size is the maximum of a ConfigMap."""
BY_EXEC = Limit(
    64 << 20,
    256 << 20,
    "a run on held nodes",
    lambda: "put data on a volume when you hold the nodes (ddpjob hold --volume CLAIM:/data)",
)
"""The code of a program for held nodes. 64 MiB take half a minute on a line of 20 Mbit/s."""
IN_A_REGISTRY = Limit(
    64 << 20,
    256 << 20,
    "a job",
    lambda: (
        f"put data on a volume ({option('volume', 'CLAIM:/data')}), or put the code into an image of your own"
        f" ({option('image')})"
    ),
)
"""The code of a job that travels as an image. Pods refuse to unpack more than 256 MiB."""


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


def pack(files: Sequence[File], limit: Limit = IN_A_CONFIG_MAP) -> Archive:
    """Packs files into an archive, which does not depend on the order of `files`.

    Raises:
        BadInputError: the archive is too large to be sent; the message names the largest files and a remedy.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for file in sorted(files, key=lambda item: item.name):
            archive.writestr(_entry(file), file.content, zipfile.ZIP_DEFLATED, 9)
        sizes = {entry.filename: entry.compress_size for entry in archive.infolist()}
    data = buffer.getvalue()
    if len(data) > limit.packed:
        raise too_large(sizes, "packed", limit.packed, limit)
    return Archive(data, hashlib.sha256(data).hexdigest())


def too_large(sizes: dict[str, int], how: str, most: int, limit: Limit) -> BadInputError:
    """The error for files that are too large, by their sizes in bytes. `how` is `packed` or `unpacked`."""
    return BadInputError(
        f"the code is {readable(sum(sizes.values()))} {how}, but {limit.carrier} can carry only {readable(most)};"
        f" the largest files: {largest_of(sizes)}. Send only what the program needs: a smaller folder"
        f" ({option('source')}), or exclude the rest in .gitignore; {limit.otherwise()}"
    )


def largest_of(sizes: dict[str, int]) -> str:
    """Names the largest of these things, each with its size. `sizes` are in bytes."""
    largest = sorted(sizes, key=lambda name: -sizes[name])[:NAMED]
    return ", ".join(f"{name} ({readable(sizes[name])})" for name in largest)


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
