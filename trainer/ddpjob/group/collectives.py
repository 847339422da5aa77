"""Exchanges data other than gradients between processes. In a world of one, a process gets its own values back.

Everything is sent as CPU tensors, over gloo, which a group with NCCL has as well. PyTorch's own collectives of
objects are not used, because they unpickle the data that they receive: a foreign process in the group could run code
in the other processes.
"""

from typing import TypeVar

import torch
import torch.distributed as dist
from ddpjob_rank.world import World
from torch import Tensor, nn

from . import values
from .shared_file import PORTION_BYTES, SharedFile

T = TypeVar("T")


def gather(value: T, world: World, group: dist.ProcessGroup | None = None) -> list[T]:
    """On rank 0, the values of all ranks, by rank; on others, an empty list. For the allowed types see `values`."""
    if world.alone:
        return [value]
    mine, sizes = _padded(value, world, group)
    gathered = [torch.empty_like(mine) for _ in sizes] if world.leads else None
    dist.gather(mine, gathered, group=group)
    return _values(gathered or [], sizes)


def all_gather(value: T, world: World, group: dist.ProcessGroup | None = None) -> list[T]:
    """On every rank, the values of all ranks, by rank. For the allowed types see `values`.

    `group` is a group of all ranks; None is the default group.
    """
    if world.alone:
        return [value]
    mine, sizes = _padded(value, world, group)
    gathered = [torch.empty_like(mine) for _ in sizes]
    dist.all_gather(gathered, mine, group=group)
    return _values(gathered, sizes)


def _padded(value: object, world: World, group: dist.ProcessGroup | None = None) -> tuple[Tensor, list[Tensor]]:
    """This rank's value as bytes, padded to the size of the longest value, and the unpadded sizes of all values."""
    content = values.encode(value)
    sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(world.world_size)]
    dist.all_gather(sizes, torch.tensor([len(content)]), group=group)
    return _bytes(content.ljust(max(int(size) for size in sizes), b"\0")), sizes


def _values(everybodys: list[Tensor], sizes: list[Tensor]) -> list[T]:
    pairs = zip(everybodys, sizes, strict=bool(everybodys))
    return [values.decode(padded[: int(size)].numpy().tobytes()) for padded, size in pairs]


def _bytes(content: bytes) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def broadcast_file(
    file: SharedFile | None, world: World, group: dist.ProcessGroup | None = None
) -> SharedFile | None:
    """Sends rank 0's file (or None) to all ranks. The processes of a node share one copy of a large file.

    `group` is a group of all ranks; None is the default group.
    """
    if world.alone:
        return file
    size = torch.tensor([-1 if file is None else file.size])
    dist.broadcast(size, src=0, group=group)
    left = int(size.item())
    if left < 0:
        return None
    large = left > PORTION_BYTES
    mine, fills = _copy(file, world, group) if large else (file or SharedFile.in_memory(), file is None)
    portions = file.portions(PORTION_BYTES) if file else None
    while left > 0:
        buffer = _bytes(next(portions)) if portions else torch.empty(min(left, PORTION_BYTES), dtype=torch.uint8)
        dist.broadcast(buffer, src=0, group=group)
        left -= len(buffer)
        if fills:
            mine.write(buffer.numpy().data)
    if large:
        dist.all_reduce(
            size, group=group
        )  # A barrier: after it, the copy that the processes of a node share is complete.
    return mine


def _copy(file: SharedFile | None, world: World, group: dist.ProcessGroup | None) -> tuple[SharedFile, bool]:
    """The file to read, and whether this process must fill it: on each node, the first process does."""
    own = file or (SharedFile.in_memory() if world.local_rank == 0 else None)
    addresses = all_gather(own.address if own else ("", ""), world, group)
    if own is None and (shared := SharedFile.of(*addresses[world.rank - world.local_rank])):
        return shared, False
    return own or SharedFile.in_memory(), file is None


def broadcast_buffers(model: nn.Module, world: World) -> None:
    """Copies rank 0's buffers, such as the statistics of batch normalisation, to all ranks."""
    if not world.alone:
        for buffer in model.buffers():
            dist.broadcast(buffer, src=0)
