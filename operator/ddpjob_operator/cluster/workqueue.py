"""Which jobs to look at: a queue of keys in which a key occurs at most once and is never worked on twice at once."""

import asyncio
import math
from collections import OrderedDict

from .fair_queue import FairQueue
from .kube.backoff import backoff
from .serve.metrics import QUEUE_DEPTH
from .store import Key

AT_WORK = 16
"""How many keys are worked on at once, not counting those that are set aside."""
CROWD_SECONDS = 1.0
"""For this long after several keys were worked on at once, none counts as alone: between two looks at a small job, a
large one would take all the room again."""
REST_SECONDS = 0.02
"""How long a key rests after each look: what changes together, such as the pods of a gang, gets one look together."""
LONGEST_REST_SECONDS = 0.25
"""For each other resting key a key rests REST_SECONDS longer, up to this: in a crowd, in which changes are late
anyway, a few looks at many changes cost less than many looks at a few."""


class WorkQueue:
    """Keys that need a look. Marks on a key that is being worked on lead to one more look, however many there are.

    A look comes at once, unless there has just been one: after each a key rests. Namespaces take turns, so that a key
    does not wait for all keys of another namespace.

    Nothing is given out before `open`, nor after `close`.
    """

    def __init__(self) -> None:
        self._ready: FairQueue[Key] = FairQueue()
        self._dirty: set[Key] = set()
        self._working: set[Key] = set()
        self._aside: set[Key] = set()
        self._large: dict[str, OrderedDict[Key, None]] = {}
        """By namespace, keys of gangs that are to be created, in the order of asking: the first one is."""
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
        """Work may begin."""
        self._open = True
        self._changed.set()

    async def close(self) -> None:
        """No more work begins; returns when the work in progress is done."""
        self._open = False
        await self._idle.wait()

    def mark(self, key: Key) -> None:
        """Asks for a look as soon as possible."""
        if key in self._dirty:
            return
        self._want(key)
        if key not in self._working and key not in self._resting:
            self._offer(key)

    def mark_in(self, key: Key, seconds: float) -> None:
        """Asks for a look after a while at the latest; of several such requests the earliest counts.

        Each look has to ask again: it knows better.
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
        """Waits for the next key to work on; `done` or `failed` gives it back."""
        while (key := self._next()) is None:
            self._changed.clear()
            await self._changed.wait()
        self._dirty.discard(key)
        self.forget(key)
        self._working.add(key)
        self._idle.clear()
        return key

    def is_its_turn(self, key: Key) -> bool:
        """Whether the gang of this key may be created now: large ones are created one by one in each namespace.

        Created at the same time, they would all hold a part of what none of them can run without. When one is
        created, or cannot be, the next one gets a look.
        """
        self._large.setdefault(key[0], OrderedDict()).setdefault(key)
        return self._is_first(key)

    def set_aside(self, key: Key) -> None:
        """The rest of the work on a key takes long, and waits for turns of its own: no other key waits for it."""
        self._aside.add(key)
        self._changed.set()

    def alone(self) -> bool:
        """Whether no more than one key is worked on, and has been for a moment."""
        crowded = asyncio.get_running_loop().time() < self._crowded_at + CROWD_SECONDS
        return len(self._working) <= 1 and not crowded

    def done(self, key: Key, rest: float = 0.0) -> None:
        """The look succeeded, and cost enough that the key should rest for at least this many seconds."""
        self._failures.pop(key, None)
        # Those that fail rest for up to half a minute: they are no crowd.
        crowd = len(self._resting) - len(self._failures)
        self._rest(key, max(REST_SECONDS, min(REST_SECONDS * (1 + crowd), LONGEST_REST_SECONDS), rest))

    def failed(self, key: Key, at_least: float = 0.0) -> float:
        """The look failed: another one follows, later with each failure, and not before the server wants it.

        Returns the seconds until then. What happens to the job meanwhile does not shorten them.
        """
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        seconds = backoff(failures, at_least)
        self._leave_line(key)
        self._want(key)
        self._rest(key, seconds)
        return seconds

    def forget(self, key: Key) -> None:
        """No later look at this key is wanted."""
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
        """A gang that has had its turn, or has failed, lets the next one pass."""
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
