"""The random generators of a process; those of several GPUs are made up: no machine here has one."""

import random

import numpy as np
import pytest
import torch
from ddpjob import random_state


class Gpus:
    """GPUs as torch.cuda shows them, with the state of each one's generator."""

    def __init__(self, *states: int, own: int = 0) -> None:
        self.states = [torch.tensor([state]) for state in states]
        self.own = own

    def is_initialized(self) -> bool:
        return True

    def device_count(self) -> int:
        return len(self.states)

    def current_device(self) -> int:
        return self.own

    def get_rng_state(self, gpu: int | None = None) -> torch.Tensor:
        return self.states[self.own if gpu is None else gpu]

    def set_rng_state(self, state: torch.Tensor, gpu: int | None = None) -> None:
        self.states[self.own if gpu is None else gpu] = state


def restored(saved: Gpus, into: Gpus, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The generators after a checkpoint that the first have left."""
    for machine in saved, into:
        for name in ("is_initialized", "device_count", "current_device", "get_rng_state", "set_rng_state"):
            monkeypatch.setattr(torch.cuda, name, getattr(machine, name))
        if machine is saved:
            state = random_state.capture()
    random_state.restore(state)
    return [int(one) for one in into.states]


def test_the_generators_of_all_gpus_go_on_where_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    assert restored(Gpus(7, 8, 9), Gpus(0, 0, 0), monkeypatch) == [7, 8, 9]


def test_a_process_that_has_another_gpu_now_goes_on_with_its_own_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    assert restored(Gpus(7, 8, 9, own=2), Gpus(0, 0), monkeypatch) == [9, 7]
    assert restored(Gpus(7, own=0), Gpus(0, 0, own=1), monkeypatch) == [0, 7]


def test_without_numpy_there_is_one_generator_less(monkeypatch: pytest.MonkeyPatch) -> None:
    with_numpy = random_state.capture()
    monkeypatch.setattr(random_state, "np", None)
    random_state.seed_all(7)
    state = random_state.capture()
    assert state["numpy"] is None
    drawn = random.random(), float(torch.rand(1))
    random_state.restore(state | {"numpy": with_numpy["numpy"]})
    assert (random.random(), float(torch.rand(1))) == drawn
    random_state.seed_sample(1, 2)
    monkeypatch.undo()
    random_state.restore(state)


def test_cuda_is_not_initialized_for_its_generators(monkeypatch: pytest.MonkeyPatch) -> None:
    def initialize() -> None:
        raise AssertionError

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    for name in ("_lazy_init", "current_device", "device_count", "get_rng_state", "set_rng_state"):
        monkeypatch.setattr(torch.cuda, name, initialize)
    state = random_state.capture()
    random_state.restore(state | {"cuda": [torch.zeros(1)]})
    with random_state.rng_preserved():
        torch.rand(1)
    assert state["cuda"] is None


def test_only_generators_from_which_something_was_drawn_have_changed() -> None:
    before = random_state.capture_cpu()
    assert random_state.changed(before, random_state.capture_cpu()) == {}
    random.random()
    np.random.rand()  # noqa: NPY002
    assert random_state.changed(before, random_state.capture_cpu()).keys() == {"python", "numpy"}
    torch.rand(1)
    assert random_state.changed(before, random_state.capture_cpu()).keys() == before.keys()
