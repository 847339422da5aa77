"""kopf's part: it connects, lists and watches jobs, and tells us of every event, which only makes its job dirty."""

import asyncio
from typing import Any

import kopf
import msgspec

from ddpjob_operator.api.contract import GROUP, VERSION

from .connection import credentials
from .objects import JobObject
from .store import Cache, StoredJob

CHUNK = 500
BACKOFF_SECONDS = (1, 1, 2, 3, *[5] * 20)
"""A watch that finds no API server tries again so often, then ends. Its return may cost as much as the last wait."""


def registry_for(jobs: Cache[JobObject, StoredJob]) -> kopf.OperatorRegistry:
    """A low-level handler alone: it writes nothing to the objects, and every event reaches it.

    What was deleted while a watch was broken it never tells. The job's pods do, which go with it; of a job without
    pods, the next list of all jobs does.
    """
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry)(_login)

    @kopf.on.event(GROUP, VERSION, "ddpjobs", registry=registry)
    async def seen(event: kopf.RawEvent, **_: object) -> None:
        job = msgspec.convert(dict(event["object"]), JobObject)
        metadata = job.metadata
        if event["type"] == "DELETED":
            jobs.forget((metadata.namespace, metadata.name), metadata.uid, int(metadata.resource_version))
        else:
            jobs.saw(job)

    return registry


async def watch(registry: kopf.OperatorRegistry, namespaces: list[str], ready: asyncio.Event) -> None:
    """Watches all namespaces, or these, until it is cancelled or something is wrong."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.watching.chunk_size = CHUNK
    settings.persistence.diffbase_storage = _NothingToCompare()
    settings.networking.error_backoffs = BACKOFF_SECONDS
    await kopf.operator(
        registry=registry,
        settings=settings,
        standalone=True,
        clusterwide=not namespaces,
        namespaces=namespaces,
        ready_flag=ready,
    )


class _NothingToCompare(kopf.DiffBaseStorage):
    """kopf copies each object several times for each event, to tell handlers what has changed. We have none."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> kopf.BodyEssence | None:
        return None

    def store(self, **_: Any) -> None:
        pass


def _login(**_: object) -> kopf.ConnectionInfo:
    return credentials()
