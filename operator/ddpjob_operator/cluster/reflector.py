"""The objects of one kind other than jobs: listed, then watched from there on, forever.

Whatever has broken a watch, it goes on where it stopped; if it cannot, everything is listed again: nothing is missed
in between. kopf does the same for jobs, but takes several times the CPU time, and never tells what was deleted while
its watch was broken.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from http import HTTPStatus
from typing import Generic, TypeVar

from ddpjob_operator.api.contract import MANAGER, Label

from .kube.api_client import ApiClient, ApiError, Resource, StuckError
from .kube.backoff import backoff
from .kube.objects import Object, Unreadable
from .store import Cache, in_namespace

OURS = f"{Label.MANAGED_BY}={MANAGER}"
"""Selects what operators of this kind have created; the server sends nothing else."""

LONGEST_PAUSE_SECONDS = 5.0
"""Once an API server is back, a watch may still wait one and a half times this; longer only if the server asks."""

UNWANTED_SECONDS = 1.0
"""How often an unwanted follower checks whether it is wanted again."""

O = TypeVar("O", bound=Object)  # noqa: E741  As in the store.
T = TypeVar("T")

logger = logging.getLogger(__name__)


class Reflector(Generic[O, T]):
    """Keeps what is known of one kind, in one namespace or in all, up to date."""

    def __init__(
        self,
        api: ApiClient,
        resource: Resource[O],
        namespace: str | None,
        cache: Cache[O, T],
        *,
        labels: str = OURS,
        wanted: Callable[[], bool] = lambda: True,
        refused: Callable[[], None] = lambda: None,
    ) -> None:
        """Selects by labels. While it is not wanted it stops asking; `refused` is called if it may not read."""
        self._api = api
        self._resource = resource
        self._namespace = namespace
        self._cache = cache
        self._labels = labels
        self._wanted = wanted
        self._refused = refused
        self._version: int | None = None
        """Everything that happened up to this version is known; None: unknown."""

    @property
    def wanted(self) -> bool:
        """Whether anybody wants to know."""
        return self._wanted()

    def __str__(self) -> str:
        return f"{self._resource} in {self._namespace or 'all namespaces'}"

    async def list(self) -> None:
        """Reads everything; what no longer exists is forgotten.

        Raises:
            ApiError: it cannot be read now.
        """
        objects, version = await self._api.list(self._resource, self._namespace, self._labels)
        await self._cache.listed(objects, version, in_namespace(self._namespace))
        self._version = version

    async def run(self) -> None:
        """Follows it, forever."""
        failures = 0
        clock = asyncio.get_running_loop().time
        while True:
            if not self._wanted():
                self._version = None
                await asyncio.sleep(UNWANTED_SECONDS)
                continue
            before, at_least, began = self._version, None, clock()
            try:
                await self._follow()
            except ApiError as error:
                logger.warning("watching %s: %s", self, error)
                at_least = error.retry_after
                if error.status == HTTPStatus.FORBIDDEN:
                    self._refused()
                if isinstance(error, StuckError) or not error.passing:  # Usually the version is too old.
                    self._version = None
            # If nothing happens, the only sign of health is that it lasted.
            lasted = clock() - began > LONGEST_PAUSE_SECONDS
            well = self._version is not None and (lasted or self._version != before)
            failures = 1 if well else failures + 1
            await asyncio.sleep(backoff(failures, at_least, LONGEST_PAUSE_SECONDS))

    async def _follow(self) -> None:
        if self._version is None:
            await self.list()
        assert self._version is not None, "a list has one"
        changes = self._api.watch(self._resource, self._namespace, self._labels, self._version)
        async with aclosing(changes):
            async for kind, seen in changes:
                self._take(kind, seen)

    def _take(self, kind: str, seen: O | Unreadable) -> None:
        metadata = seen.metadata
        version = int(metadata.resource_version)
        if kind == "DELETED":
            self._cache.forget((metadata.namespace, metadata.name), metadata.uid, version)
        elif kind != "BOOKMARK" and not isinstance(seen, Unreadable):
            self._cache.saw(seen)
        self._version = version
