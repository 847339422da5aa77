"""The lines for nodes: who comes first, and who is told when that changes."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from ddpjob_operator.cluster.line import Place, WaitingLines
from ddpjob_operator.cluster.store import Key
from ddpjob_operator.engine import Ahead, InLine

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LACKING, HALF, AWAY = InLine(), InLine(found=3), InLine(away=True)
A, B, C = (("team", name) for name in "abc")


def place(key: Key, *, kind: str = "GPUs", priority: int = 0, age: float = 0) -> Place:
    """The place of a job of this age, in seconds."""
    return Place(kind, -priority, NOON - timedelta(seconds=age), f"uid of {key[1]}")


class Lines(WaitingLines):
    """Lines that keep who is told."""

    def __init__(self) -> None:
        self.told: list[Key] = []
        super().__init__(self.told.append)

    def comes(self, key: Key, how: InLine = LACKING, *, at: float = 0, **who: Any) -> "Lines":
        self.put(key, place(key, **who), how, NOON + timedelta(seconds=at))
        return self

    def goes(self, key: Key, *, at: float = 0) -> "Lines":
        self.leave(key, NOON + timedelta(seconds=at))
        return self

    def before(self, key: Key, **who: Any) -> int:
        """How many jobs are ahead of one."""
        ahead = self.ahead(key, place(key, **who))
        return 0 if ahead is None else ahead.jobs


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
        lines = Lines()
        for key in order:
            lines.comes(key, **(one if key == A else other))
        assert (lines.before(A, **one), lines.before(B, **other)) == (0, 1)


def test_a_job_that_does_not_stand_in_line_yet_knows_how_many_would_be_ahead_of_it() -> None:
    lines = Lines().comes(A, age=3).comes(B, age=2)
    assert [lines.before(C, age=age) for age in (1, 2.5, 4)] == [2, 1, 0]


def test_nobody_is_ahead_of_anybody_in_an_empty_line() -> None:
    assert not Lines().before(A)
    assert not Lines().comes(A).goes(A).goes(A).before(B)


def test_a_job_is_not_ahead_of_itself_when_its_priority_has_fallen() -> None:
    assert not Lines().comes(A, priority=5).before(A, priority=1)


def test_who_asks_for_other_nodes_stands_in_another_line() -> None:
    lines = Lines().comes(A, age=2).comes(B, kind="others", age=3)
    assert (lines.before(A, age=2), lines.before(C), lines.before(C, kind="others")) == (0, 1, 1)
    lines.comes(A, kind="others", age=2)
    assert (lines.before(C), lines.before(C, kind="others")) == (0, 2), "it asks for other nodes now"


TOLD: dict[str, tuple[Callable[[], Lines], list[Key]]] = {
    "who comes last changes nothing": (lambda: Lines().comes(A, age=3).comes(B, age=2).comes(C, AWAY, age=1), []),
    "nor does who stays": (lambda: Lines().comes(A, age=2).comes(B, age=1).comes(A, age=2).comes(B, AWAY, age=1), []),
    "nor who leaves from behind": (lambda: Lines().comes(A, age=2).comes(B, AWAY, age=1).goes(B), []),
    "nor who is the first in another line": (lambda: Lines().comes(B, age=1).comes(A, kind="others", age=2), []),
    "the first has to give way to one that comes before it": (lambda: Lines().comes(B, age=1).comes(A, age=2), [B]),
    "also if the other one only turns out to have a higher priority": (
        lambda: Lines().comes(A, age=2).comes(B, age=1).comes(B, age=1, priority=5),
        [A],
    ),
    "or itself to have a lower one": (
        lambda: Lines().comes(A, age=2).comes(B, age=1).comes(A, age=2, priority=-5),
        [A],
    ),
    "who gave way may come back once it is the first": (
        lambda: Lines().comes(A, age=3).comes(B, AWAY, age=2).comes(C, AWAY, age=1).goes(A),
        [B],
    ),
    "the next one after that": (
        lambda: Lines().comes(A, age=3).comes(B, AWAY, age=2).comes(C, AWAY, age=1).goes(A).comes(B, age=2).goes(B),
        [B, C],
    ),
    "who gave way as the one ahead of it left may come back too": (
        lambda: Lines().comes(A, age=2).comes(B, age=1).goes(A).comes(B, AWAY, age=1),
        [B],
    ),
    "once": (lambda: Lines().comes(B, AWAY, age=1).comes(B, AWAY, age=1), [B]),
    "who did not has nothing to do then": (lambda: Lines().comes(A, age=2).comes(B, age=1).goes(A), []),
    "who leaves has nothing to do either": (lambda: Lines().comes(A, age=2).comes(B, age=1).goes(A).goes(B), []),
}


@pytest.mark.parametrize(("happens", "told"), TOLD.values(), ids=TOLD)
def test_who_is_told(happens: Callable[[], Lines], told: list[Key]) -> None:
    assert happens().told == told


MOVED: dict[str, tuple[Callable[[], Lines], float]] = {
    "the first came": (lambda: Lines().comes(A, at=1, age=2), 1),
    "not when it was looked at again": (lambda: Lines().comes(A, at=1, age=2).comes(A, at=5, age=2), 1),
    "nor when one behind it came, was scheduled or left": (
        lambda: Lines().comes(A, at=1, age=2).comes(B, at=5, age=1).comes(B, HALF, at=6, age=1).goes(B, at=7),
        1,
    ),
    "nor when that happened in another line": (
        lambda: Lines().comes(A, at=1, age=2).comes(B, at=5, kind="others").goes(B, at=6),
        1,
    ),
    "it came once more": (lambda: Lines().comes(A, at=1, age=2).goes(A, at=2).comes(A, at=5, age=2), 5),
    "it found another node": (lambda: Lines().comes(A, at=1, age=2).comes(A, HALF, at=5, age=2), 5),
    "also if there are other lines": (
        lambda: Lines().comes(B, kind="CPUs", age=3).comes(A, at=1, age=2).comes(A, HALF, at=5, age=2),
        5,
    ),
    "it came back": (lambda: Lines().comes(A, AWAY, at=1, age=2).comes(A, at=5, age=2), 5),
    "the one ahead of it left": (lambda: Lines().comes(A, at=1, age=2).comes(B, at=2, age=3).goes(B, at=5), 5),
    "the one ahead of it asked for other nodes": (
        lambda: Lines().comes(A, at=1, age=2).comes(B, at=2, age=3).comes(B, at=5, age=3, kind="others"),
        5,
    ),
    "it overtook that": (lambda: Lines().comes(B, at=1, age=2).comes(A, at=5, age=3).goes(B, at=6), 5),
}


@pytest.mark.parametrize(("happens", "seconds"), MOVED.values(), ids=MOVED)
def test_when_a_line_last_moved(happens: Callable[[], Lines], seconds: float) -> None:
    assert happens().ahead(C, place(C)) == Ahead(1, NOON + timedelta(seconds=seconds))


def test_the_priority_of_a_job_without_pods_is_the_last_one() -> None:
    lines = Lines().comes(A, priority=5)
    assert (lines.priority(A), lines.priority(B)) == (5, 0)
