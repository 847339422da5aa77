"""What is next: namespaces take turns, then a namespace's jobs; what one job wants comes in the order of asking.

So no job waits for everything that another one wants, whether that is ten thousand jobs or one job of thousands of
pods.
"""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from .store import Key

ALONE = 32
"""How many writes of one job are under way at once."""
BESIDE_OTHERS = 5
"""How many while other jobs are worked on: each request takes as long as everything that the API server is working
on, and a small job makes several, one after the other. With 8, an API server on two cores creates a large job no
faster, and a small one takes half as long again."""
AT_ONCE = 40
"""How many of all jobs together: beside a job that uses all it may, there is room for another one at once."""

T = TypeVar("T")


class FairQueue(Generic[T]):
    """What is wanted, by the job that wants it."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, OrderedDict[str, deque[T]]] = OrderedDict()
        """By namespace and name; the next one comes first."""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def put(self, job: Key, wanted: T) -> None:
        """Adds what a job wants. A job that wanted nothing before comes after those that wait."""
        namespace, name = job
        self._waiting.setdefault(namespace, OrderedDict()).setdefault(name, deque()).append(wanted)

    def pop(self, may: Callable[[Key], bool] = lambda _: True) -> T | None:
        """Takes out what is next of all jobs that may have something now; None if there is nothing."""
        for namespace, jobs in self._waiting.items():
            for name in jobs:
                if may((namespace, name)):
                    return self._taken(namespace, name)
        return None

    def _taken(self, namespace: str, name: str) -> T:
        jobs = self._waiting[namespace]
        first = jobs[name].popleft()
        jobs.move_to_end(name)
        self._waiting.move_to_end(namespace)
        if not jobs[name]:
            del jobs[name]
        if not jobs:
            del self._waiting[namespace]
        return first


class Turns:
    """A limited number of writes at once, fairly shared: `async with turns.one(job)` around each."""

    def __init__(self, alone: Callable[[], bool]) -> None:
        """`alone`: whether no more than one job is worked on now, even if the others do not write yet."""
        self._alone = alone
        self._waiting: FairQueue[tuple[Key, asyncio.Future[None]]] = FairQueue()
        self._under_way: Counter[Key] = Counter()

    @asynccontextmanager
    async def one(self, job: Key) -> AsyncIterator[None]:
        """Waits for a turn of this job, which lasts as long as the context."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.put(job, (job, turn))
        self._give()
        try:
            await turn
            yield
        finally:
            # One that was cancelled while it waited has had no turn to give back.
            if not turn.cancelled():
                self._under_way -= Counter((job,))  # Unlike `[job] -= 1`, this leaves no zeros behind.
                self._give()

    def _give(self) -> None:
        while self._under_way.total() < AT_ONCE and (following := self._waiting.pop(self._may)):
            job, turn = following
            if not turn.cancelled():
                self._under_way[job] += 1
                turn.set_result(None)

    def _may(self, job: Key) -> bool:
        return self._under_way[job] < (ALONE if self._alone() else BESIDE_OTHERS)
