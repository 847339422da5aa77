"""Keeps track of the namespaces whose jobs this operator runs: all of them, or those that are named or selected.

A named namespace is closed while it does not exist or the operator lacks rights there. Closed namespaces are reported
and checked at intervals, and do not affect the others. To run the jobs of all namespaces, or of those that a label
selector selects, the operator needs rights to the whole cluster and watches all of it. With a selector it ignores
objects in other namespaces, so if a namespace's label changes, only that namespace has to be listed, and no watch is
restarted.
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
CHECK_SECONDS = 5.0
"""The minimum time between two checks of all named namespaces."""
READ_AT_ONCE = 16
"""How many selected namespaces are listed at the same time."""
NAMED_RIGHTS = 2
"""How many of the missing rights a message about a closed namespace names."""

logger = logging.getLogger(__name__)


class Namespaces:
    """The namespaces whose jobs this operator runs."""

    def __init__(
        self,
        api: ApiClient,
        named: list[str],
        selector: str,
        *,
        enter: Callable[[str], Awaitable[None]],
        leave: Callable[[str], None],
    ) -> None:
        """`enter` lists all objects of a namespace whose jobs are run from now on. `leave` forgets a namespace."""
        self._api = api
        self._named = named
        self._enter = enter
        self._leave = leave
        self._served = set(named)
        self._closed: dict[str, str] = {}
        """The closed namespaces, each with the reason. Only named namespaces can be closed."""
        self._check_due = asyncio.Event()
        """Set when the named namespaces should be checked, or the selected namespaces have changed."""
        self._reading = asyncio.Semaphore(READ_AT_ONCE)
        self._watched: list[str] = []
        self._end_watch: Callable[[], None] | None = None
        self._selected: Cache[Object, str] = Cache(_name_of, lambda _: self._check_due.set())
        self._reflector = Reflector(api, NAMESPACES, None, self._selected, labels=selector) if selector else None

    def serves(self, namespace: str) -> bool:
        """Whether the operator runs the jobs of a namespace."""
        return namespace in self._served or not (self._named or self._reflector)

    @property
    def why_not_ready(self) -> str:
        """The reason why the operator is not ready, if all named namespaces are closed; otherwise empty."""
        return "waiting for the namespaces" if self._named and not self._served else ""

    @property
    def problems(self) -> str:
        """A line for each closed namespace, with the reason."""
        return "\n".join(f"namespace {name}: {why}" for name, why in sorted(self._closed.items()))

    def check_soon(self) -> None:
        """Requests a check of all named namespaces soon, because one may have to be closed."""
        self._check_due.set()

    def close(self, name: str, why: str) -> None:
        """Closes a named namespace, because its jobs cannot be run now. `why` is the reason."""
        if name not in self._closed:
            logger.warning("namespace %s: %s; other namespaces are not affected", name, why)
            self._check_due.set()  # This starts the repeated checks of closed namespaces.
        self._closed[name] = why
        self._drop(name)
        NAMESPACE_WATCHED.labels(name).set(0)

    async def begin(self) -> list[str]:
        """Finds the namespaces. Returns the missing rights if the operator cannot run any jobs without them.

        Raises:
            ApiError: the API server does not answer, or cannot handle requests now.
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
            missing, why = await self._check(name)
            lacking += missing
            if why:
                self.close(name, why)
            else:
                await self._open(name)
        return [] if self._served else lacking

    async def choose(self, end: Callable[[], None]) -> list[str]:
        """Returns the namespaces in which to watch jobs (an empty list means all). Waits while all are closed.

        `end` is called to end the watch when the namespaces change.
        """
        if not self._named:
            return []
        if self._end_watch is not None:  # Perhaps the last watch ended because of a closed namespace.
            with contextlib.suppress(ApiError):
                await self._check_all(self._named)
        while not self._served:  # noqa: ASYNC110  An event would not do: an opened namespace may close again.
            await asyncio.sleep(1.0)
        self._watched, self._end_watch = sorted(self._served), end
        return self._watched

    async def run(self) -> None:
        """Keeps track of the namespaces, forever."""
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
                async with asyncio.timeout(CLOSED_SECONDS - CHECK_SECONDS if self._closed else None):
                    await self._check_due.wait()
            except TimeoutError:
                names = [*self._closed]
            self._check_due.clear()
            with contextlib.suppress(ApiError):  # The API server does not answer, so nothing is closed or opened now.
                await self._check_all(names)
            await asyncio.sleep(CHECK_SECONDS)

    async def _follow_selected(self) -> None:
        opening: dict[str, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._check_due.wait()
                self._check_due.clear()
                selected = {name for (_, name), _ in self._selected.all()}
                opening = {name: task for name, task in opening.items() if not task.done()}
                for name in opening.keys() - selected:
                    opening.pop(name).cancel()
                for name in self._served - selected:
                    logger.info("namespace %s is no longer selected; its jobs are left as they are", name)
                    self._drop(name)
                    NAMESPACE_WATCHED.remove(name)
                for name in selected - self._served - opening.keys():
                    opening[name] = tasks.create_task(self._open_with_retries(name), name=f"opening {name}")

    async def _open_with_retries(self, name: str) -> None:
        """Opens a namespace, with as many retries as it takes. Other namespaces do not wait for it."""
        for failures in count(1):
            try:
                async with self._reading:
                    await self._open(name)
            except ApiError as error:
                logger.warning("namespace %s: %s", name, error)
                await asyncio.sleep(backoff(failures, error.retry_after))
            else:
                return

    async def _check_all(self, names: list[str]) -> None:
        for name in names:
            _, why = await self._check(name)
            if why:
                self.close(name, why)
            elif name in self._closed:
                try:
                    await self._open(name)
                except ApiError as error:
                    self.close(name, str(error))

    async def _check(self, name: str) -> tuple[list[str], str]:
        """Returns the rights that the operator lacks in a namespace, and the reason to close it (empty if none)."""
        missing, may_see = await rights.missing_in(self._api, name)
        if missing:
            more = f", and {len(missing) - NAMED_RIGHTS} more" if len(missing) > NAMED_RIGHTS else ""
            actions = "; ".join(missing[:NAMED_RIGHTS])
            return missing, f"the operator is not allowed to {actions}{more}. Was the namespace deleted?"
        if may_see and await self._api.get(NAMESPACES, None, name) is None:
            return [], "it does not exist"
        return [], ""

    async def _open(self, name: str) -> None:
        # This comes first, because the store ignores objects of a namespace that is not served.
        self._served.add(name)
        try:
            await self._enter(name)
        except ApiError:
            self._drop(name)
            raise
        if name not in self._served:  # It was closed in the meantime.
            return
        if self._closed.pop(name, ""):
            logger.info("namespace %s can be used again", name)
        NAMESPACE_WATCHED.labels(name).set(1)
        if self._end_watch is not None and name not in self._watched:
            with contextlib.suppress(RuntimeError):  # The watch has already ended and its event loop is closed.
                self._end_watch()

    def _drop(self, name: str) -> None:
        self._served.discard(name)
        self._leave(name)


def _name_of(namespace: Object) -> str:
    return namespace.metadata.name
