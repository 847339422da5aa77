"""The line for nodes: who comes first, and who is told when that changes."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from ddpjob_operator.cluster.line import Place, WaitingLine
from ddpjob_operator.cluster.store import Key
from ddpjob_operator.engine import InLine

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LACKING, AWAY = InLine.LACKING, InLine.AWAY
A, B, C = (("team", name) for name in "abc")


def place(key: Key, *, priority: int = 0, age: float = 0) -> Place:
    """The place of a job of this age, in seconds."""
    return Place(-priority, NOON - timedelta(seconds=age), f"uid of {key[1]}")


class Told(WaitingLine):
    """A line that keeps who is told."""

    def __init__(self) -> None:
        self.told: list[Key] = []
        super().__init__(self.told.append)

    def comes(self, key: Key, how: InLine = LACKING, **who: Any) -> "Told":
        self.put(key, place(key, **who), how)
        return self

    def goes(self, key: Key) -> "Told":
        self.leave(key)
        return self


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"age": 2}, {"age": 1}),
        ({"priority": 5, "age": 1}, {"age": 2}),
        ({}, {}),
    ],
    ids=["the older one", "the one with the higher priority, however old", "of two that are alike always the same"],
)
def test_who_comes_first(one: Any, other: Any) -> None:
    for order in ((A, B), (B, A)):
        line = Told()
        for key in order:
            line.comes(key, **(one if key == A else other))
        assert not line.is_behind(A, place(A, **one))
        assert line.is_behind(B, place(B, **other))


def test_a_job_that_does_not_stand_in_line_yet_knows_who_comes_before_it() -> None:
    line = Told().comes(A, age=2)
    assert line.is_behind(B, place(B, age=1))
    assert not line.is_behind(B, place(B, age=3))


def test_nobody_comes_before_anybody_in_an_empty_line() -> None:
    assert not Told().is_behind(A, place(A))
    assert not Told().comes(A).goes(A).goes(A).is_behind(B, place(B))


TOLD: dict[str, tuple[Told, list[Key]]] = {
    "who comes last changes nothing": (Told().comes(A, age=3).comes(B, age=2).comes(C, AWAY, age=1), []),
    "nor does who stays": (Told().comes(A, age=2).comes(B, age=1).comes(A, age=2).comes(B, AWAY, age=1), []),
    "nor who leaves from behind": (Told().comes(A, age=2).comes(B, AWAY, age=1).goes(B), []),
    "the first has to give way to one that comes before it": (Told().comes(B, age=1).comes(A, age=2), [B]),
    "also if the other one only turns out to have a higher priority": (
        Told().comes(A, age=2).comes(B, age=1).comes(B, age=1, priority=5),
        [A],
    ),
    "or itself to have a lower one": (Told().comes(A, age=2).comes(B, age=1).comes(A, age=2, priority=-5), [A]),
    "who gave way may come back once it is the first": (
        Told().comes(A, age=3).comes(B, AWAY, age=2).comes(C, AWAY, age=1).goes(A),
        [B],
    ),
    "the next one after that": (
        Told().comes(A, age=3).comes(B, AWAY, age=2).comes(C, AWAY, age=1).goes(A).comes(B, age=2).goes(B),
        [B, C],
    ),
    "who did not has nothing to do then": (Told().comes(A, age=2).comes(B, age=1).goes(A), []),
}


@pytest.mark.parametrize(("line", "told"), TOLD.values(), ids=TOLD)
def test_who_is_told(line: Told, told: list[Key]) -> None:
    assert line.told == told


def test_the_priority_of_a_job_without_pods_is_the_last_one() -> None:
    line = Told().comes(A, priority=5)
    assert (line.priority(A), line.priority(B)) == (5, 0)
