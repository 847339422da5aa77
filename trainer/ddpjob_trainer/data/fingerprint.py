"""A fingerprint of a data set: what it keeps of its samples, since none is fetched.

A sample that is fetched may be another one each time, and have other bits on another machine. So only a few numbers
of arrays are looked at, and a few names and sizes of files.
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
"""Where data sets of PyTorch and torchvision have their samples: TensorDataset, Subset, MNIST, ImageFolder."""

NUMBERS, FILES = 16, 64
"""How many are looked at, evenly spread over all."""

DEPTH = 4
"""Of data sets that consist of others."""


@runtime_checkable
class Fingerprinted(Protocol):
    """A data set that knows by itself how it differs from others."""

    def fingerprint(self) -> str:
        """Something short that is the same for the same samples, at each start and wherever they are."""


def fingerprint(data: object, depth: int = DEPTH) -> tuple[str, ...]:
    """Words about a data set, the same at each start; none if nothing is known of its samples."""
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
    """A digest of the names of files below a root and of their sizes, and of whatever else is known.

    Raises:
        TrainerError: One cannot be found any more.
    """
    try:
        files = [(str(path.relative_to(root)), path.stat().st_size) for path in paths]
    except OSError as error:
        raise TrainerError(f"{error.filename} cannot be read: {error.strerror}") from error
    return hashlib.blake2b(repr((files, more)).encode(), digest_size=8).hexdigest()


def spread(count: int, most: int = FILES) -> list[int]:
    """Some of the numbers from 0 to below this one, evenly spread, with the first and the last of them."""
    return sorted({number * (count - 1) // (most - 1) for number in range(most)}) if count else []


def _several(value: Any) -> Sequence[Any]:
    """One thing, or several: the tensors of a TensorDataset, the data sets that one joins."""
    several = isinstance(value, tuple) or (isinstance(value, list) and value and isinstance(value[0], Dataset))
    return value if several else (value,)


def _is_array(value: Any) -> bool:
    """Whether numbers can be taken out of it at any place."""
    match value:
        case Tensor():
            return value.layout is torch.strided
        case np.ndarray():
            return value.dtype.kind in "biuf"
    return isinstance(value, list | range)


def _of_array(array: Any) -> Iterator[str]:
    """Its type and shape, and some of its numbers."""
    listed = isinstance(array, list | range)
    shape = (len(array),) if listed else tuple(array.shape)
    yield f"{'list' if listed else str(array.dtype).removeprefix('torch.')}[{','.join(map(str, shape))}]"
    for number in spread(math.prod(shape), NUMBERS):
        value = array[number] if listed else array[tuple(map(int, np.unravel_index(number, shape)))].item()
        if isinstance(value, int | float):
            yield f"{value:.6g}"
