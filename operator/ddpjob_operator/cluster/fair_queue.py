"""A fair queue: namespaces take turns, a namespace's jobs take turns, and a job's own items keep their order.

So a job never waits for all items of another namespace, which may have ten thousand jobs, or of another job, which
may have thousands of pods.
"""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from .store import Key

ALONE = 32
"""How many writes of one job may be in flight while no other job is in progress."""
BESIDE_OTHERS = 5
"""How many writes of one job may be in flight while other jobs are in progress. The more requests the API server is
handling, the longer each takes, and a small job makes several requests one after the other. With 8 instead of 5, an
API server on two cores created a large job no faster, but took 50% longer for a small job."""
AT_ONCE = 40
"""How many writes may be in flight, counting all jobs: more than ALONE, so that another job can begin immediately."""

T = TypeVar("T")


class FairQueue(Generic[T]):
    """A queue of items, each of which belongs to a job."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, OrderedDict[str, deque[T]]] = OrderedDict()
        """The items by the job's namespace and name. The namespace and the job whose turn is next come first."""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def put(self, job: Key, wanted: T) -> None:
        """Adds an item of a job. If the job had no items, its turn comes after those of the waiting jobs."""
        namespace, name = job
        self._waiting.setdefault(namespace, OrderedDict()).setdefault(name, deque()).append(wanted)

    def pop(self, may: Callable[[Key], bool] = lambda _: True) -> T | None:
        """Removes and returns the next item of a job for which `may` returns true; None if there is none."""
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
    """Limits the writes in flight and shares them fairly. Each write must run in `async with turns.take(job)`."""

    def __init__(self, alone: Callable[[], bool]) -> None:
        """`alone` returns whether at most one job is in progress, including jobs that have not begun to write."""
        self._alone = alone
        self._waiting: FairQueue[tuple[Key, asyncio.Future[None]]] = FairQueue()
        self._under_way: Counter[Key] = Counter()

    @asynccontextmanager
    async def take(self, job: Key) -> AsyncIterator[None]:
        """Waits until a write of this job may begin. Leaving the context ends the job's turn."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.put(job, (job, turn))
        self._give_turns()
        try:
            await turn
            yield
        finally:
            # A waiter that was cancelled before its turn has no turn to give back.
            if not turn.cancelled():
                self._under_way -= Counter((job,))  # Unlike `[job] -= 1`, this leaves no zeros behind.
                self._give_turns()

    def _give_turns(self) -> None:
        while self._under_way.total() < AT_ONCE and (following := self._waiting.pop(self._may_begin)):
            job, turn = following
            if not turn.cancelled():
                self._under_way[job] += 1
                turn.set_result(None)

    def _may_begin(self, job: Key) -> bool:
        return self._under_way[job] < (ALONE if self._alone() else BESIDE_OTHERS)
