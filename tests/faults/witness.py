"""What really exists in a namespace, and everything that ever existed.

Faults cannot affect it: it bypasses the proxy.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import aiohttp
from ddpjob_operator.api.contract import API_VERSION, FINISHED
from ddpjob_operator.engine import KUEUE_API, SCHEDULING_API

from .calls import QUEUED, Place, owner_of, phase_of, place_of

KINDS = {
    "ddpjobs": f"/apis/{API_VERSION}",
    "pods": "/api/v1",
    "services": "/api/v1",
    "networkpolicies": "/apis/networking.k8s.io/v1",
    "workloads": f"/apis/{SCHEDULING_API}",
    "podgroups": f"/apis/{SCHEDULING_API}",
    QUEUED: f"/apis/{KUEUE_API}",
}
"""The API path of each kind."""

Manifest = dict[str, Any]


class NeverError(Exception):
    """Something that was waited for did not happen. The message describes the state instead."""


@dataclass(frozen=True, slots=True)
class Change:
    """The creation, change or deletion of an object."""

    time: float
    kind: str
    what: str
    """ADDED, MODIFIED or DELETED."""
    manifest: Manifest

    @property
    def uid(self) -> str:
        """The uid of the object."""
        return str(self.manifest["metadata"]["uid"])

    @property
    def owner(self) -> str:
        """The uid of the job to which the object belongs."""
        return owner_of(self.manifest)

    @property
    def place(self) -> Place | None:
        """The rank and incarnation, if the object is a pod."""
        return place_of(self.manifest) if self.kind == "pods" else None

    def __str__(self) -> str:
        place = "" if self.place is None else " rank {} incarnation {}".format(*self.place)
        word = f" {phase_of(self.manifest)}" if self.kind == "pods" else ""
        return f"{self.time:9.3f} {self.what} {self.kind}{place}{word}"


@dataclass
class Witness:
    """Watches a namespace."""

    upstream: aiohttp.ClientSession
    namespace: str
    objects: dict[str, dict[str, Manifest]] = field(default_factory=lambda: {kind: {} for kind in KINDS})
    """All objects, by kind and uid."""
    history: list[Change] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._changed = asyncio.Condition()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        for kind in KINDS:
            url = self.url(kind)
            async with self.upstream.get(url) as answer:
                answer.raise_for_status()
                version = (await answer.json())["metadata"]["resourceVersion"]
            self._tasks.append(asyncio.create_task(self._watch(kind, f"{url}?watch=1&resourceVersion={version}")))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def url(self, kind: str, name: str = "") -> str:
        """The API path of a kind, or of one object."""
        plural = kind.partition(".")[0]
        return f"{KINDS[kind]}/namespaces/{self.namespace}/{plural}" + (f"/{name}" if name else "")

    def job(self) -> Manifest:
        """The job; empty if there is none."""
        return max(
            self.objects["ddpjobs"].values(), key=lambda job: int(job["metadata"]["resourceVersion"]), default={}
        )

    def status(self) -> Manifest:
        return dict(self.job().get("status", {}))

    def mark(self) -> str:
        """The final state that the job's metadata contains."""
        annotations: dict[str, str] = self.job().get("metadata", {}).get("annotations", {})
        return annotations.get(FINISHED, "").partition(" ")[0]

    def queued(self) -> Manifest:
        """The job's place in a queue; empty if there is none."""
        return next(iter(self.objects[QUEUED].values()), {})

    def pods(self) -> list[Manifest]:
        return list(self.objects["pods"].values())

    def nothing(self) -> bool:
        """Whether the namespace is empty."""
        return not any(self.objects.values())

    async def until(self, what: str, reached: Callable[["Witness"], bool], seconds: float) -> None:
        """Waits until a condition is true.

        Raises:
            NeverError: It did not become true in time.
        """
        try:
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(lambda: reached(self))
        except TimeoutError:
            raise NeverError(f"not {what} within {seconds:.0f} s; there is:\n{self}") from None

    def __str__(self) -> str:
        pods = [f"pod {place_of(pod)} {phase_of(pod)} {pod['metadata']['name']}" for pod in self.pods()]
        others = [
            f"{kind} {[thing['metadata']['name'] for thing in things.values()]}"
            for kind, things in self.objects.items()
            if kind != "pods"
        ]
        return "\n".join([*pods, *others, json.dumps(self.status())])

    async def _watch(self, kind: str, url: str) -> None:
        async with self.upstream.get(url) as answer:
            while line := await answer.content.readline():
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise NeverError(f"the witness lost sight: {event}")
                await self._note(Change(asyncio.get_running_loop().time(), kind, event["type"], event["object"]))

    async def _note(self, change: Change) -> None:
        async with self._changed:
            self.history.append(change)
            if change.what == "DELETED":
                self.objects[change.kind].pop(change.uid, None)
            else:
                self.objects[change.kind][change.uid] = change.manifest
            self._changed.notify_all()
