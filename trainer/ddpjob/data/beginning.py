"""The random generators' states when an epoch begins. From these, the same order of samples can be drawn again."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from ddpjob import random_state

from .loader_parts import Generators, own_generators, set_states, states_of


class Beginning(NamedTuple):
    """The states of the CPU's random generators before an epoch's samples are drawn."""

    general: random_state.State
    """The states of the process's generators."""
    own: dict[str, Any]
    """The states of the generators that belong to the loader's parts."""

    def put_back(self, generators: Generators) -> None:
        """Sets the process's generators, and the given generators of the loader's parts, to these states."""
        random_state.restore(self.general)
        set_states(generators, self.own)


@contextmanager
def own_preserved(loader: object) -> Iterator[None]:
    """Restores the generators of the process, and of the loader's parts, at the end of the block."""
    generators = own_generators(loader)
    before = beginning_of(generators)
    try:
        yield
    finally:
        before.put_back(generators)


def beginning_of(generators: Generators) -> Beginning:
    """The present states of the process's generators, and of the given generators of the loader's parts."""
    return Beginning(random_state.capture_cpu(), states_of(generators))


def written(beginning: Beginning | None, loader: object) -> dict[str, Any]:
    """A beginning as plain values. It has only the states of generators that have been used since.

    The key `generators` has the present states of the generators of the loader's parts.
    """
    general = random_state.changed(beginning.general, random_state.capture_cpu()) if beginning else {}
    own = beginning.own if beginning else {}
    return {"random": general, "own": own, "generators": states_of(own_generators(loader))}


def read(state: dict[str, Any]) -> Beginning:
    """Reads a beginning from a state. The process's generators must have the states that they had at the save."""
    return Beginning(random_state.capture_cpu() | state["random"], state["own"])
