"""Finds the parts of a loader that depend on the epoch: its data set, its samplers, and their random generators."""

import random
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

PARTS = ("base_dataloader", "dataset", "batch_sampler", "sampler")
"""Attributes under which loaders and samplers keep others. Accelerate's loaders have a `base_dataloader`."""

Generators = dict[str, Any]
"""Random generators by their places, such as `batch_sampler.sampler.generator`."""


def parts(loader: object) -> Iterator[tuple[str, Any]]:
    """The loader and its parts, each with its place. Only attributes of the objects themselves are followed."""
    waiting, found = [("", loader)], set[int]()
    while waiting:
        place, part = waiting.pop(0)
        if id(part) in found:
            continue
        found.add(id(part))
        yield place, part
        own = getattr(part, "__dict__", {})
        waiting += [(f"{place}{name}.", own[name]) for name in PARTS if own.get(name) is not None]


def described(loader: object) -> dict[str, int]:
    """What is known of a loader's data, by its name in messages, such as `batch size`."""
    dataset, sampler = getattr(loader, "dataset", None), getattr(loader, "batch_sampler", None)
    order = getattr(sampler, "order", None)
    facts = {
        "number of samples": length_of(dataset),
        "batch size": getattr(loader, "batch_size", None) or getattr(sampler, "batch_size", None),
        "global batch size": getattr(order, "global_batch", None),
    }
    return {name: value for name, value in facts.items() if type(value) is int}


def length_of(data: Any) -> int | None:
    """The length of a loader or a data set, if it is known."""
    try:
        return len(data)
    except (TypeError, NotImplementedError):  # Some data sets define __len__, which raises this.
        return None


def set_epoch(loader: object, epoch: int) -> None:
    """Calls `set_epoch` of the loader and of its parts, where they have this method."""
    for _, part in parts(loader):
        if callable(getattr(type(part), "set_epoch", None)):  # An instance may forward any attribute to another part.
            part.set_epoch(epoch)


def own_generators(loader: object) -> Generators:
    """The random generators that are attributes of the loader or of its parts."""
    return {
        f"{place}{name}": value
        for place, part in parts(loader)
        for name, value in getattr(part, "__dict__", {}).items()
        if isinstance(value, tuple(_kinds()))
    }


def states_of(generators: Generators) -> dict[str, Any]:
    """The states of these generators, by their places."""
    kinds = _kinds()
    return {
        place: next(read for kind, (read, _) in kinds.items() if isinstance(generator, kind))(generator)
        for place, generator in generators.items()
    }


def set_states(generators: Generators, states: Mapping[str, Any]) -> None:
    """Sets the generators whose states are given."""
    kinds = _kinds()
    for place, state in states.items():
        if place in generators:
            next(write for kind, (_, write) in kinds.items() if isinstance(generators[place], kind))(
                generators[place], state
            )


def _kinds() -> dict[type, tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]]:
    """How the states of each kind of generator are read and set."""
    kinds: dict[type, tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]] = {
        torch.Generator: (torch.Generator.get_state, torch.Generator.set_state),
        random.Random: (random.Random.getstate, random.Random.setstate),
    }
    if np := sys.modules.get("numpy"):
        kinds |= {
            np.random.Generator: (
                lambda generator: generator.bit_generator.state,
                lambda generator, state: setattr(generator.bit_generator, "state", state),
            ),
            np.random.RandomState: (np.random.RandomState.get_state, np.random.RandomState.set_state),
        }
    return kinds
