"""The files with the tensors of a sharded state: those of torch.distributed.checkpoint (DCP), one per rank.

DCP plans where each part of each tensor is, also if the number of ranks has changed since the save. Planning needs no
communication: a rank's mesh shows which parts it has to write.

DCP unpickles whatever it finds as `.metadata`, and each item that is not a tensor, so a checkpoint could run code.
Therefore DCP gets only tensors, and their places are read from the state, which is decoded without running code.
`.metadata` is written for other programs, and never read.
"""

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BytesIO, RawIOBase
from pathlib import Path
from typing import Any, cast

import torch
from ddpjob_rank.console import listed
from ddpjob_rank.errors import CheckpointUnusableError, ConfigError
from ddpjob_rank.machine.regular_file import open_regular
from ddpjob_rank.manifests.manifest import Shard
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import (
    FileSystem,
    FileSystemReader,
    FileSystemWriter,
    _StorageInfo,
)
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import ReadItem, SavePlan, WriteItem
from torch.distributed.checkpoint.storage import WriteResult
from torch.distributed.tensor import DTensor

from .content import Content, sync
from .reading import check_shards

NAMED_TENSORS = 3
"""The largest number of tensors that a message names."""

Place = tuple[list[int], list[int], str, int, int]
"""A part of a tensor: its offsets and its sizes in the tensor, its file, and its first byte and its length in that
file."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A tensor of a sharded state, and where its parts are."""

    dtype: torch.dtype
    size: tuple[int, ...]
    divided: bool
    """Whether the tensor was a DTensor. Otherwise all ranks had the same tensor, or only one rank had it."""
    parts: tuple[Place, ...]

    def form(self) -> list[Any]:
        """As plain values."""
        return [self.dtype, list(self.size), self.divided, [list(part) for part in self.parts]]

    @classmethod
    def of(cls, form: Any) -> "Placed":
        """From plain values. If they are not what `form` writes, raises an exception of any class."""
        dtype, size, divided, parts = form
        if not isinstance(dtype, torch.dtype):
            raise TypeError(f"{dtype!r:.40} is not a dtype")
        return cls(dtype, _sizes(size), bool(divided), tuple(_place(*part) for part in parts))

    def check(self) -> None:
        """Checks that the parts make up the whole tensor.

        Raises:
            ValueError: They do not.
        """
        for offsets, sizes, *_ in self.parts:
            ends = [start + length for start, length in zip(offsets, sizes, strict=True)]
            if len(ends) != len(self.size) or any(end > size for end, size in zip(ends, self.size, strict=True)):
                raise ValueError(
                    f"its part of size {sizes} at {offsets} does not fit into its size {list(self.size)}"
                )
        if sum(math.prod(sizes) for _, sizes, *_ in self.parts) != math.prod(self.size):
            raise ValueError(f"its parts do not add up to the size {list(self.size)}")


def _sizes(numbers: Any) -> tuple[int, ...]:
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError(f"{numbers!r:.60} are not sizes")
    return tuple(numbers)


def _place(offsets: Any, sizes: Any, file: Any, start: Any, length: Any) -> Place:
    _sizes((start, length))
    return list(_sizes(offsets)), list(_sizes(sizes)), str(file), start, length


Index = dict[str, Placed]
"""The tensors of a sharded state, by name."""


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that this rank has."""
    detached = tensor.detach()
    return detached.to_local() if isinstance(detached, DTensor) else detached


def is_ours(tensor: Tensor, *, otherwise: bool) -> bool:
    """Whether this rank writes its part of a DTensor: of several ranks with the same part, the first one does.

    `otherwise` is the answer for other tensors.
    """
    if not isinstance(tensor, DTensor):
        return otherwise
    coordinate = tensor.device_mesh.get_coordinate()
    if coordinate is None or tensor.to_local().numel() == 0:
        return False
    return all(place == 0 for place, how in zip(coordinate, tensor.placements, strict=True) if how.is_replicate())


def write(
    path: Path, rank: int, tensors: Mapping[str, Tensor], copies: Mapping[str, Tensor]
) -> tuple[list[Shard], Index]:
    """Writes this rank's parts into its file, and makes them durable.

    Args:
        path: The directory of the checkpoint.
        rank: This rank.
        tensors: All tensors that this rank has a part of.
        copies: The parts that this rank has to write, as they were when the state was taken.

    Returns:
        The file, if there was anything to write, and the tensors, each with this rank's parts.

    Raises:
        OSError: The file could not be written.
        UnusableError: It could not be read back.
    """
    planner = _CopyPlanner(copies)
    planner.set_up_planner({name: tensors[name] for name in copies})
    items = planner.create_local_plan().items
    shards: list[Shard] = []
    results: Sequence[WriteResult] = ()
    if items:
        writer, files = FileSystemWriter(path, sync_files=False, per_thread_copy_ahead=0), _HashedFiles()
        writer.fs = files
        plan = writer.prepare_global_plan([SavePlan(items)] * (rank + 1))[rank]
        results = cast("Sequence[WriteResult]", writer.write_data(plan, planner).value())
        sync(path)
        shards = [Shard(name, content.size, content.sha256) for name, content in files.written.items()]
        check_shards(path, shards, afresh=True)
    return shards, _index(tensors, items, results)


def _index(tensors: Mapping[str, Tensor], items: Iterable[WriteItem], results: Iterable[WriteResult]) -> Index:
    sizes = {item.index: item.tensor_data.chunk.sizes for item in items if item.tensor_data}
    parts: dict[str, list[Place]] = {name: [] for name in tensors}
    for result in results:
        where, offsets = result.storage_data, list(result.index.offset or ())
        parts[result.index.fqn].append(
            (offsets, list(sizes[result.index]), where.relative_path, where.offset, where.length)
        )
    return {
        name: Placed(tensor.dtype, tuple(tensor.shape), isinstance(tensor, DTensor), tuple(parts[name]))
        for name, tensor in tensors.items()
    }


def merged(each: Iterable[Mapping[str, Any]]) -> Index:
    """Merges the indexes of all ranks, which are given as plain values.

    If several ranks have written the same part, as several groups of tensor parallelism do, the first one counts.

    Raises:
        ConfigError: The parts of a tensor do not make up the whole tensor.
    """
    whole: Index = {}
    for forms in each:
        for name, form in forms.items():
            placed = Placed.of(form)
            known = whole.setdefault(name, replace(placed, parts=()))
            there = [offsets for offsets, *_ in known.parts]
            new = tuple(part for part in placed.parts if part[0] not in there)
            whole[name] = replace(known, parts=known.parts + new)
    for name, placed in whole.items():
        try:
            placed.check()
        except ValueError as error:
            raise ConfigError(
                f"{name} cannot be saved, because the ranks together do not hold the whole tensor: {error}"
            ) from error
    return whole


def write_metadata(path: Path, index: Index) -> None:
    """Writes `.metadata`, by which other programs can load the tensors with torch.distributed.checkpoint.

    Raises:
        OSError: The file could not be written.
    """
    metadata = _metadata(index)
    results = [WriteResult(key, where.length, where) for key, where in metadata.storage_data.items()]
    FileSystemWriter(path).finish(metadata, [results])


def _metadata(index: Index) -> Metadata:
    return Metadata(
        {
            name: TensorStorageMetadata(
                TensorProperties(placed.dtype),
                torch.Size(placed.size),
                [ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes)) for offsets, sizes, *_ in placed.parts],
            )
            for name, placed in index.items()
        },
        storage_data={
            MetadataIndex(name, offsets): _StorageInfo(file, start, length)
            for name, placed in index.items()
            for offsets, _, file, start, length in placed.parts
        },
    )


def forms(index: Index) -> dict[str, Any]:
    """An index as plain values."""
    return {name: placed.form() for name, placed in index.items()}


def indexed(forms: Mapping[str, Any], shards: Sequence[Shard]) -> Index:
    """The index that a state contains as plain values. `shards` are the files of the checkpoint.

    Raises:
        Exception: It is damaged.
    """
    sizes = {shard.name: shard.size for shard in shards}
    index = {name: Placed.of(form) for name, form in forms.items()}
    for name, placed in index.items():
        placed.check()
        for _, part, file, start, length in placed.parts:
            if math.prod(part) * placed.dtype.itemsize > length or start + length > sizes[file]:
                raise ValueError(f"{name} has a part outside of {file}")
    return index


def read(path: Path, index: Index, into: Mapping[str, Tensor]) -> None:
    """Reads tensors of a checkpoint into existing tensors. Of a DTensor, only this rank's part is read.

    Raises:
        ConfigError: Tensors have other sizes than those of the checkpoint.
        CheckpointUnusableError: A file does not contain what the index says.
    """
    differing = [
        f"{name} ({list(index[name].size)} in the checkpoint, {list(tensor.shape)} now)"
        for name, tensor in into.items()
        if index[name].size != tuple(tensor.shape)
    ]
    if differing:
        raise ConfigError(f"checkpoint {path} does not fit: {listed(differing, NAMED_TENSORS)}")
    metadata = _metadata({name: index[name] for name in into})
    planner, reader = _TensorPlanner(flatten_state_dict=False, flatten_sharded_tensors=False), FileSystemReader(path)
    reader.fs = _RegularFiles()
    planner.set_up_planner(dict(into), metadata, is_coordinator=False)
    reader.set_up_storage_reader(metadata, is_coordinator=False)
    try:
        with torch.no_grad():
            reader.read_data(planner.create_local_plan(), planner).wait()
    except Exception as error:  # torch.load raises errors of many classes.
        raise unusable(path, f"its tensors cannot be read ({type(error).__name__}: {_line(error)})") from error


def empty(placed: Placed) -> Tensor:
    """A new tensor, into which a whole saved tensor can be read."""
    return torch.empty(placed.size, dtype=placed.dtype)


def _line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def unusable(path: Path, why: str) -> CheckpointUnusableError:
    """The error for a checkpoint that is not what its manifest and its state say."""
    return CheckpointUnusableError(
        f"checkpoint {path} cannot be used: {why}. Nothing was loaded or removed: name another directory"
    )


class _CopyPlanner(DefaultSavePlanner):
    """Plans with the tensors that are being trained, but writes their copies."""

    def __init__(self, copies: Mapping[str, Tensor]) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self._copies = copies

    def resolve_data(self, write_item: WriteItem) -> Tensor:
        return self._copies[write_item.index.fqn]


class _TensorPlanner(DefaultLoadPlanner):
    """Loads tensors only. Other items are bytes, which would be unpickled."""

    def load_bytes(self, read_item: ReadItem, value: BytesIO) -> None:  # noqa: ARG002
        raise ValueError(f"{read_item.dest_index.fqn} is not a tensor")


class _HashedFiles(FileSystem):
    """Hashes files while they are written, and makes them durable."""

    def __init__(self) -> None:
        self.written: dict[str, Content] = {}

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[Any]:
        assert mode == "wb", "these files are only written"
        content = self.written[Path(path).name] = Content()
        with content.opened(Path(path)):
            yield _Stream(content)


class _Stream(RawIOBase):
    """A file with the methods that DCP's writer calls."""

    def __init__(self, content: Content) -> None:
        self._content = content

    def write(self, data: Any) -> int:
        return self._content.write(data)

    def tell(self) -> int:
        return self._content.size


class _RegularFiles(FileSystem):
    """Files that are read only if they are regular files."""

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[Any]:
        assert mode == "rb", "these files are only read"
        with os.fdopen(open_regular(Path(path)), "rb") as file:
            yield file
