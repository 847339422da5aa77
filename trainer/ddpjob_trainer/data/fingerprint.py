"""A fingerprint of a data set, made from the data set's attributes, without fetching a sample.

A sample may differ each time it is fetched, and its bits may differ on another machine. So a fingerprint consists of
a few numbers from the data set's arrays, or of the names and sizes of a few files.
"""

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from ddpjob_rank.errors import TrainerError
from torch import Tensor
from torch.utils.data import Dataset

ARRAYS = ("tensors", "indices", "data", "targets")
"""The attributes in which TensorDataset, Subset, MNIST, ImageFolder and similar data sets keep samples."""

NUMBERS, FILES = 16, 64
"""How many numbers of an array, or how many files, a fingerprint includes, evenly spread over the array or over all
files."""

DEPTH = 4
"""How many levels deep to look into data sets that consist of other data sets."""


@runtime_checkable
class Fingerprinted(Protocol):
    """A data set that makes its own fingerprint."""

    def fingerprint(self) -> str:
        """A short string that stays the same as long as the samples do, whatever directory they are in."""


def fingerprint(data: object, depth: int = DEPTH) -> tuple[str, ...]:
    """Words that describe a data set, and are the same at each start; empty if its samples are unknown."""
    if isinstance(data, Fingerprinted):
        return (str(data.fingerprint()),)
    if not isinstance(data, Dataset) or not depth:
        return ()
    kept = vars(data)
    arrays = [array for name in ARRAYS for array in _several(kept.get(name)) if _is_array(array)]
    parts = [part for value in kept.values() for part in _several(value) if isinstance(part, Dataset)]
    own = (word for array in arrays for word in _of_array(array))
    return (*own, *(word for part in parts for word in fingerprint(part, depth - 1)))


def of_files(root: Path, paths: Iterable[Path], *more: object) -> str:
    """A digest of `more` and of the files' sizes and their names relative to `root`.

    Raises:
        TrainerError: A file cannot be read any more.
    """
    try:
        files = [(str(path.relative_to(root)), path.stat().st_size) for path in paths]
    except OSError as error:
        raise TrainerError(f"{error.filename} cannot be read: {error.strerror}") from error
    return hashlib.blake2b(repr((files, more)).encode(), digest_size=8).hexdigest()


def spread(count: int, most: int = FILES) -> list[int]:
    """At most `most` of the numbers from 0 to `count - 1`, evenly spread, including the first and the last."""
    return sorted({number * (count - 1) // (most - 1) for number in range(most)}) if count else []


def _several(value: Any) -> Sequence[Any]:
    """The items of a tuple (the tensors of a TensorDataset) or of a list of data sets; otherwise the value itself."""
    several = isinstance(value, tuple) or (isinstance(value, list) and value and isinstance(value[0], Dataset))
    return value if several else (value,)


def _is_array(value: Any) -> bool:
    """Whether the value has numbers that can be read by their index."""
    match value:
        case Tensor():
            return value.layout is torch.strided
        case np.ndarray():
            return value.dtype.kind in "biuf"
    return isinstance(value, list | range)


def _of_array(array: Any) -> Iterator[str]:
    """The type and the shape of an array, and some of its numbers."""
    listed = isinstance(array, list | range)
    shape = (len(array),) if listed else tuple(array.shape)
    yield f"{'list' if listed else str(array.dtype).removeprefix('torch.')}[{','.join(map(str, shape))}]"
    for number in spread(math.prod(shape), NUMBERS):
        value = array[number] if listed else array[tuple(map(int, np.unravel_index(number, shape)))].item()
        if isinstance(value, int | float):
            yield f"{value:.6g}"
