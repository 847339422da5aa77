"""Who is next, and how many are under way at once."""

import asyncio

import pytest
from ddpjob_operator.cluster.fair_queue import ALONE, AT_ONCE, BESIDE_OTHERS, FairQueue, Turns
from ddpjob_operator.cluster.store import Key

LARGE = ("team", "large")
SMALL = ("team", "small")
TURNS = [
    ("one job: who came first", "t/a1 t/a2 t/a3", "t/a1 t/a2 t/a3"),
    ("two jobs of a namespace in turn", "t/a1 t/a2 t/a3 t/b1 t/b2", "t/a1 t/b1 t/a2 t/b2 t/a3"),
    ("two namespaces in turn, however many jobs one has", "t/a1 t/b1 t/c1 u/a1 u/a2", "t/a1 u/a1 t/b1 u/a2 t/c1"),
    ("a name says nothing: one job in each namespace", "t/a1 t/a2 u/a1 u/a2", "t/a1 u/a1 t/a2 u/a2"),
    ("who comes late comes after those that wait", "t/a1 t/a2 - t/b1 u/a1 - - -", "t/a1 t/a2 u/a1 t/b1"),
    ("who has got all and comes again is last", "t/a1 t/b1 t/b2 - t/a2 - - -", "t/a1 t/b1 t/a2 t/b2"),
    ("a job that may not is passed over, and loses no turn", "t/x1 t/a1 t/a2 u/x1", "t/a1 t/a2"),
    ("nothing is wanted", "", ""),
]


@pytest.mark.parametrize(("puts", "order"), [row[1:] for row in TURNS], ids=[row[0] for row in TURNS])
def test_whose_turn_it_is(puts: str, order: str) -> None:
    """`t/a1`: namespace t, job a, its first wish; `-`: one is taken; the job x may have nothing."""
    queue, taken = FairQueue[str](), list[str | None]()

    def take() -> str | None:
        return queue.pop(lambda job: job[1] != "x")

    for word in puts.split():
        if word == "-":
            taken.append(take())
        else:
            namespace, wish = word.split("/")
            queue.put((namespace, wish[0]), word)
    while (one := take()) is not None:
        taken.append(one)
    assert taken == order.split()
    assert bool(queue) == ("x" in puts)


class Hall:
    """Writes that end when they are told to."""

    def __init__(self, *, alone: bool) -> None:
        self.alone = alone
        self.turns = Turns(lambda: self.alone)
        self.begun: list[Key] = []
        self._ends: dict[Key, list[asyncio.Event]] = {}

    def wants(self, job: Key, count: int) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self._write(job)) for _ in range(count)]

    async def ends(self, job: Key, count: int) -> None:
        for _ in range(count):
            self._ends[job].pop(0).set()
        await settled()

    def under_way(self, job: Key) -> int:
        return len(self._ends.get(job, ()))

    async def _write(self, job: Key) -> None:
        async with self.turns.take(job):
            end = asyncio.Event()
            self.begun.append(job)
            self._ends.setdefault(job, []).append(end)
            await end.wait()


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_job_alone_has_many_writes_under_way_and_another_one_finds_room_at_once() -> None:
    async def play() -> None:
        hall = Hall(alone=True)
        large = hall.wants(LARGE, 100)
        await settled()
        assert hall.under_way(LARGE) == ALONE
        hall.alone = False
        small = hall.wants(SMALL, 4)
        await settled()
        assert hall.under_way(SMALL) == 4, "it has to wait for nothing"
        for task in (*large, *small):
            task.cancel()

    asyncio.run(play())


def test_beside_others_a_job_has_few_under_way_and_alone_again_as_many_as_before() -> None:
    async def play() -> None:
        hall = Hall(alone=True)
        tasks = hall.wants(LARGE, 200)
        await settled()
        hall.alone = False
        await hall.ends(LARGE, ALONE - BESIDE_OTHERS)
        assert hall.under_way(LARGE) == BESIDE_OTHERS
        await hall.ends(LARGE, 1)
        assert hall.under_way(LARGE) == BESIDE_OTHERS
        hall.alone = True
        await hall.ends(LARGE, 1)
        assert hall.under_way(LARGE) == ALONE
        for task in tasks:
            task.cancel()

    asyncio.run(play())


def test_many_large_jobs_share_what_there_is_and_a_small_one_in_another_namespace_is_next() -> None:
    async def play() -> None:
        hall = Hall(alone=False)
        larges = [("team", f"large{number}") for number in range(10)]
        tasks = [task for one in larges for task in hall.wants(one, 50)]
        await settled()
        assert sum(map(hall.under_way, larges)) == AT_ONCE
        tasks += hall.wants(("others", "small"), 4)
        for large in larges[:2]:
            await hall.ends(large, 4)
        assert hall.begun[AT_ONCE:].count(("others", "small")) == 4, "each second one is its own"
        for task in tasks:
            task.cancel()

    asyncio.run(play())


def test_who_is_cancelled_while_it_waits_or_just_as_its_turn_comes_takes_no_room_away() -> None:
    async def play() -> None:
        hall = Hall(alone=True)
        first, *rest = hall.wants(LARGE, ALONE + 2)
        await settled()
        rest[-1].cancel()
        hall._ends[LARGE].pop(0).set()
        await first
        rest[-2].cancel()  # Its turn has come, and it does not know yet.
        await settled()
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        again = hall.wants(LARGE, ALONE)
        before = len(hall.begun)
        await settled()
        assert len(hall.begun) == before + ALONE
        for task in again:
            task.cancel()

    asyncio.run(play())
