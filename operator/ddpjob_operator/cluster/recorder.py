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

Kind = tuple[str, str]
"""The version of an API and a kind of object in it."""
DDPJOB: Kind = (API_VERSION, KIND)
CONFIG_MAP: Kind = ("v1", "ConfigMap")
_Waiting = tuple[ObjectMeta, Kind, Event, datetime]

logger = logging.getLogger(__name__)


class EventRecorder:
    """Writes events in the background, so that no round waits for them or fails because of them.

    Events with the same reason and message about the same job become one event with a count.
    """

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        self._waiting = [asyncio.Queue[_Waiting](WAITING_EVENTS) for _ in range(WRITERS)]
        self._counts: OrderedDict[str, int] = OrderedDict()

    def record(self, seen: ObjectMeta, event: Event, kind: Kind = DDPJOB) -> None:
        """Queues an event about an object, usually a job, to be written soon."""
        try:
            self._waiting[hash(seen.uid) % WRITERS].put_nowait((seen, kind, event, self._api.now()))
        except asyncio.QueueFull:
            EVENTS_LOST.inc()

    async def run(self) -> None:
        """Writes events, forever."""
        await asyncio.gather(*map(self._write_all, self._waiting))

    async def drained(self) -> None:
        """Waits until all queued events are written or abandoned."""
        for waiting in self._waiting:
            await waiting.join()

    async def _write_all(self, waiting: asyncio.Queue[_Waiting]) -> None:
        while True:
            seen, kind, event, time = await waiting.get()
            body = _body(seen, kind, event, time)
            try:
                await self._write(body)
            except (ApiError, FencedError) as error:
                EVENTS_LOST.inc()
                about_seen = about((seen.namespace, seen.name), seen.uid)
                logger.warning("the event %s could not be written: %s", event.reason, error, extra=about_seen)
            finally:
                waiting.task_done()

    async def _write(self, body: Manifest) -> None:
        for again in range(TRIES):
            try:
                await self._write_once(body, perhaps_done=again > 0)
            except ApiError as error:
                if not error.passing or again == TRIES - 1:
                    raise
                await asyncio.sleep(error.retry_after or 0.2 * 2**again)
            else:
                return

    async def _write_once(self, body: Manifest, *, perhaps_done: bool) -> None:
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


def _body(seen: ObjectMeta, kind: Kind, event: Event, time: datetime) -> Manifest:
    """Returns the event's manifest. The name contains a hash of the content, so a second creation is a conflict."""
    message = event.message[:MESSAGE_LENGTH]
    content_hash = hashlib.sha256(f"{seen.uid}/{event.reason}/{message}".encode()).hexdigest()[:16]
    seconds = time.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{seen.name}.{content_hash}", "namespace": seen.namespace},
        "involvedObject": {
            "apiVersion": kind[0],
            "kind": kind[1],
            "name": seen.name,
            "namespace": seen.namespace,
            "uid": seen.uid,
            "resourceVersion": seen.resource_version,
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
