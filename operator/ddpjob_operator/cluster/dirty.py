"""Which jobs to look at: a queue of keys in which a key stands at most once and is never worked on twice at once."""

import asyncio
from collections.abc import Hashable
from typing import Generic, TypeVar

from .backoff import backoff
from .metrics import QUEUE_DEPTH

PAUSE_SECONDS = 0.02
"""After a look during which something was marked: what changes together, as the pods of a gang do, is then looked at
together. What is marked later gets its look at once."""

K = TypeVar("K", bound=Hashable)


class DirtyKeys(Generic[K]):
    """Keys that want a look. A mark on a key that is being worked on leads to one more look, however many there were.

    A look comes at once; the one that a mark during it leads to, a moment after it.

    Nothing is given out before `open`, nor after `close`.
    """

    def __init__(self) -> None:
        self._ready: asyncio.Queue[K] = asyncio.Queue()
        self._dirty: set[K] = set()
        self._working: dict[K, float] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._failures: dict[K, int] = {}
        self._opened = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def open(self) -> None:
        """Work may begin."""
        self._opened.set()

    async def close(self) -> None:
        """No more work begins; returns when that in hand is done."""
        self._opened.clear()
        await self._idle.wait()

    def mark(self, key: K) -> None:
        """Wants a look at once."""
        if key in self._dirty:
            return
        self._dirty.add(key)
        if key not in self._working:
            self._offer(key)

    def mark_in(self, key: K, seconds: float) -> None:
        """Wants a look after a while at the latest; of several such wishes the earliest counts."""
        loop = asyncio.get_running_loop()
        when = loop.time() + max(seconds, 0.0)
        known = self._timers.get(key)
        if known is not None:
            if known.when() <= when:
                return
            known.cancel()
        self._timers[key] = loop.call_at(when, self._due, key)

    async def take(self) -> K:
        """The next key to work on; `done` or `failed` gives it back."""
        while True:
            await self._opened.wait()
            key = await self._ready.get()
            if self._opened.is_set():
                break
            self._ready.put_nowait(key)
        self._dirty.discard(key)
        self._working[key] = asyncio.get_running_loop().time()
        self._idle.clear()
        QUEUE_DEPTH.set(self._ready.qsize())
        return key

    def done(self, key: K) -> None:
        """The look went well."""
        self._failures.pop(key, None)
        self._give_back(key)
        if key in self._dirty:
            asyncio.get_running_loop().call_later(PAUSE_SECONDS, self._offer, key)

    def failed(self, key: K, at_least: float = 0.0) -> float:
        """The look failed: another one follows, later with each failure, and not before the server wants it.

        Returns the seconds until then. What happens to the job meanwhile does not shorten them.
        """
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        seconds = backoff(failures, at_least)
        self._dirty.add(key)
        self._give_back(key)
        asyncio.get_running_loop().call_later(seconds, self._offer, key)
        return seconds

    def forget(self, key: K) -> None:
        """No later look at this key is wanted."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def longest_work(self) -> float:
        """For how many seconds the longest look has been going on."""
        now = asyncio.get_running_loop().time()
        return now - min(self._working.values(), default=now)

    def _due(self, key: K) -> None:
        self._timers.pop(key, None)
        self.mark(key)

    def _give_back(self, key: K) -> None:
        self._working.pop(key, None)
        if not self._working:
            self._idle.set()

    def _offer(self, key: K) -> None:
        self._ready.put_nowait(key)
        QUEUE_DEPTH.set(self._ready.qsize())
