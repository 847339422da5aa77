"""What processes tell each other beside gradients; in a world of one each process tells itself.

All of it goes over CPU tensors: gloo is in every group.
"""

from typing import TypeVar

import torch
import torch.distributed as dist
from torch import nn

from .world import World

T = TypeVar("T")


def gather(value: T, world: World) -> list[T]:
    """Everybody's value, by rank, on rank 0; an empty list on the others."""
    if world.alone:
        return [value]
    values: list[T | None] | None = [None] * world.world_size if world.leads else None
    dist.gather_object(value, values)
    return [] if values is None else [one for one in values if one is not None]


def all_gather(value: T, world: World) -> list[T]:
    """Everybody's value, by rank, for everybody."""
    values = [value] * world.world_size
    if not world.alone:
        dist.all_gather_object(values, value)
    return values


def broadcast_bytes(content: bytes | None, world: World) -> bytes | None:
    """Rank 0's bytes, or its None, for everybody."""
    if world.alone:
        return content
    size = torch.tensor([-1 if content is None else len(content)])
    dist.broadcast(size, src=0)
    if size.item() < 0:
        return None
    buffer = torch.frombuffer(bytearray(content or bytes(int(size.item()))), dtype=torch.uint8)
    dist.broadcast(buffer, src=0)
    return buffer.numpy().tobytes()


def broadcast_buffers(model: nn.Module, world: World) -> None:
    """Rank 0's buffers, such as the statistics of batch normalisation, for everybody."""
    if not world.alone:
        for buffer in model.buffers():
            dist.broadcast(buffer, src=0)
