import asyncio
from collections.abc import Awaitable, Callable

import pytest
from ddpjob_operator.cluster.dirty import PAUSE_SECONDS, DirtyKeys

from . import virtual_time

A_WHILE = 20.0


def scene(play: Callable[[DirtyKeys[str]], Awaitable[None]]) -> None:
    """Plays with an open queue."""

    async def opened() -> None:
        keys: DirtyKeys[str] = DirtyKeys()
        keys.open()
        async with asyncio.timeout(A_WHILE):
            await play(keys)

    virtual_time.run(opened())


async def given(keys: DirtyKeys[str]) -> list[str]:
    """All keys that are given out without waiting."""
    taken: list[str] = []
    while True:
        taking = asyncio.create_task(keys.take())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if not taking.done():
            taking.cancel()
            return taken
        taken.append(taking.result())


def test_a_key_stands_in_the_queue_at_most_once() -> None:
    async def play(keys: DirtyKeys[str]) -> None:
        for key in ("a", "b", "a", "a"):
            keys.mark(key)
        assert await given(keys) == ["a", "b"]

    scene(play)


def test_marks_during_work_lead_to_one_more_look_after_it() -> None:
    async def play(keys: DirtyKeys[str]) -> None:
        keys.mark("a")
        assert await given(keys) == ["a"]
        keys.mark("a")
        keys.mark("a")
        assert await given(keys) == [], "never twice at once"
        keys.done("a")
        assert await given(keys) == [], "what changes together is looked at together"
        keys.mark("a")
        await asyncio.sleep(PAUSE_SECONDS)
        assert await given(keys) == ["a"]
        keys.done("a")
        await asyncio.sleep(A_WHILE / 2)
        assert await given(keys) == []

    scene(play)


def test_a_failed_look_is_repeated_later_each_time_whatever_happens_meanwhile() -> None:
    async def play(keys: DirtyKeys[str]) -> None:
        clock, waits = asyncio.get_running_loop().time, []
        keys.mark("a")
        await keys.take()
        for _ in range(3):
            began = clock()
            waits.append(keys.failed("a"))
            keys.mark("a")
            assert await keys.take() == "a"
            assert clock() - began == pytest.approx(waits[-1], abs=0.01)
        assert waits == sorted(waits)

    scene(play)


def test_the_server_says_how_long_to_wait_at_least() -> None:
    async def play(keys: DirtyKeys[str]) -> None:
        keys.mark("a")
        await keys.take()
        assert 7.0 <= keys.failed("a", at_least=7.0) <= 7.0 * 1.5

    scene(play)


def test_of_several_wishes_for_later_the_earliest_counts() -> None:
    async def play(keys: DirtyKeys[str]) -> None:
        keys.mark_in("a", 1000)
        keys.mark_in("a", 0.01)
        keys.mark_in("a", 500)
        assert await keys.take() == "a"

    scene(play)


def test_nothing_is_given_out_once_closed_and_closing_waits_for_the_work_in_hand() -> None:
    async def play(keys: DirtyKeys[str]) -> None:
        keys.mark("a")
        assert await given(keys) == ["a"]
        closing = asyncio.create_task(keys.close())
        await asyncio.sleep(0)
        keys.mark("b")
        assert await given(keys) == []
        assert not closing.done()
        keys.done("a")
        await closing

    scene(play)
