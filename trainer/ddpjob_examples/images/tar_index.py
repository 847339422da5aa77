"""An index of the samples in tar files. It is made by reading all headers, and then kept beside the files.

The layout is WebDataset's: consecutive files whose names are the same up to the first dot are one sample. One of its
files is the image. Another contains the class: a `.cls` file with digits, or a `.json` file with `cls` or `label`.
"""

import fcntl
import json
import os
import tarfile
import uuid
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from ddpjob_rank.bounded_json import parsed
from ddpjob_rank.console import counted, say
from ddpjob_rank.errors import ConfigError

from .image import EXTENSIONS

NAME = ".ddpjob-index.npz"
LABELS = (".cls", ".json")

Numbers = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class TarIndex:
    """The samples of some tar files in their order, as a few numbers for each."""

    firsts: Numbers
    """For each shard, the index of its first sample; at the end, the number of all samples."""
    spans: Numbers
    """For each sample, the offset of its first byte, the offset after its last byte, and its class."""


def read_index(directory: Path, shards: tuple[Path, ...]) -> TarIndex:
    """The index of the shards in a directory. It is stored there if possible, otherwise made again at each start.

    Raises:
        ConfigError: A shard is broken, or has a sample without image or class.
    """
    with _one_at_a_time(directory):
        state = _state(shards)
        if index := _kept(directory, state):
            return index
        where = f"{counted(len(shards), 'shard')} in {directory}"
        say(f"reading the headers of {where}; {NAME} keeps them for the next start")
        spans = [_spans(shard) for shard in shards]
        index = TarIndex(np.cumsum([0, *map(len, spans)]), np.concatenate(spans))
        _keep(directory, index, state)
        return index


def image(contents: Mapping[str, bytes]) -> bytes:
    """The image of a sample; `contents` holds the sample's files by the extensions of their names.

    Raises:
        ValueError: No file has the extension of an image.
    """
    for end, content in contents.items():
        if end.endswith(EXTENSIONS):
            return content
    raise ValueError(f"has no image, but {', '.join(contents)}")


MOST_CLASSES = 1 << 31


def label(contents: Mapping[str, bytes]) -> int:
    """Reads the class of a sample from one of its files. For `contents` see `image`.

    Raises:
        ValueError: No file contains a class.
    """
    try:
        if (digits := contents.get(".cls")) is not None and digits.strip().isdigit():
            number = int(digits)
        else:
            fields = parsed(contents.get(".json", b"null"))
            number = fields.get("cls", fields.get("label"))
    except (ValueError, AttributeError):
        number = None
    if not isinstance(number, int) or not 0 <= number < MOST_CLASSES:
        raise ValueError("has no class: neither a .cls of digits nor a .json with a number as cls or label")
    return number


def _spans(shard: Path) -> Numbers:
    """The rows of `TarIndex.spans` for the samples of a shard.

    Raises:
        ConfigError: The shard is broken, or has a sample without image or class.
    """
    key, rows = "", []
    try:
        with tarfile.open(shard, "r:") as tar:  # "r:" refuses compression: each sample must be readable alone.
            files = (member for member in tar if member.isfile())
            for key, group in groupby(files, key=lambda member: split(member.name)[0]):  # noqa: B007  (for the error)
                sample = list(group)
                end = -(-(sample[-1].offset_data + sample[-1].size) // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
                rows.append((sample[0].offset, end, _label_of(tar, sample)))
    except (tarfile.TarError, OSError, ValueError) as error:
        raise ConfigError(
            f"the shard {shard} is broken at {f'sample {key}' if key else 'its start'}: {error}"
        ) from error
    return np.array(rows, dtype=np.int64).reshape(-1, 3)


def _label_of(tar: tarfile.TarFile, sample: list[tarfile.TarInfo]) -> int:
    ends = {split(member.name)[1]: member for member in sample}
    image(dict.fromkeys(ends, b""))
    return label({end: tar.extractfile(ends[end]).read() for end in LABELS if end in ends})  # type: ignore[union-attr]


def split(name: str) -> tuple[str, str]:
    """Splits a file name into the key of the sample and the extension, in lower case: `dir/7` and `.seg.png`."""
    directory, _, base = name.rpartition("/")
    stem, dot, end = base.partition(".")
    return f"{directory}/{stem}" if directory else stem, f"{dot}{end}".lower()


def _state(shards: tuple[Path, ...]) -> str:
    """Names, sizes and modification times of the shards: the text differs if a shard has changed."""
    return json.dumps([(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in shards])


def _kept(directory: Path, state: str) -> TarIndex | None:
    try:
        with np.load(directory / NAME, allow_pickle=False) as kept:
            return TarIndex(kept["firsts"], kept["spans"]) if str(kept["state"]) == state else None
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        return None


def _keep(directory: Path, index: TarIndex, state: str) -> None:
    # The process id would not be unique, because processes of two containers can have the same one.
    fresh = directory / f"{NAME}.{uuid.uuid4().hex}"
    try:
        with fresh.open("wb") as file:
            np.savez(file, firsts=index.firsts, spans=index.spans, state=np.array(state))
        fresh.replace(directory / NAME)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        say(f"cannot write the index to {directory} ({error.strerror}): each start reads all headers again")


@contextmanager
def _one_at_a_time(directory: Path) -> Iterator[None]:
    """Locks the directory, so that one process of a node makes the index, and the others wait and then find it.

    If the file system cannot lock a directory, each process makes the index.
    """
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
