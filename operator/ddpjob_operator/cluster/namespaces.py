"""Which namespaces this operator looks after, while they come, go, and are closed to it.

These are all namespaces, or the named ones, or those that a label selector selects. A named one that is missing, or
in which the operator lacks rights, is reported and checked again and again; the others are not affected. With all or
selected namespaces the whole cluster is watched, which needs rights there, and objects in other namespaces are
ignored: a changed label costs a list of one namespace, and no watch is restarted.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from itertools import count

from .kube import rights
from .kube.api_client import NAMESPACES, ApiClient, ApiError
from .kube.backoff import backoff
from .kube.objects import Object
from .reflector import Reflector
from .serve.metrics import NAMESPACE_WATCHED
from .store import Cache

CLOSED_SECONDS = 10.0
"""How often a closed namespace is checked."""
DOUBT_SECONDS = 5.0
"""The least time between two checks of all named ones."""
READ_AT_ONCE = 16
"""How many selected ones are read at the same time."""
NAMED_RIGHTS = 2
"""How many of the missing rights are named for a closed namespace."""

logger = logging.getLogger(__name__)


class Namespaces:
    """The namespaces that this operator looks after."""

    def __init__(
        self,
        api: ApiClient,
        named: list[str],
        selector: str,
        *,
        enter: Callable[[str], Awaitable[None]],
        leave: Callable[[str], None],
    ) -> None:
        """`enter` reads everything in a namespace that is looked after from now on; `leave` forgets it."""
        self._api = api
        self._named = named
        self._enter = enter
        self._leave = leave
        self._served = set(named)
        self._closed: dict[str, str] = {}
        """Why named ones are closed."""
        self._doubt = asyncio.Event()
        """Something has changed."""
        self._reading = asyncio.Semaphore(READ_AT_ONCE)
        self._watched: list[str] = []
        self._end_watch: Callable[[], None] | None = None
        self._selected: Cache[Object, str] = Cache(_name_of, lambda _: self._doubt.set())
        self._reflector = Reflector(api, NAMESPACES, None, self._selected, labels=selector) if selector else None

    def serves(self, namespace: str) -> bool:
        """Whether its jobs are looked after."""
        return namespace in self._served or not (self._named or self._reflector)

    @property
    def wrong(self) -> str:
        """What is wrong if nothing can be looked after; otherwise empty."""
        return "waiting for the namespaces" if self._named and not self._served else ""

    @property
    def beside(self) -> str:
        """The namespaces that are closed, each with the reason."""
        return "\n".join(f"namespace {name}: {why}" for name, why in sorted(self._closed.items()))

    def doubt(self) -> None:
        """Has all of them checked soon: one may be closed by now."""
        self._doubt.set()

    def close(self, name: str, why: str) -> None:
        """A namespace cannot be looked after now."""
        if name not in self._closed:
            logger.warning("namespace %s: %s; the others go on", name, why)
            self._doubt.set()  # From now on it is checked again and again.
        self._closed[name] = why
        self._drop(name)
        NAMESPACE_WATCHED.labels(name).set(0)

    async def begin(self) -> list[str]:
        """Finds out which there are. Returns the missing rights, if without them there is nothing to look after.

        Raises:
            ApiError: that cannot be determined now.
        """
        if not self._named:
            lacking = await rights.missing_everywhere(self._api, selecting=self._reflector is not None)
            if self._reflector is not None and not lacking:
                await self._reflector.list()
                for (_, name), _ in self._selected.all():
                    await self._open(name)
            return lacking
        lacking = []
        for name in self._named:
            missing, why = await self._look(name)
            lacking += missing
            if why:
                self.close(name, why)
            else:
                await self._open(name)
        return [] if self._served else lacking

    async def choose(self, end: Callable[[], None]) -> list[str]:
        """The namespaces in which a watch of jobs should begin, none for all; `end` ends it when others are due.

        The last one may have ended because a namespace is closed by now.
        """
        if not self._named:
            return []
        if self._end_watch is not None:
            with contextlib.suppress(ApiError):
                await self._look_at(self._named)
        while not self._served:  # noqa: ASYNC110  What opens one may be undone before this goes on.
            await asyncio.sleep(1.0)
        self._watched, self._end_watch = sorted(self._served), end
        return self._watched

    async def run(self) -> None:
        """Follows what happens to them, forever."""
        if self._reflector is not None:
            await asyncio.gather(self._reflector.run(), self._follow_selected())
        elif self._named:
            await self._follow_named()
        else:
            await asyncio.Event().wait()

    async def _follow_named(self) -> None:
        while True:
            names = self._named
            try:
                async with asyncio.timeout(CLOSED_SECONDS - DOUBT_SECONDS if self._closed else None):
                    await self._doubt.wait()
            except TimeoutError:
                names = [*self._closed]
            self._doubt.clear()
            with contextlib.suppress(ApiError):  # The server does not answer: nothing is known about any of them.
                await self._look_at(names)
            await asyncio.sleep(DOUBT_SECONDS)

    async def _follow_selected(self) -> None:
        opening: dict[str, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._doubt.wait()
                self._doubt.clear()
                selected = {name for (_, name), _ in self._selected.all()}
                opening = {name: task for name, task in opening.items() if not task.done()}
                for name in opening.keys() - selected:
                    opening.pop(name).cancel()
                for name in self._served - selected:
                    logger.info("namespace %s is not selected any more; its jobs are left as they are", name)
                    self._drop(name)
                    NAMESPACE_WATCHED.remove(name)
                for name in selected - self._served - opening.keys():
                    opening[name] = tasks.create_task(self._open_in_the_end(name), name=f"opening {name}")

    async def _open_in_the_end(self, name: str) -> None:
        """Opens a namespace, however many tries it takes. Only this one waits, the others do not."""
        for failures in count(1):
            try:
                async with self._reading:
                    await self._open(name)
            except ApiError as error:
                logger.warning("namespace %s: %s", name, error)
                await asyncio.sleep(backoff(failures, error.retry_after))
            else:
                return

    async def _look_at(self, names: list[str]) -> None:
        for name in names:
            _, why = await self._look(name)
            if why:
                self.close(name, why)
            elif name in self._closed:
                try:
                    await self._open(name)
                except ApiError as error:
                    self.close(name, str(error))

    async def _look(self, name: str) -> tuple[list[str], str]:
        """Which rights we lack there, and why it is closed; an empty reason if none."""
        missing, may_see = await rights.missing_in(self._api, name)
        if missing:
            more = f", and {len(missing) - NAMED_RIGHTS} more" if len(missing) > NAMED_RIGHTS else ""
            return missing, f"the operator may not {'; '.join(missing[:NAMED_RIGHTS])}{more}. Was it deleted?"
        if may_see and await self._api.get(NAMESPACES, None, name) is None:
            return [], "it does not exist"
        return [], ""

    async def _open(self, name: str) -> None:
        # First, since the store takes in nothing of a namespace that is not served.
        self._served.add(name)
        try:
            await self._enter(name)
        except ApiError:
            self._drop(name)
            raise
        if name not in self._served:  # It was closed meanwhile.
            return
        if self._closed.pop(name, ""):
            logger.info("namespace %s is there again", name)
        NAMESPACE_WATCHED.labels(name).set(1)
        if self._end_watch is not None and name not in self._watched:
            with contextlib.suppress(RuntimeError):  # It has ended by itself, and its loop is closed.
                self._end_watch()

    def _drop(self, name: str) -> None:
        self._served.discard(name)
        self._leave(name)


def _name_of(namespace: Object) -> str:
    return namespace.metadata.name
