"""Keeps the objects of one kind up to date in the store, by listing them once and then watching them forever.

A broken watch is resumed at the version where it stopped. If that is not possible, everything is listed again, so
that no change is missed. kopf does the same for jobs, but takes several times the CPU time, and never reports
deletions that happened while its watch was broken.
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
"""The label selector for objects that a DDPJob operator has created. The API server sends no other objects."""

LONGEST_PAUSE_SECONDS = 5.0
"""The longest pause before a watch is resumed, to which up to 50% is added at random. Only the server can demand a
longer pause."""

UNWANTED_SECONDS = 1.0
"""How often a reflector that is not wanted checks whether it is wanted again."""

O = TypeVar("O", bound=Object)  # noqa: E741  The same name as in the store.
T = TypeVar("T")

logger = logging.getLogger(__name__)


class Reflector(Generic[O, T]):
    """Keeps the cache of one kind of object up to date, for one namespace or for all."""

    def __init__(
        self,
        api: ApiClient,
        resource: Resource[O],
        namespace: str | None,
        cache: Cache[O, T],
        *,
        labels: str = OURS,
        fields: str = "",
        wanted: Callable[[], bool] = lambda: True,
        refused: Callable[[], None] = lambda: None,
        listed: Callable[[], None] = lambda: None,
    ) -> None:
        """`labels` and `fields` are selectors. While `wanted` returns False, the reflector makes no requests.

        `refused` is called when the API server forbids the watch, and `listed` after each list.
        """
        self._api = api
        self._resource = resource
        self._namespace = namespace
        self._cache = cache
        self._labels = labels
        self._fields = fields
        self._wanted = wanted
        self._refused = refused
        self._listed = listed
        self._version: int | None = None
        """The resource version up to which the cache contains all changes; None if a list is needed."""

    @property
    def wanted(self) -> bool:
        """Whether these objects are needed now."""
        return self._wanted()

    def __str__(self) -> str:
        return f"{self._resource} in {self._namespace or 'all namespaces'}"

    async def list(self) -> None:
        """Lists all objects into the cache, which forgets those that no longer exist.

        Raises:
            ApiError: the objects cannot be listed now.
        """
        objects, version = await self._api.list(self._resource, self._namespace, self._labels, fields=self._fields)
        await self._cache.update_all(objects, version, in_namespace(self._namespace))
        self._version = version
        self._listed()

    async def run(self) -> None:
        """Lists and watches, forever."""
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
                if isinstance(error, StuckError) or not error.passing:  # Usually the version has become too old.
                    self._version = None
            # A watch that lasted this long has worked, even if it reported no change.
            lasted = clock() - began > LONGEST_PAUSE_SECONDS
            well = self._version is not None and (lasted or self._version != before)
            failures = 1 if well else failures + 1
            await asyncio.sleep(backoff(failures, at_least, LONGEST_PAUSE_SECONDS))

    async def _follow(self) -> None:
        if self._version is None:
            await self.list()
        assert self._version is not None, "a list has one"
        changes = self._api.watch(self._resource, self._namespace, self._labels, self._version, fields=self._fields)
        async with aclosing(changes):
            async for kind, seen in changes:
                self._take(kind, seen)

    def _take(self, kind: str, seen: O | Unreadable) -> None:
        metadata = seen.metadata
        version = int(metadata.resource_version)
        if kind == "DELETED":
            self._cache.forget((metadata.namespace, metadata.name), metadata.uid, version)
        elif kind != "BOOKMARK" and not isinstance(seen, Unreadable):
            self._cache.update(seen)
        self._version = version
