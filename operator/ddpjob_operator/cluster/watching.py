"""kopf's part: it connects, lists and watches, and tells us of every event. An event only makes its job dirty."""

import asyncio
from collections.abc import Callable
from typing import Any

import kopf

from ddpjob_operator.api.contract import GROUP, MANAGER, VERSION, Label
from ddpjob_operator.engine import Manifest

from .connection import credentials
from .dirty import DirtyKeys
from .observing import ref_of
from .store import Cache, Key, Store, job_of

OURS = f"{Label.MANAGED_BY}={MANAGER}"
"""Selects what operators of this kind have made; the server sends nothing else."""

CHUNK = 500
BACKOFF_SECONDS = (1, 1, 2, 3, *[5] * 20)
"""A watch that finds no API server tries again so often, then ends. Its return may cost as much as the last wait."""


def registry_for(store: Store, dirty: DirtyKeys[Key], relisted: asyncio.Event) -> kopf.OperatorRegistry:
    """Low-level handlers alone: they write nothing to the objects, and every event reaches them.

    `relisted` is set when kopf has listed anew what it watches: what was deleted in between it never tells.
    """
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry)(_login)

    def follow(cache: Cache[Any], key_of: Callable[[Manifest], Key | None], *what: str) -> None:
        @kopf.on.event(*what, registry=registry)
        async def seen(event: kopf.RawEvent, **_: object) -> None:
            manifest: Manifest = dict(event["object"])
            if event["type"] is None:
                relisted.set()
            if event["type"] == "DELETED":
                ref = ref_of(manifest)
                cache.forget((ref.namespace, ref.name), ref.uid, ref.version)
            elif not cache.saw(manifest):
                return
            key = key_of(manifest)
            if key is not None:
                dirty.mark(key)

    follow(store.jobs, _name_of, GROUP, VERSION, "ddpjobs")
    follow(store.pods, job_of, "", "v1", "pods")
    follow(store.services, job_of, "", "v1", "services")
    follow(store.policies, job_of, "networking.k8s.io", "v1", "networkpolicies")
    return registry


async def watch(registry: kopf.OperatorRegistry, namespaces: list[str], ready: asyncio.Event) -> None:
    """Watches all namespaces, or these, until it is cancelled or something is wrong."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.watching.chunk_size = CHUNK
    settings.persistence.diffbase_storage = _NothingToCompare()
    settings.networking.error_backoffs = BACKOFF_SECONDS
    for kind in (("", "v1", "pods"), ("", "v1", "services"), ("networking.k8s.io", "v1", "networkpolicies")):
        settings.watching.label_selectors[kind] = OURS
    await kopf.operator(
        registry=registry,
        settings=settings,
        standalone=True,
        clusterwide=not namespaces,
        namespaces=namespaces,
        ready_flag=ready,
    )


class _NothingToCompare(kopf.DiffBaseStorage):
    """kopf copies every object of every event several times, to tell handlers that we do not have what has changed.

    That was a third of the operator's CPU time.
    """

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> kopf.BodyEssence | None:
        return None

    def store(self, **_: Any) -> None:
        pass


def _login(**_: object) -> kopf.ConnectionInfo:
    return credentials()


def _name_of(manifest: Manifest) -> Key:
    return manifest["metadata"]["namespace"], manifest["metadata"]["name"]
