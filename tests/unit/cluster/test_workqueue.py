import asyncio
from collections.abc import Awaitable, Callable

import pytest
from ddpjob_operator.cluster.store import Key
from ddpjob_operator.cluster.workqueue import AT_WORK, CROWD_SECONDS, REST_SECONDS, WorkQueue

from tests.support import virtual_time

A_WHILE = 20.0
A, B = ("team", "a"), ("team", "b")


def scene(play: Callable[[WorkQueue], Awaitable[None]]) -> None:
    """Plays with an open queue."""

    async def opened() -> None:
        keys = WorkQueue()
        keys.open()
        async with asyncio.timeout(A_WHILE):
            await play(keys)

    virtual_time.run(opened())


A_REST = 5 * REST_SECONDS


async def given(keys: WorkQueue) -> list[Key]:
    """All keys that are given out without waiting."""
    taken: list[Key] = []
    while True:
        taking = asyncio.create_task(keys.take())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if not taking.done():
            taking.cancel()
            return taken
        taken.append(taking.result())


def test_a_key_stands_in_the_queue_at_most_once() -> None:
    async def play(keys: WorkQueue) -> None:
        for key in (A, B, A, A):
            keys.mark(key)
        assert await given(keys) == [A, B]

    scene(play)


def test_marks_during_work_lead_to_one_more_look_after_it() -> None:
    async def play(keys: WorkQueue) -> None:
        keys.mark(A)
        assert await given(keys) == [A]
        keys.mark(A)
        keys.mark(A)
        assert await given(keys) == [], "never twice at once"
        keys.done(A)
        assert await given(keys) == [], "what changes together is looked at together"
        keys.mark(A)
        await asyncio.sleep(REST_SECONDS)
        assert await given(keys) == [A]
        keys.done(A)
        await asyncio.sleep(A_WHILE / 2)
        assert await given(keys) == []

    scene(play)


def test_after_a_look_a_key_rests_and_other_keys_do_not_wait_for_it() -> None:
    async def play(keys: WorkQueue) -> None:
        keys.mark(A)
        assert await given(keys) == [A]
        keys.done(A)
        keys.mark(A)
        keys.mark(B)
        assert await given(keys) == [B]
        await asyncio.sleep(REST_SECONDS)
        assert await given(keys) == [A]

    scene(play)


def test_a_costly_look_is_followed_by_a_longer_rest_once() -> None:
    async def play(keys: WorkQueue) -> None:
        for asked, rest in ((3.0, 3.0), (0.0, REST_SECONDS)):
            keys.mark(A)
            assert await given(keys) == [A]
            keys.done(A, asked)
            keys.mark(A)
            began = asyncio.get_running_loop().time()
            assert await keys.take() == A
            assert asyncio.get_running_loop().time() - began == pytest.approx(rest, abs=0.01)
            keys.done(A)
            await asyncio.sleep(REST_SECONDS)

    scene(play)


@pytest.mark.parametrize(
    ("others", "failing", "rest"), [(0, 0, 0.02), (3, 0, 0.08), (5, 3, 0.06), (3, 3, 0.02), (1000, 0, 0.25)]
)
def test_in_a_crowd_each_key_rests_longer_but_not_for_those_that_fail(others: int, failing: int, rest: float) -> None:
    async def play(keys: WorkQueue) -> None:
        for number in range(others):
            keys.mark(("team", f"{number}"))
            assert await keys.take() == ("team", f"{number}")
            if number < failing:
                keys.failed(("team", f"{number}"))
            else:
                keys.done(("team", f"{number}"), A_WHILE)
        keys.mark(A)
        assert await keys.take() == A
        keys.done(A)
        keys.mark(A)
        began = asyncio.get_running_loop().time()
        assert await keys.take() == A
        assert asyncio.get_running_loop().time() - began == pytest.approx(rest, abs=0.001)

    scene(play)


def test_a_failed_look_is_repeated_later_each_time_whatever_happens_meanwhile() -> None:
    async def play(keys: WorkQueue) -> None:
        clock, waits = asyncio.get_running_loop().time, []
        keys.mark(A)
        await keys.take()
        for meanwhile in (False, True, False):
            began = clock()
            waits.append(keys.failed(A))
            if meanwhile:
                keys.mark(A)
            assert await keys.take() == A
            assert clock() - began == pytest.approx(waits[-1], abs=0.01)
        assert all(least <= wait <= 1.5 * least for least, wait in zip((0.2, 0.4, 0.8), waits, strict=True))

    scene(play)


def test_looks_that_fail_together_are_not_repeated_together() -> None:
    async def play(keys: WorkQueue) -> None:
        failed = [("team", f"digits-{number}") for number in range(8)]
        for key in failed:
            keys.mark(key)
        waits = {keys.failed(await keys.take()) for _ in failed}
        assert len(waits) == len(failed)

    scene(play)


def test_what_has_succeeded_once_is_repeated_as_soon_as_ever_when_it_fails_again() -> None:
    async def play(keys: WorkQueue) -> None:
        for fails in (True, True, True, False, True):
            keys.mark(A)
            await keys.take()
            if fails:
                wait = keys.failed(A)
            else:
                keys.done(A)
        assert wait <= 0.2 * 1.5

    scene(play)


def test_the_server_says_how_long_to_wait_at_least() -> None:
    async def play(keys: WorkQueue) -> None:
        keys.mark(A)
        await keys.take()
        assert 7.0 <= keys.failed(A, at_least=7.0) <= 7.0 * 1.5

    scene(play)


def test_of_several_wishes_for_later_the_earliest_counts() -> None:
    async def play(keys: WorkQueue) -> None:
        keys.mark_in(A, 1000)
        keys.mark_in(A, 0.01)
        keys.mark_in(A, 500)
        assert await keys.take() == A

    scene(play)


def test_a_look_makes_an_earlier_wish_for_a_later_one_void() -> None:
    async def play(keys: WorkQueue) -> None:
        keys.mark_in(A, 0.05)
        keys.mark(A)
        keys.done(await keys.take())
        await asyncio.sleep(0.1)
        assert await given(keys) == []

    scene(play)


def test_nothing_is_given_out_once_closed_and_closing_waits_for_the_work_in_hand() -> None:
    async def play(keys: WorkQueue) -> None:
        keys.mark(A)
        assert await given(keys) == [A]
        closing = asyncio.create_task(keys.close())
        await asyncio.sleep(0)
        keys.mark(B)
        assert await given(keys) == []
        assert not closing.done()
        keys.done(A)
        await closing

    scene(play)


def test_a_key_does_not_wait_for_all_those_of_another_namespace() -> None:
    async def play(keys: WorkQueue) -> None:
        for number in range(1000):
            keys.mark(("crowd", f"{number}"))
        keys.mark(A)
        assert await keys.take() == ("crowd", "0")
        assert await keys.take() == A

    scene(play)


def test_only_so_many_are_worked_on_at_once_but_for_those_that_are_set_aside() -> None:
    async def play(keys: WorkQueue) -> None:
        for number in range(AT_WORK + 2):
            keys.mark(("team", f"{number}"))
        assert len(await given(keys)) == AT_WORK
        keys.set_aside(("team", "0"))
        assert await given(keys) == [("team", f"{AT_WORK}")]
        keys.done(("team", "0"))
        assert await given(keys) == []
        keys.done(("team", "1"))
        assert await given(keys) == [("team", f"{AT_WORK + 1}")]

    scene(play)


def test_large_gangs_of_a_namespace_are_made_one_after_the_other() -> None:
    """Where there is room for some of them only, each would hold a part of it until it gives that back."""

    async def play(keys: WorkQueue) -> None:
        first, second, third, other = ("team", "1"), ("team", "2"), ("team", "3"), ("others", "1")
        for key in (first, second, third, other):
            keys.mark(key)
        assert len(await given(keys)) == 4
        assert [keys.is_its_turn(key) for key in (first, second, third, other)] == [True, False, False, True]
        keys.done(second)
        keys.done(third)
        assert await given(keys) == [], "they wait"
        keys.done(first)
        await asyncio.sleep(A_REST)
        assert await given(keys) == [second]
        assert keys.is_its_turn(second)
        keys.failed(second)
        await asyncio.sleep(A_REST)
        assert await given(keys) == [third], "one that fails lets the next one pass"
        assert keys.is_its_turn(third)
        keys.done(third)
        assert keys.is_its_turn(first), "nobody is left before it"

    scene(play)


def test_whether_one_is_worked_on_alone_is_known_though_it_is_set_aside() -> None:
    async def play(keys: WorkQueue) -> None:
        keys.mark(A)
        assert await keys.take() == A
        keys.set_aside(A)
        assert keys.alone()
        keys.mark(B)
        assert await keys.take() == B
        assert not keys.alone()
        keys.done(B)
        assert not keys.alone(), "others may come again at once"
        await asyncio.sleep(CROWD_SECONDS)
        assert keys.alone()

    scene(play)
