"""The queue of jobs that need a round. A job is in the queue at most once, and never has two concurrent rounds."""

import asyncio
import math
from collections import OrderedDict

from .fair_queue import FairQueue
from .kube.backoff import backoff
from .serve.metrics import QUEUE_DEPTH
from .store import Key

AT_WORK = 16
"""How many rounds may be in progress at the same time, not counting those that are set aside."""
CROWD_SECONDS = 1.0
"""After several rounds were in progress at the same time, no job counts as alone for this long. Otherwise a large job
would take all turns between two rounds of a small job."""
REST_SECONDS = 0.02
"""How long a job rests after each round, so that simultaneous changes, such as those of a gang's pods, are handled in
a single round."""
LONGEST_REST_SECONDS = 0.25
"""A job rests REST_SECONDS longer for each other job that is resting, but no longer than this. With many jobs,
changes are handled late anyway, and few rounds with many changes cost less than many rounds with few changes."""


class WorkQueue:
    """The keys of jobs that need a round. A key that is marked during its round, however often, gets one more round.

    A round begins immediately, unless the key is still resting after its last round. Namespaces take turns, so that
    no key waits for all keys of another namespace.

    `take` returns no key before `open` or after `close`.
    """

    def __init__(self) -> None:
        self._ready: FairQueue[Key] = FairQueue()
        self._dirty: set[Key] = set()
        self._working: set[Key] = set()
        self._aside: set[Key] = set()
        self._large: dict[str, OrderedDict[Key, None]] = {}
        """The keys of the large gangs to be created, by namespace, in the order of the calls to `is_its_turn`.

        The first gang of each namespace is being created, and the others wait.
        """
        self._resting: set[Key] = set()
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._failures: dict[Key, int] = {}
        self._crowded_at = -math.inf
        self._open = False
        self._changed = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        QUEUE_DEPTH.set_function(lambda: len(self._dirty))

    def open(self) -> None:
        """Lets rounds begin."""
        self._open = True
        self._changed.set()

    async def close(self) -> None:
        """Lets no more rounds begin. Returns when the rounds in progress are done."""
        self._open = False
        await self._idle.wait()

    def mark(self, key: Key) -> None:
        """Requests a round as soon as possible."""
        if key in self._dirty:
            return
        self._want(key)
        if key not in self._working and key not in self._resting:
            self._offer(key)

    def mark_in(self, key: Key, seconds: float) -> None:
        """Requests a round after this many seconds. Of several requests for the same job only the earliest counts.

        `take` cancels the request, because each round decides again when the next round is due.
        """
        loop = asyncio.get_running_loop()
        when = loop.time() + max(seconds, 0.0)
        known = self._timers.get(key)
        if known is not None:
            if known.when() <= when:
                return
            known.cancel()
        self._timers[key] = loop.call_at(when, self._due, key)

    async def take(self) -> Key:
        """Waits for the next key that needs a round. After the round the caller must call `done` or `failed`."""
        while (key := self._next()) is None:
            self._changed.clear()
            await self._changed.wait()
        self._dirty.discard(key)
        self.forget(key)
        self._working.add(key)
        self._idle.clear()
        return key

    def is_its_turn(self, key: Key) -> bool:
        """Whether this job's large gang may be created now. Each namespace creates only one large gang at a time.

        If several were created at the same time, each could hold some of the Kubernetes nodes, and none could run.
        When a gang has been created, or its round has failed, the next gang gets a round.
        """
        self._large.setdefault(key[0], OrderedDict()).setdefault(key)
        return self._is_first(key)

    def set_aside(self, key: Key) -> None:
        """Stops counting this round against AT_WORK, because it takes long, and `Turns` limits its writes anyway."""
        self._aside.add(key)
        self._changed.set()

    def alone(self) -> bool:
        """Whether at most one round is in progress, and has been for the last CROWD_SECONDS."""
        crowded = asyncio.get_running_loop().time() < self._crowded_at + CROWD_SECONDS
        return len(self._working) <= 1 and not crowded

    def done(self, key: Key, rest: float = 0.0) -> None:
        """Ends a round that succeeded. The job then rests for at least `rest` seconds."""
        self._failures.pop(key, None)
        # Jobs that failed do not count, because they rest for up to half a minute and cause no load.
        crowd = len(self._resting) - len(self._failures)
        self._rest(key, max(REST_SECONDS, min(REST_SECONDS * (1 + crowd), LONGEST_REST_SECONDS), rest))

    def failed(self, key: Key, at_least: float = 0.0) -> float:
        """Ends a round that failed, and requests another after a wait that grows with each failure.

        The wait is at least `at_least` seconds, and does not become shorter if the job changes. Returns the wait.
        """
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        seconds = backoff(failures, at_least)
        self._leave_line(key)
        self._want(key)
        self._rest(key, seconds)
        return seconds

    def forget(self, key: Key) -> None:
        """Cancels the round of a job that `mark_in` requested."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def _next(self) -> Key | None:
        room = len(self._working) - len(self._aside) < AT_WORK
        return self._ready.pop() if self._open and room else None

    def _due(self, key: Key) -> None:
        self._timers.pop(key, None)
        self.mark(key)

    def _rest(self, key: Key, seconds: float) -> None:
        if len(self._working) > 1:
            self._crowded_at = asyncio.get_running_loop().time()
        self._working.remove(key)
        self._aside.discard(key)
        if self._is_first(key):
            self._leave_line(key)
        self._changed.set()
        if not self._working:
            self._idle.set()
        self._resting.add(key)
        asyncio.get_running_loop().call_later(seconds, self._rested, key)

    def _is_first(self, key: Key) -> bool:
        return next(iter(self._large.get(key[0], ())), None) == key

    def _leave_line(self, key: Key) -> None:
        """Removes a large gang from its line after its turn, or after a failure. The next gang gets a round."""
        line, was_first = self._large.get(key[0], OrderedDict()), self._is_first(key)
        line.pop(key, None)
        if not line:
            self._large.pop(key[0], None)
        elif was_first:
            self.mark(next(iter(line)))

    def _rested(self, key: Key) -> None:
        self._resting.discard(key)
        if key in self._dirty:
            self._offer(key)

    def _offer(self, key: Key) -> None:
        self._ready.put(key, key)
        self._changed.set()

    def _want(self, key: Key) -> None:
        self._dirty.add(key)
