"""The queue of jobs that need a round: a job is in it at most once, and is never worked on twice at the same time."""

import asyncio
import math
from collections import OrderedDict

from .fair_queue import FairQueue
from .kube.backoff import backoff
from .serve.metrics import QUEUE_DEPTH
from .store import Key

AT_WORK = 16
"""How many keys are worked on at the same time, not counting those that are set aside."""
CROWD_SECONDS = 1.0
"""For this long after several keys were worked on at the same time, no key counts as alone: otherwise a large job
would take all turns again between two rounds of a small job."""
REST_SECONDS = 0.02
"""How long a key rests after each round, so that changes that come together, such as those of a gang's pods, are
handled in a single round."""
LONGEST_REST_SECONDS = 0.25
"""A key rests REST_SECONDS longer for each other key that is resting, but for no longer than this in total. With many
jobs, changes are handled late anyway, and few rounds with many changes cost less than many rounds with few."""


class WorkQueue:
    """Keys of jobs that need a round. A key that is marked during its round, however often, gets one more round.

    A round begins immediately, unless the key is still resting from its last round. Namespaces take turns, so that no
    key waits for all keys of another namespace.

    No key is handed out before `open` or after `close`.
    """

    def __init__(self) -> None:
        self._ready: FairQueue[Key] = FairQueue()
        self._dirty: set[Key] = set()
        self._working: set[Key] = set()
        self._aside: set[Key] = set()
        self._large: dict[str, OrderedDict[Key, None]] = {}
        """By namespace, the keys of the large gangs to be created, in the order of `is_its_turn`'s calls.

        The first gang is being created; the others wait.
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
        """Lets work begin."""
        self._open = True
        self._changed.set()

    async def close(self) -> None:
        """Lets no more work begin; returns when the work in progress is done."""
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
        """Requests a round after this many seconds; of several such requests the earliest counts.

        `take` cancels the request: each round decides again when the next one is due.
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
        """Waits for the next key to work on. The caller gives it back with `done` or `failed`."""
        while (key := self._next()) is None:
            self._changed.clear()
            await self._changed.wait()
        self._dirty.discard(key)
        self.forget(key)
        self._working.add(key)
        self._idle.clear()
        return key

    def is_its_turn(self, key: Key) -> bool:
        """Whether the large gang of this key may be created now; each namespace creates one such gang at a time.

        If several were created at the same time, each could hold some of the nodes, and none could run. When a gang
        is created, or its round fails, the next gang gets a round.
        """
        self._large.setdefault(key[0], OrderedDict()).setdefault(key)
        return self._is_first(key)

    def set_aside(self, key: Key) -> None:
        """Stops counting a key's round as one of AT_WORK: its writes take long, and `Turns` limits them."""
        self._aside.add(key)
        self._changed.set()

    def alone(self) -> bool:
        """Whether at most one key is worked on, and this has been so for the last CROWD_SECONDS."""
        crowded = asyncio.get_running_loop().time() < self._crowded_at + CROWD_SECONDS
        return len(self._working) <= 1 and not crowded

    def done(self, key: Key, rest: float = 0.0) -> None:
        """Ends a round that succeeded; the key rests for at least `rest` seconds."""
        self._failures.pop(key, None)
        # Keys that failed do not count: they rest for up to half a minute and cause no load.
        crowd = len(self._resting) - len(self._failures)
        self._rest(key, max(REST_SECONDS, min(REST_SECONDS * (1 + crowd), LONGEST_REST_SECONDS), rest))

    def failed(self, key: Key, at_least: float = 0.0) -> float:
        """Ends a round that failed, and requests another: later after each failure, and after at least `at_least` s.

        Returns the seconds until then. Changes of the job do not shorten them.
        """
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        seconds = backoff(failures, at_least)
        self._leave_line(key)
        self._want(key)
        self._rest(key, seconds)
        return seconds

    def forget(self, key: Key) -> None:
        """Cancels the round that `mark_in` requested for a key."""
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
        """Removes from its line a large gang that had its turn, or failed; the next gang gets a round."""
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
