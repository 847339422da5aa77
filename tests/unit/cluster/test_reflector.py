"""What is known of pods while their watch is broken in every way, and how often the API server is asked."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from ddpjob_operator.cluster.kube.api_client import PODS, ApiClient, ApiError, StuckError
from ddpjob_operator.cluster.reflector import Reflector
from ddpjob_operator.cluster.store import Key, Store

from tests.support import virtual_time

from .manifests import DIGITS, a_pod

GONE = ApiError(410, "Expired", "too old resource version")
NO_ANSWER = ApiError(0, "NoAnswer", "the connection was reset")
TOO_MANY = ApiError(429, "TooManyRequests", "slow down", retry_after=7)
STUCK = StuckError(500, "InternalError", "a change cannot be encoded")
BUSY = ApiError(500, "InternalError", "the watch cannot begin now")
FORBIDDEN = ApiError(403, "Forbidden", "pods is forbidden")

END = object()
"""The server ends the watch."""


def added(rank: int, version: int) -> tuple[str, Any]:
    return "ADDED", a_pod(rank=rank, version=version)


def deleted(rank: int, version: int) -> tuple[str, Any]:
    return "DELETED", a_pod(rank=rank, version=version)


def bookmark(version: int) -> tuple[str, Any]:
    return "BOOKMARK", a_pod(rank=9, version=version)


@dataclass
class Scripted(ApiClient):
    """An API server that answers as it is told, and then falls silent for ever. Notes what it is asked, and when."""

    lists: list[Any]
    watches: list[list[Any]]
    asked: list[str] = field(default_factory=list)
    at: list[float] = field(default_factory=list)

    def _note(self, what: str) -> None:
        self.asked.append(what)
        self.at.append(asyncio.get_running_loop().time())

    async def list(self, *_: Any, **__: Any) -> Any:
        self._note("list")
        answer = self.lists.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        return answer

    async def watch(self, *what: Any, **_: Any) -> AsyncGenerator[tuple[str, Any]]:
        self._note(f"watch {what[-1]}")
        for line in self.watches.pop(0) if self.watches else ():
            if isinstance(line, ApiError):
                raise line
            if line is END:
                return
            if isinstance(line, float):
                await asyncio.sleep(line)
                continue
            yield line
        await asyncio.sleep(1000)


def followed(api: Scripted) -> tuple[list[int], set[Key]]:
    """The ranks that are known after a while, and the jobs that got a look."""
    marked: set[Key] = set()
    store = Store(marked.add)

    async def follow() -> None:
        try:
            async with asyncio.timeout(500):
                await Reflector(api, PODS, "team", store.pods).run()
        except TimeoutError:
            pass

    virtual_time.run(follow())
    return sorted(pod.node for pod in store.pods.owned_by(DIGITS)), marked


FIRST = ([a_pod(rank=0, version=3)], 5)
WITHOUT_0 = ([a_pod(rank=1, version=8)], 9)

COURSES: dict[str, tuple[list[Any], list[list[Any]], list[int], list[str]]] = {
    "nothing happens": ([FIRST], [], [0], ["list", "watch 5"]),
    "one comes and one goes": ([FIRST], [[added(1, 6), deleted(0, 7)]], [1], ["list", "watch 5"]),
    "the server ends the watch": ([FIRST], [[added(1, 6), END]], [0, 1], ["list", "watch 5", "watch 6"]),
    "a bookmark advances the version": ([FIRST], [[bookmark(8), END]], [0], ["list", "watch 5", "watch 8"]),
    "the connection breaks": ([FIRST], [[added(1, 6), NO_ANSWER]], [0, 1], ["list", "watch 5", "watch 6"]),
    "it breaks before anything has come": ([FIRST], [[NO_ANSWER]], [0], ["list", "watch 5", "watch 5"]),
    "it cannot begin": ([FIRST], [[BUSY]], [0], ["list", "watch 5", "watch 5"]),
    "it cannot get past a change": (
        [FIRST, WITHOUT_0],
        [[added(2, 6), STUCK]],
        [1],
        ["list", "watch 5", "list", "watch 9"],
    ),
    "the history is gone": ([FIRST, WITHOUT_0], [[GONE]], [1], ["list", "watch 5", "list", "watch 9"]),
    "it is gone later": ([FIRST, WITHOUT_0], [[added(2, 6), GONE]], [1], ["list", "watch 5", "list", "watch 9"]),
    "it is gone also for the list": (
        [FIRST, GONE, WITHOUT_0],
        [[GONE]],
        [1],
        ["list", "watch 5", "list", "list", "watch 9"],
    ),
    "rights are taken away for a while": (
        [FIRST, FORBIDDEN, WITHOUT_0],
        [[FORBIDDEN]],
        [1],
        ["list", "watch 5", "list", "list", "watch 9"],
    ),
}


@pytest.mark.parametrize(("lists", "watches", "ranks", "asked"), COURSES.values(), ids=COURSES)
def test_what_is_known_and_what_it_takes_when(
    lists: list[Any], watches: list[list[Any]], ranks: list[int], asked: list[str]
) -> None:
    api = Scripted([*lists], [*watches])
    known, marked = followed(api)
    assert (known, api.asked) == (ranks, asked)
    assert marked == {("team", "digits")}


def test_a_server_that_ends_every_watch_at_once_is_not_asked_all_the_time() -> None:
    api = Scripted([FIRST], [[END]] * 100)
    followed(api)
    pauses = [after - before for before, after in zip(api.at[1:], api.at[2:], strict=False)]
    assert pauses[0] < 0.5
    assert all(4.9 < pause < 7.6 for pause in pauses[6:100])


def test_a_watch_in_which_nothing_happened_for_long_did_not_fail() -> None:
    idle = 48.0
    api = Scripted([FIRST], [[idle, NO_ANSWER]] * 9)
    followed(api)
    pauses = [after - before - idle for before, after in zip(api.at[1:], api.at[2:], strict=False)]
    assert max(pauses) < 0.5


def test_a_watch_that_never_gets_past_a_change_does_not_have_everything_listed_all_the_time() -> None:
    api = Scripted([FIRST] * 200, [[STUCK]] * 200)
    followed(api)
    assert 100 < api.asked.count("list") + api.asked.count("watch 5") < 250


def test_a_server_says_how_long_it_wants_to_be_left_alone() -> None:
    api = Scripted([FIRST], [[TOO_MANY]])
    followed(api)
    assert api.at[2] - api.at[1] >= 7


def test_what_is_not_wanted_asks_nothing_and_who_has_it_wanted_is_told_of_a_refusal() -> None:
    api, store, refused = Scripted([FIRST, FIRST], [[FORBIDDEN]]), Store(lambda _: None), list[float]()

    async def follow() -> None:
        clock = asyncio.get_running_loop().time

        def wanted() -> bool:
            return not refused or clock() > refused[0] + 100

        reflector = Reflector(api, PODS, "team", store.pods, wanted=wanted, refused=lambda: refused.append(clock()))
        with suppress(TimeoutError):
            async with asyncio.timeout(500):
                await reflector.run()

    virtual_time.run(follow())
    assert api.asked == ["list", "watch 5", "list", "watch 5"]
    assert len(refused) == 1
    assert api.at[2] > refused[0] + 100
