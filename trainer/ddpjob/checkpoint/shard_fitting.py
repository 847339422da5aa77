"""Divides the state in a checkpoint as this run divides it, whatever the number of ranks that saved it."""

from collections import defaultdict
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from ddpjob_rank.manifests.manifest import read_manifest
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor
from torch.distributed.tensor import empty as empty_dtensor
from torch.optim import Optimizer

from . import shard_files as shards
from .divided import is_zero, parameters_of
from .encoding import SHARED, TENSORS, StateDict
from .plain_values import MAPPINGS, SEQUENCES, Sharded, with_items, with_values
from .shard_files import Index, Placed


def fitted(saved: StateDict, path: Path, things: Mapping[str, Any]) -> StateDict:
    """The state in a checkpoint, divided as the things are now, ready for `load_state_dict`.

    Of a tensor that is divided now, only this rank's part is read, whatever the number of ranks that have written it.
    Tensors of modules that are DTensors are read in place.

    Args:
        saved: The decoded state.
        path: The checkpoint.
        things: What is restored, by name. For a thing that is None, whole tensors are read.

    Raises:
        ConfigError: Tensors have other sizes than those of the things.
        CheckpointUnusableError: The checkpoint does not contain what its state says.
    """
    try:
        index = shards.indexed(saved.get(TENSORS, {}), read_manifest(path).shards)
    except Exception as error:
        raise shards.unusable(path, f"its list of tensors is damaged ({error})") from error
    fitting = _Fitting(index, path)
    state = {
        name: fitting.fill(saved[SHARED][name], thing) for name, thing in things.items() if name in saved[SHARED]
    }
    shards.read(path, index, fitting.into)
    return state


class _Fitting:
    """Replaces each `Sharded` by its tensor, and divides the tensors that are divided now."""

    def __init__(self, index: Index, path: Path) -> None:
        self._index = index
        self._path = path
        self.into: dict[str, Tensor] = {}
        """The tensors to read, by name. Two things may share a tensor."""

    def fill(self, value: Any, thing: Any) -> Any:
        """The saved state `value` of a thing, with its tensors."""
        if is_zero(thing):
            numbers = {parameter: number for number, parameter in enumerate(parameters_of(thing))}
            ours = {numbers[parameter] for parameter in parameters_of(thing.optim)}
            value = {**value, "state": {key: part for key, part in value["state"].items() if key in ours}}
        if isinstance(thing, Optimizer):
            # A new optimizer has no state yet. It will be divided as its parameters are.
            likes = map(_Like, parameters_of(thing))
            each: dict[int, defaultdict[str, _Like]] = {
                number: defaultdict(partial(copy, like)) for number, like in enumerate(likes)
            }
            return self._filled(value, {"state": each})
        return self._filled(value, thing.state_dict() if thing is not None else None)

    def _filled(self, value: Any, present: Any) -> Any:
        kind = type(value)
        if kind is Sharded:
            return self._tensor(value.name, present)
        if isinstance(value, Tensor):
            return _divided(value, present.tensor if isinstance(present, _Like) else present)
        if kind in SEQUENCES:
            return with_items(value, [self._filled(item, _at(present, key)) for key, item in enumerate(value)])
        if kind in MAPPINGS:
            return with_values(value, {key: self._filled(item, _at(present, key)) for key, item in value.items()})
        return value

    def _tensor(self, name: str, present: Any) -> Tensor:
        if name not in self._index:
            raise shards.unusable(self._path, f"{name} is not in its list of tensors")
        if name not in self.into:
            self.into[name] = self._place(self._index[name], present)
        return self.into[name]

    @staticmethod
    def _place(placed: Placed, present: Any) -> Tensor:
        """The tensor into which a saved tensor is read."""
        like = present.tensor if isinstance(present, _Like) else present
        if not isinstance(like, DTensor):
            return shards.empty(placed)
        tensor: Tensor = like.detach()
        if like is present:
            return tensor
        if placed.size == tuple(like.shape):
            return torch.empty_like(tensor, dtype=placed.dtype)
        if placed.divided:
            whole = [Replicate()] * like.device_mesh.ndim
            return empty_dtensor(placed.size, dtype=placed.dtype, device_mesh=like.device_mesh, placements=whole)
        return shards.empty(placed)


@dataclass(frozen=True, slots=True)
class _Like:
    """Marks a tensor that only shows how a saved tensor is to be divided. Its own values stay."""

    tensor: Tensor


def _divided(whole: Tensor, like: Any) -> Tensor:
    """Divides a whole tensor in the same way as `like`, if the two have the same size."""
    if not isinstance(like, DTensor) or whole.shape != like.shape:
        return whole
    return distribute_tensor(whole.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def _at(present: Any, key: Any) -> Any:
    if isinstance(present, defaultdict) or (isinstance(present, Mapping) and key in present):
        return present[key]
    return present[key] if isinstance(present, list | tuple) and key < len(present) else None
