"""Finds out what state is divided among ranks, and takes the tensors out of it."""

import hashlib
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

from ddpjob_rank.errors import ConfigError
from torch import Tensor, nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from . import shard_files as shards
from .plain_values import MAPPINGS, SEQUENCES, HeldState, Sharded, with_items, with_values

if TYPE_CHECKING:
    from torch.distributed.optim import ZeroRedundancyOptimizer


def is_zero(thing: Any) -> "TypeGuard[ZeroRedundancyOptimizer]":
    """Whether a thing is a ZeroRedundancyOptimizer.

    Does not import its package, because in torch 2.11 that prints a warning.
    """
    module = sys.modules.get("torch.distributed.optim.zero_redundancy_optimizer")
    return module is not None and isinstance(thing, module.ZeroRedundancyOptimizer)


def is_divided(name: str, thing: Any) -> bool:
    """Whether the state of a thing is divided among the ranks.

    Raises:
        ConfigError: It is divided in a way that cannot be saved.
    """
    if isinstance(thing, nn.Module) and any(isinstance(part, FullyShardedDataParallel) for part in thing.modules()):
        raise ConfigError(
            f"{name} is wrapped by FullyShardedDataParallel, whose state can only be read by all ranks together, "
            "while none of them trains: use torch.distributed.fsdp.fully_shard"
        )
    if is_zero(thing):
        return True
    parameters = parameters_of(thing) if isinstance(thing, Optimizer) else []
    return any(isinstance(tensor, DTensor) for tensor in (*parameters, *_tensors(thing.state_dict())))


def _tensors(value: Any) -> Iterable[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors(item)


def parameters_of(optimizer: Optimizer) -> list[Tensor]:
    """The parameters of an optimizer. Its state_dict uses their indices in this list as keys."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def state_of(thing: Any) -> Any:
    """The state of a thing, in the form of its `state_dict()`. No rank waits for another rank."""
    if not is_zero(thing):
        return thing.state_dict()
    # The optimizer's own state_dict() needs consolidate_state_dict(), which sends everything to one rank.
    numbers = {parameter: number for number, parameter in enumerate(parameters_of(thing))}
    return {
        "state": HeldState({numbers[parameter]: dict(state) for parameter, state in thing.optim.state.items()}),
        "param_groups": [
            {**group, "params": [numbers[parameter] for parameter in group["params"]]} for group in thing.param_groups
        ],
    }


class Parts:
    """Takes the tensors out of the states of divided things."""

    def __init__(self, *, leads: bool) -> None:
        self._leads = leads
        self.tensors: dict[str, Tensor] = {}
        """All tensors, by name."""
        self.ours: dict[str, Tensor] = {}
        """The tensors, or parts of DTensors, that this rank has to write."""
        self.held: list[Any] = []
        """The paths and contents of those parts of dicts that only this rank has."""
        self.digest = hashlib.sha256()
        """A digest of the names, types and sizes of the tensors that all ranks must have."""

    def split(self, value: Any, path: tuple[Any, ...], *, held: bool = False) -> Any:
        """The value with each tensor replaced by a `Sharded`."""
        kind = type(value)
        if isinstance(value, Tensor):
            return self._take(value, path, held=held)
        if kind in SEQUENCES:
            return with_items(value, [self.split(item, (*path, key), held=held) for key, item in enumerate(value)])
        if kind is HeldState:
            part = {key: self.split(item, (*path, key), held=True) for key, item in value.items()}
            self.held.append([list(path), part])
            return part
        if kind in MAPPINGS:
            return with_values(value, {key: self.split(item, (*path, key), held=held) for key, item in value.items()})
        return value

    def _take(self, tensor: Tensor, path: tuple[Any, ...], *, held: bool) -> Sharded:
        name = ".".join(map(str, path))
        while name in self.tensors:  # A key `a.b`, and a key `b` in a dict `a`, give the same name.
            name += "_"
        if isinstance(tensor, DTensor) and any(how.is_partial() for how in tensor.placements):
            raise ConfigError(
                f"{name} is a DTensor with the placement Partial, whose ranks hold parts of a sum: it cannot be saved"
            )
        self.tensors[name] = tensor
        if shards.is_ours(tensor, otherwise=held or self._leads):
            self.ours[name] = shards.local(tensor)
        if not held:
            self.digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        return Sharded(name)
