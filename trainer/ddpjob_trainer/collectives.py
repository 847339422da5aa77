"""What processes exchange besides gradients; in a world of one the process talks to itself.

All of it goes over CPU tensors: gloo is in every group. PyTorch's own collectives of objects are not used: they
unpickle what they receive, so that anyone who gets among the processes could run code in them.
"""

from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from . import values
from .world import World

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


def broadcast_bytes(content: bytes | None, world: World) -> bytes | None:
    """Rank 0's bytes, or its None, for everybody."""
    if world.alone:
        return content
    size = torch.tensor([-1 if content is None else len(content)])
    dist.broadcast(size, src=0)
    if size.item() < 0:
        return None
    buffer = _bytes(content or bytes(int(size.item())))
    dist.broadcast(buffer, src=0)
    return buffer.numpy().tobytes()


def broadcast_buffers(model: nn.Module, world: World) -> None:
    """Rank 0's buffers, such as the statistics of batch normalisation, for everybody."""
    if not world.alone:
        for buffer in model.buffers():
            dist.broadcast(buffer, src=0)
