import asyncio
from collections.abc import Awaitable, Callable

import pytest
from ddpjob_operator.cluster.dirty import REST_SECONDS, DirtyKeys

from tests.support import virtual_time

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
        await asyncio.sleep(REST_SECONDS)
        assert await given(keys) == ["a"]
        keys.done("a")
        await asyncio.sleep(A_WHILE / 2)
        assert await given(keys) == []

    scene(play)


def test_after_a_look_a_key_rests_and_other_keys_do_not_wait_for_it() -> None:
    async def play(keys: DirtyKeys[str]) -> None:
        keys.mark("a")
        assert await given(keys) == ["a"]
        keys.done("a")
        keys.mark("a")
        keys.mark("b")
        assert await given(keys) == ["b"]
        await asyncio.sleep(REST_SECONDS)
        assert await given(keys) == ["a"]

    scene(play)


def test_a_costly_look_is_followed_by_a_longer_rest_once() -> None:
    async def play(keys: DirtyKeys[str]) -> None:
        for asked, rest in ((3.0, 3.0), (0.0, REST_SECONDS)):
            keys.mark("a")
            assert await given(keys) == ["a"]
            keys.done("a", asked)
            keys.mark("a")
            began = asyncio.get_running_loop().time()
            assert await keys.take() == "a"
            assert asyncio.get_running_loop().time() - began == pytest.approx(rest, abs=0.01)
            keys.done("a")
            await asyncio.sleep(REST_SECONDS)

    scene(play)


@pytest.mark.parametrize(
    ("others", "failing", "rest"), [(0, 0, 0.02), (3, 0, 0.08), (5, 3, 0.06), (3, 3, 0.02), (1000, 0, 0.25)]
)
def test_in_a_crowd_each_key_rests_longer_but_not_for_those_that_fail(others: int, failing: int, rest: float) -> None:
    async def play(keys: DirtyKeys[str]) -> None:
        for number in range(others):
            keys.mark(f"{number}")
            assert await keys.take() == f"{number}"
            if number < failing:
                keys.failed(f"{number}")
            else:
                keys.done(f"{number}", A_WHILE)
        keys.mark("a")
        assert await keys.take() == "a"
        keys.done("a")
        keys.mark("a")
        began = asyncio.get_running_loop().time()
        assert await keys.take() == "a"
        assert asyncio.get_running_loop().time() - began == pytest.approx(rest, abs=0.001)

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
