"""What processes exchange besides gradients; in a world of one the process talks to itself.

All of it goes over CPU tensors: gloo is in every group. PyTorch's own collectives of objects are not used: they
unpickle what they receive, so that anyone who gets among the processes could run code in them.
"""

from typing import TypeVar

import torch
import torch.distributed as dist
from ddpjob_rank.world import World
from torch import Tensor, nn

from . import values
from .shared_file import PORTION_BYTES, SharedFile

T = TypeVar("T")


def gather(value: T, world: World) -> list[T]:
    """Everybody's value, by rank, on rank 0; an empty list on the others. `values` says what a value may be."""
    if world.alone:
        return [value]
    mine, sizes = _padded(value, world)
    everybodys = [torch.empty_like(mine) for _ in sizes] if world.leads else None
    dist.gather(mine, everybodys)
    return _values(everybodys or [], sizes)


def all_gather(value: T, world: World) -> list[T]:
    """Everybody's value, by rank, for everybody. `values` says what a value may be."""
    if world.alone:
        return [value]
    mine, sizes = _padded(value, world)
    everybodys = [torch.empty_like(mine) for _ in sizes]
    dist.all_gather(everybodys, mine)
    return _values(everybodys, sizes)


def _padded(value: object, world: World) -> tuple[Tensor, list[Tensor]]:
    """A value as a tensor of a size common to all, and everybody's own sizes."""
    content = values.encode(value)
    sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(world.world_size)]
    dist.all_gather(sizes, torch.tensor([len(content)]))
    return _bytes(content.ljust(max(int(size) for size in sizes), b"\0")), sizes


def _values(everybodys: list[Tensor], sizes: list[Tensor]) -> list[T]:
    told = zip(everybodys, sizes, strict=bool(everybodys))
    return [values.decode(one[: int(size)].numpy().tobytes()) for one, size in told]


def _bytes(content: bytes) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def broadcast_file(file: SharedFile | None, world: World) -> SharedFile | None:
    """Rank 0's file, or its None, for everybody. The processes of a node share one copy of a large one."""
    if world.alone:
        return file
    size = torch.tensor([-1 if file is None else file.size])
    dist.broadcast(size, src=0)
    left = int(size.item())
    if left < 0:
        return None
    large = left > PORTION_BYTES
    mine, fills = _copy(file, world) if large else (file or SharedFile.in_memory(), file is None)
    portions = file.portions(PORTION_BYTES) if file else None
    while left > 0:
        buffer = _bytes(next(portions)) if portions else torch.empty(min(left, PORTION_BYTES), dtype=torch.uint8)
        dist.broadcast(buffer, src=0)
        left -= len(buffer)
        if fills:
            mine.write(buffer.numpy().data)
    if large:
        dist.all_reduce(size)  # Only now have all who share a copy the whole of it.
    return mine


def _copy(file: SharedFile | None, world: World) -> tuple[SharedFile, bool]:
    """The file that this process reads, and whether it has to fill it: its node's first process does, for all."""
    own = file or (SharedFile.in_memory() if world.local_rank == 0 else None)
    addresses = all_gather(own.address if own else ("", ""), world)
    if own is None and (shared := SharedFile.of(*addresses[world.rank - world.local_rank])):
        return shared, False
    return own or SharedFile.in_memory(), file is None


def broadcast_buffers(model: nn.Module, world: World) -> None:
    """Rank 0's buffers, such as the statistics of batch normalisation, for everybody."""
    if not world.alone:
        for buffer in model.buffers():
            dist.broadcast(buffer, src=0)
