"""What a watch tells of a cluster that changes, forgets and is away for a while."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from ddpjob_operator.client import Document, RefusedError, UnreachableError
from ddpjob_operator.client import watch as watching
from ddpjob_operator.client.watch import watch

from .api import Scripted, a_cluster, a_job, a_list, refused

AWAY = UnreachableError("away")


def change(kind: str, job: Document) -> bytes:
    return json.dumps({"type": kind, "object": job}).encode()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What was slept; time goes by in no other way."""
    slept: list[float] = []
    monkeypatch.setattr(watching.time, "sleep", slept.append)
    monkeypatch.setattr(watching.time, "monotonic", lambda: sum(slept))
    return slept


def seen(cluster: Scripted, count: int) -> list[list[str]]:
    """The names that are there, so many times."""
    told = watch(cluster, "/jobs", {"fieldSelector": "x"})
    return [sorted(job["metadata"]["name"] for job in next(told).values()) for _ in range(count)]


def test_all_are_told_at_once_and_again_after_every_change() -> None:
    a, b = a_job("a", "1"), a_job("b", "2")
    cluster = a_cluster(a_list(a), [change("ADDED", b), change("DELETED", a), change("MODIFIED", b)])
    assert seen(cluster, 4) == [["a"], ["a", "b"], ["b"], ["b"]]
    listed, watched = (query for *_, query in cluster.asked)
    assert listed == {"fieldSelector": "x"}
    assert watched == {"fieldSelector": "x", "watch": "true", "resourceVersion": "7", "timeoutSeconds": "240"}
    assert cluster.asked[1][2] == 270, "seconds after which silence is the end of a connection"


HALF_A_LINE = change("ADDED", a_job("c"))[:20]
ENDS = {"ends": [], "error": [b'{"type": "ERROR", "object": {"code": 410}}'], "gone": refused(410)}
ENDS |= {"half a line": [HALF_A_LINE], "no object": [b"[" * 100_000]}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_where_a_watch_ends_all_is_listed_anew(end: Any) -> None:
    cluster = a_cluster(a_list(a_job("a")), end, a_list(a_job("b")))
    assert seen(cluster, 2) == [["a"], ["b"]]


def test_where_watches_end_at_once_the_server_is_asked_once_a_second(clock: list[float]) -> None:
    cluster = a_cluster(*[a_list(a_job("a")), []] * 10, a_list(a_job("b")))
    assert seen(cluster, 11)[-1] == ["b"]
    assert clock == [watching.RETRY_SECONDS] * 10


def test_where_a_watch_has_lasted_all_is_listed_anew_at_once(clock: list[float]) -> None:
    def lasting() -> Iterator[bytes]:
        clock.append(watching.WATCH_SECONDS)
        yield from ()

    assert seen(a_cluster(a_list(a_job("a")), lasting(), a_list(a_job("b"))), 2) == [["a"], ["b"]]
    assert clock == [watching.WATCH_SECONDS]


def test_a_server_that_is_away_is_asked_again_after_a_while(clock: list[float]) -> None:
    cluster = a_cluster(a_list(a_job("a")), AWAY, AWAY, a_list(a_job("b")))
    assert seen(cluster, 2) == [["a"], ["b"]]
    assert clock == [watching.RETRY_SECONDS] * 2


def test_a_server_that_stays_away_is_given_up_at_last(clock: list[float]) -> None:
    cluster = a_cluster(a_list(a_job("a")), *[AWAY] * 1000)
    with pytest.raises(UnreachableError):
        seen(cluster, 2)
    assert watching.OUTAGE_SECONDS <= sum(clock) <= watching.OUTAGE_SECONDS + 2 * watching.RETRY_SECONDS


def test_who_shows_the_present_hears_of_a_server_that_is_away_as_soon_as_it_wants(clock: list[float]) -> None:
    lasting = [change("ADDED", a_job("b", "2"))]
    told = watch(a_cluster(a_list(a_job("a")), lasting, AWAY, a_list(), *[AWAY] * 9), "/jobs", {}, outage_seconds=2)
    assert [len(next(told)) for _ in range(3)] == [1, 2, 0]
    with pytest.raises(UnreachableError):
        next(told)
    assert len(clock) == 2 + 3


@pytest.mark.parametrize("answers", [[AWAY], [refused(403)], [a_list(), refused(403)]])
def test_a_server_that_never_answered_or_says_no_is_not_asked_again(answers: list[Any], clock: list[float]) -> None:
    with pytest.raises((UnreachableError, RefusedError)):
        seen(a_cluster(*answers), 2)
    assert clock == []
