"""What there is of one kind besides jobs: listed, then watched from there on, for ever.

After whatever has broken a watch, it goes on where it stopped; where it cannot, everything is listed anew: nothing is
missed in between. kopf does as much for jobs, but costs several times the time, and what went while its watch was
broken it never tells.
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
from .kube.objects import Object
from .store import Cache, in_namespace

OURS = f"{Label.MANAGED_BY}={MANAGER}"
"""Selects what operators of this kind have made; the server sends nothing else."""

LONGEST_PAUSE_SECONDS = 5.0
"""The return of an API server may cost so much and half as much again; more only where the server wants it."""

UNWANTED_SECONDS = 1.0
"""What is not wanted looks so often whether it is again."""

O = TypeVar("O", bound=Object)  # noqa: E741  As in the store.
T = TypeVar("T")

logger = logging.getLogger(__name__)


class Reflector(Generic[O, T]):
    """Keeps what is known of one kind, in one namespace or in all, as it is."""

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
        """Selects by labels. While it is not wanted it asks nothing anew; `refused` is told that it may not."""
        self._api = api
        self._resource = resource
        self._namespace = namespace
        self._cache = cache
        self._labels = labels
        self._wanted = wanted
        self._refused = refused
        self._version: int | None = None
        """All that happened up to this is known; None: who knows."""

    def __str__(self) -> str:
        return f"{self._resource.plural} in {self._namespace or 'all namespaces'}"

    async def list(self) -> None:
        """Reads all of it; what is not there any more is forgotten.

        Raises:
            ApiError: it cannot be read now.
        """
        objects, version = await self._api.list(self._resource, self._namespace, self._labels)
        await self._cache.listed(objects, version, in_namespace(self._namespace))
        self._version = version

    async def run(self) -> None:
        """Follows it, for ever."""
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
                if isinstance(error, StuckError) or not error.passing:  # As a rule, it is too long ago.
                    self._version = None
            # Where nothing happens, that it lasted is all that there is to see.
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

    def _take(self, kind: str, seen: O) -> None:
        metadata = seen.metadata
        version = int(metadata.resource_version)
        if kind == "DELETED":
            self._cache.forget((metadata.namespace, metadata.name), metadata.uid, version)
        elif kind != "BOOKMARK":
            self._cache.saw(seen)
        self._version = version
