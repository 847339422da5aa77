"""Watches jobs with kopf, which connects, lists and watches, and reports every event to the store.

kopf ends when an API server does something unexpected, such as sending half a line, and then cancels every later task
in its event loop. So kopf runs in its own thread and event loop, and is restarted there while the rest of the
operator keeps running.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any

import kopf

from ddpjob_operator.api.contract import GROUP, VERSION

from .kube.backoff import backoff
from .kube.connection import credentials
from .kube.objects import JobObject, read
from .store import Cache, StoredJob

CHUNK = 20
"""How many jobs kopf lists per page. kopf decodes a whole page into dictionaries, and one job may have more than a
megabyte of JSON."""
IDLE_SECONDS = 0.1
"""How long kopf keeps a job's task after its last event. Until then the task holds that event in memory."""
BACKOFF_SECONDS = (1, 1, 2, 3, *[5] * 20)
"""The waits between kopf's retries if it cannot reach the API server. After the last retry the watch ends. No wait is
longer than 5 s, because when the server is back, the watch may first have to finish a wait."""
LONGEST_PAUSE_SECONDS = 5.0
"""The longest wait before kopf is restarted."""

Choose = Callable[[Callable[[], None]], Coroutine[Any, Any, list[str]]]
"""Returns the namespaces to watch; an empty list means all. The argument is a function that ends the watch, to be
called when the namespaces change, so that the next watch begins with a new choice."""

logger = logging.getLogger(__name__)


class UninstalledError(Exception):
    """The cluster no longer serves DDPJobs, so there is nothing to watch."""


class _LoopClosedError(Exception):
    """The operator's main event loop is closed, so nobody receives the events."""


async def watch(jobs: Cache[JobObject, StoredJob], choose: Choose) -> None:
    """Watches jobs in all namespaces, or in those that `choose` returns, until it is cancelled.

    kopf never reports that a job was deleted while the watch was broken. The deletion is noticed when the job's pods
    are deleted or, for a job without pods, in the next list of all jobs.

    Raises:
        UninstalledError: the cluster no longer serves DDPJobs.
    """
    loop, uninstalled = asyncio.get_running_loop(), asyncio.Event()

    def in_operator_loop(call: Callable[..., None], *words: object) -> None:
        with contextlib.suppress(RuntimeError):  # The event loop is closed because this process is about to end.
            loop.call_soon_threadsafe(call, *words)

    async def choose_in_operator_loop(end: Callable[[], None]) -> list[str]:
        if loop.is_closed():
            raise _LoopClosedError
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(choose(end), loop))

    def watch_in_thread() -> None:
        registry = _registry(
            lambda event: in_operator_loop(_update, jobs, event["type"], read(event["object"], JobObject))
        )
        _watch(registry, choose_in_operator_loop)
        in_operator_loop(uninstalled.set)

    threading.Thread(target=watch_in_thread, daemon=True, name="kopf").start()
    await uninstalled.wait()
    raise UninstalledError("404: the cluster no longer serves DDPJobs; was the CRD removed?")


def _update(jobs: Cache[JobObject, StoredJob], kind: str | None, job: JobObject) -> None:
    metadata = job.metadata
    if kind == "DELETED":
        jobs.forget((metadata.namespace, metadata.name), metadata.uid, int(metadata.resource_version))
    else:
        jobs.update(job)


def _watch(registry: kopf.OperatorRegistry, choose: Choose) -> None:
    """Runs kopf, and restarts it whenever it ends, until the cluster no longer serves DDPJobs."""
    failures = 0
    while True:
        began = time.monotonic()
        try:
            asyncio.run(_operator(registry, choose))
        except _LoopClosedError:
            return
        except Exception as error:  # noqa: BLE001  After any error the watch must restart, or no new job is noticed.
            if getattr(error, "status", None) == HTTPStatus.NOT_FOUND:  # kopf's error classes are private.
                return
            logger.warning("watching ddpjobs: %s", error)
        lasted = time.monotonic() - began > LONGEST_PAUSE_SECONDS
        failures = 1 if lasted else failures + 1
        time.sleep(backoff(failures, longest=LONGEST_PAUSE_SECONDS))


async def _operator(registry: kopf.OperatorRegistry, choose: Choose) -> None:
    loop, end = asyncio.get_running_loop(), asyncio.Event()

    def end_watch() -> None:
        loop.call_soon_threadsafe(end.set)

    namespaces = await choose(end_watch)
    settings = kopf.OperatorSettings()
    # kopf would write its own events even while this replica does not lead. Scanning needs rights to CRDs and
    # namespaces.
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.watching.chunk_size = CHUNK
    settings.queueing.idle_timeout = IDLE_SECONDS
    settings.persistence.diffbase_storage = _NothingToCompare()
    settings.persistence.progress_storage = _NothingToKeep()
    settings.networking.error_backoffs = BACKOFF_SECONDS
    await kopf.operator(
        registry=registry,
        settings=settings,
        # This disables kopf's peering, because the Lease elects the leader, and standbys must watch jobs too.
        standalone=True,
        stop_flag=end,
        clusterwide=not namespaces,
        namespaces=namespaces,
    )


def _registry(receive: Callable[[kopf.RawEvent], None]) -> kopf.OperatorRegistry:
    """Returns a registry with one low-level handler, which receives every event. kopf then writes to no object."""
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry)(lambda **_: credentials())

    @kopf.on.event(GROUP, VERSION, "ddpjobs", registry=registry)
    async def seen(event: kopf.RawEvent, **_: object) -> None:
        receive(event)

    return registry


class _NothingToCompare(kopf.DiffBaseStorage):
    """Keeps kopf from copying each object several times per event to compute differences, which no handler needs."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> kopf.BodyEssence | None:
        return None

    def store(self, **_: Any) -> None:
        pass


class _NothingToKeep(kopf.ProgressStorage):
    """Keeps kopf from searching each object for the progress of handlers, which is never stored."""

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        pass

    def purge(self, **_: Any) -> None:
        pass

    def touch(self, **_: Any) -> None:
        pass

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        return essence
