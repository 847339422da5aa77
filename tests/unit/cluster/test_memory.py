"""What becomes of memory that nobody uses any more."""

import gc
import weakref

import pytest
from ddpjob_operator.cluster import memory


class Circle:
    """Something that holds itself."""

    def __init__(self) -> None:
        self.itself = self


def an_old_circle() -> weakref.ref[Circle]:
    """One that has survived the young generations, and that nobody else holds any more."""
    circle = Circle()
    gc.collect(1)
    return weakref.ref(circle)


def test_circles_of_garbage_that_have_become_old_go() -> None:
    circle = an_old_circle()
    gc.collect(1)
    assert circle() is not None, "the usual collections do not find it"
    memory.give_back()
    assert circle() is None


@pytest.mark.parametrize("library", ["one that is told", "one that cannot be told"])
def test_the_c_library_is_told_to_give_back_all_if_it_can_be(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = list[int]()
    monkeypatch.setattr(memory, "_trim", kept.append if library == "one that is told" else None)
    memory.give_back()
    assert kept == ([0] if library == "one that is told" else [])
