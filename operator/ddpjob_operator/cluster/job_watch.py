"""kopf's part: it connects, lists and watches jobs, and reports every event, which only queues its job.

It ends when an API server does something unexpected, such as sending half a line, and then cancels everything that
was started in its loop since. So it has a thread and a loop of its own, and starts again there; our own work goes on.
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
"""kopf decodes a page as a whole, into dictionaries, and a job may have more than a megabyte."""
IDLE_SECONDS = 0.1
"""kopf keeps a task for each job, and in it the last event as a dictionary, until nothing has come for this long."""
BACKOFF_SECONDS = (1, 1, 2, 3, *[5] * 20)
"""A watch that finds no API server tries again after these waits, then ends. Once the server is back, the
watch may still wait out the last of them."""
LONGEST_PAUSE_SECONDS = 5.0
"""Before kopf starts again."""

Choose = Callable[[Callable[[], None]], Coroutine[Any, Any, list[str]]]
"""Chooses the namespaces to watch, none for all. Calling what it is given ends the watch: one with others follows."""

logger = logging.getLogger(__name__)


class UninstalledError(Exception):
    """There is nothing to watch any more."""


class _OverError(Exception):
    """Nobody is listening any more."""


async def watch(jobs: Cache[JobObject, StoredJob], choose: Choose) -> None:
    """Watches jobs in all namespaces, or in those that are chosen, until it is cancelled.

    It never reports what was deleted while a watch was broken. The job's pods show it, which go with the job; for a
    job without pods, the next list of all jobs does.

    Raises:
        UninstalledError: The cluster no longer knows DDPJobs.
    """
    loop, uninstalled = asyncio.get_running_loop(), asyncio.Event()

    def here(call: Callable[..., None], *words: object) -> None:
        with contextlib.suppress(RuntimeError):  # The loop is closed: this process is about to end.
            loop.call_soon_threadsafe(call, *words)

    async def choose_here(end: Callable[[], None]) -> list[str]:
        if loop.is_closed():
            raise _OverError
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(choose(end), loop))

    def watch_in_thread() -> None:
        registry = _registry(lambda event: here(_take, jobs, event["type"], read(event["object"], JobObject)))
        _watch(registry, choose_here)
        here(uninstalled.set)

    threading.Thread(target=watch_in_thread, daemon=True, name="kopf").start()
    await uninstalled.wait()
    raise UninstalledError("404: the cluster has no DDPJobs any more; was their CRD removed?")


def _take(jobs: Cache[JobObject, StoredJob], kind: str | None, job: JobObject) -> None:
    metadata = job.metadata
    if kind == "DELETED":
        jobs.forget((metadata.namespace, metadata.name), metadata.uid, int(metadata.resource_version))
    else:
        jobs.saw(job)


def _watch(registry: kopf.OperatorRegistry, choose: Choose) -> None:
    """Lets kopf watch, again and again, as long as there are DDPJobs to watch."""
    failures = 0
    while True:
        began = time.monotonic()
        try:
            asyncio.run(_operator(registry, choose))
        except _OverError:
            return
        except Exception as error:  # noqa: BLE001  Whatever it was: without a watch no job is seen.
            if getattr(error, "status", None) == HTTPStatus.NOT_FOUND:  # kopf's error classes are private.
                return
            logger.warning("watching ddpjobs: %s", error)
        lasted = time.monotonic() - began > LONGEST_PAUSE_SECONDS
        failures = 1 if lasted else failures + 1
        time.sleep(backoff(failures, longest=LONGEST_PAUSE_SECONDS))


async def _operator(registry: kopf.OperatorRegistry, choose: Choose) -> None:
    loop, end = asyncio.get_running_loop(), asyncio.Event()

    def end_here() -> None:
        loop.call_soon_threadsafe(end.set)

    namespaces = await choose(end_here)
    settings = kopf.OperatorSettings()
    # kopf's own events would get past the fence; scanning takes rights to CRDs and namespaces.
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
        # No peering: the Lease says who leads, and a standby watches jobs, too.
        standalone=True,
        stop_flag=end,
        clusterwide=not namespaces,
        namespaces=namespaces,
    )


def _registry(tell: Callable[[kopf.RawEvent], None]) -> kopf.OperatorRegistry:
    """Only a low-level handler: it writes nothing to the objects, and every event reaches it."""
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry)(lambda **_: credentials())

    @kopf.on.event(GROUP, VERSION, "ddpjobs", registry=registry)
    async def seen(event: kopf.RawEvent, **_: object) -> None:
        tell(event)

    return registry


class _NothingToCompare(kopf.DiffBaseStorage):
    """kopf copies each object several times for each event, to tell handlers what has changed. We have none."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> kopf.BodyEssence | None:
        return None

    def store(self, **_: Any) -> None:
        pass


class _NothingToKeep(kopf.ProgressStorage):
    """kopf searches each object for what its handlers have left in it. Ours leave nothing."""

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
