"""Records what happens to a job as Kubernetes events, which `kubectl describe` shows."""

import asyncio
import hashlib
import logging
from collections import OrderedDict
from datetime import datetime
from http import HTTPStatus

from ddpjob_operator.api.contract import API_VERSION, KIND, MANAGER
from ddpjob_operator.engine import Event, Manifest

from .kube.api_client import EVENTS, ApiClient, ApiError, FencedError
from .kube.objects import ObjectMeta
from .serve.log import about
from .serve.metrics import EVENTS_LOST

WRITERS = 8
"""How many tasks write events. All events of a job go to the same task, so that they stay in order. A single task
would be too slow if the API server is slow."""
WAITING_EVENTS = 250
"""How many events may wait for each task. Further events are dropped."""
REMEMBERED_EVENTS = 1000
"""The number of events whose counts are kept in memory. An event that repeats usually does so soon. Other counts are
read from the API server, which takes up to two more requests."""
TRIES = 4
MESSAGE_LENGTH = 1024

logger = logging.getLogger(__name__)


class EventRecorder:
    """Writes events in the background, so that no round waits for them or fails because of them.

    Events with the same reason and message about the same job become one event with a count.
    """

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        self._waiting = [asyncio.Queue[tuple[ObjectMeta, Event, datetime]](WAITING_EVENTS) for _ in range(WRITERS)]
        self._counts: OrderedDict[str, int] = OrderedDict()

    def record(self, job: ObjectMeta, event: Event) -> None:
        """Queues an event to be written soon."""
        try:
            self._waiting[hash(job.uid) % WRITERS].put_nowait((job, event, self._api.now()))
        except asyncio.QueueFull:
            EVENTS_LOST.inc()

    async def run(self) -> None:
        """Writes events, forever."""
        await asyncio.gather(*map(self._write_all, self._waiting))

    async def drained(self) -> None:
        """Waits until all queued events are written or abandoned."""
        for waiting in self._waiting:
            await waiting.join()

    async def _write_all(self, waiting: asyncio.Queue[tuple[ObjectMeta, Event, datetime]]) -> None:
        while True:
            job, event, time = await waiting.get()
            try:
                await self._write(job, event, time)
            except (ApiError, FencedError) as error:
                EVENTS_LOST.inc()
                about_job = about((job.namespace, job.name), job.uid)
                logger.warning("the event %s could not be written: %s", event.reason, error, extra=about_job)
            finally:
                waiting.task_done()

    async def _write(self, job: ObjectMeta, event: Event, time: datetime) -> None:
        for again in range(TRIES):
            try:
                await self._write_once(job, event, time, perhaps_done=again > 0)
            except ApiError as error:
                if not error.passing or again == TRIES - 1:
                    raise
                await asyncio.sleep(error.retry_after or 0.2 * 2**again)
            else:
                return

    async def _write_once(self, job: ObjectMeta, event: Event, time: datetime, *, perhaps_done: bool) -> None:
        body = _body(job, event, time)
        name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
        count = self._counts.get(name, 0)
        if count == 0:
            try:
                await self._api.create(EVENTS, namespace, body)
            except ApiError as error:
                if error.status != HTTPStatus.CONFLICT:
                    raise
                there = await self._api.merge(EVENTS, namespace, name, {"lastTimestamp": body["lastTimestamp"]})
                # The event exists: a former operator process created it, or this process did, but got no answer.
                count = 0 if perhaps_done and there.count == 1 else there.count
        if count:
            self._remember(name, count)  # If the request fails, the retry writes the same count.
            patch = {"count": count + 1, "lastTimestamp": body["lastTimestamp"]}
            try:
                await self._api.merge(EVENTS, namespace, name, patch)
            except ApiError as error:
                if error.status != HTTPStatus.NOT_FOUND:
                    raise
                await self._api.create(EVENTS, namespace, body)  # The event has expired.
                count = 0
        self._remember(name, count + 1)

    def _remember(self, name: str, count: int) -> None:
        self._counts[name] = count
        self._counts.move_to_end(name)
        if len(self._counts) > REMEMBERED_EVENTS:
            self._counts.popitem(last=False)


def _body(job: ObjectMeta, event: Event, time: datetime) -> Manifest:
    """Returns the event's manifest. The name contains a hash of the content, so a second creation is a conflict."""
    message = event.message[:MESSAGE_LENGTH]
    content_hash = hashlib.sha256(f"{job.uid}/{event.reason}/{message}".encode()).hexdigest()[:16]
    seconds = time.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{job.name}.{content_hash}", "namespace": job.namespace},
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": job.name,
            "namespace": job.namespace,
            "uid": job.uid,
            "resourceVersion": job.resource_version,
        },
        "type": "Warning" if event.warning else "Normal",
        "reason": event.reason,
        "message": message,
        "source": {"component": MANAGER},
        "reportingComponent": MANAGER,
        "firstTimestamp": seconds,
        "lastTimestamp": seconds,
        "count": 1,
    }
