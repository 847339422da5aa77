"""Requests to the API server and events of its watches, with names that people use for them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ddpjob_operator.api.contract import Label

VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
WRITES = frozenset(VERBS.values())
EVENT = "event"
QUEUED = "workloads.kueue.x-k8s.io"
"""Kueue's Workloads. (Those of Kubernetes' own scheduler have the same plural.)"""
REVIEWS = frozenset({"selfsubjectaccessreviews", "selfsubjectrulesreviews"})
"""Resources whose creation is a query about rights."""

Place = tuple[int, int]
"""A pod's rank and incarnation."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request, or one event of a watch."""

    verb: str
    """get, list, watch, create, update, patch or delete; `event` for an event of a watch."""
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    place: Place | None = None
    """The rank and incarnation of a pod."""
    word: str = ""
    """The content of a status, the reason of a Kubernetes event, or what has happened to the object of a watch
    event."""
    uid: str = ""
    """The uid of the object, or of the owner of an object that is created; empty if the request does not contain
    it."""

    @property
    def writes(self) -> bool:
        """Whether the request is to change an object of a job."""
        return self.verb in WRITES and self.resource not in {*REVIEWS, "leases"}

    def __str__(self) -> str:
        what = "/".join(part for part in (self.resource, self.subresource) if part)
        pod = "" if self.place is None else "rank {} incarnation {}".format(*self.place)
        return " ".join(part for part in (self.verb, what, pod, self.word) if part)


@dataclass
class Namer:
    """Names requests and events, and remembers the names of pods."""

    places: dict[str, Place] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)

    def request(self, method: str, path: str, query: Mapping[str, str], body: bytes) -> Call:
        """The call for a request."""
        resource, namespace, name, subresource = _parts(path)
        document = json.loads(body) if body else {}
        verb = VERBS.get(method) or _reading(name, query)
        place = self._place(document) if resource == "pods" and verb == "create" else self.places.get(name)
        return Call(
            verb,
            resource,
            subresource,
            namespace,
            name or _of(document, "name"),
            place if resource == "pods" else None,
            _word(resource, subresource, document),
            _uid(verb, document),
        )

    def told(self, resource: str, event: dict[str, Any]) -> Call:
        """The call for an event of a watch."""
        manifest = event["object"]
        if "metadata" not in manifest or event["type"] in {"BOOKMARK", "ERROR"}:
            return Call(EVENT, resource, word=event["type"].lower())
        metadata = manifest["metadata"]
        place = self._place(manifest) if resource == "pods" else None
        word = self._became(resource, event["type"], manifest)
        return Call(
            EVENT, resource, "", metadata["namespace"], metadata["name"], place, word, metadata.get("uid", "")
        )

    def _place(self, manifest: dict[str, Any]) -> Place | None:
        place = place_of(manifest)
        if place is not None:
            self.places[manifest["metadata"]["name"]] = place
        return place

    def _became(self, resource: str, kind: str, manifest: dict[str, Any]) -> str:
        if kind == "DELETED":
            return "gone"
        if resource == "pods":
            return phase_of(manifest)
        uid, generation = manifest["metadata"]["uid"], manifest["metadata"].get("generation", 1)
        known = self.generations.get(uid, 0)
        self.generations[uid] = max(known, generation)
        return f"changed-{generation}" if generation > known else "seen"


def place_of(manifest: dict[str, Any]) -> Place | None:
    """A pod's rank and incarnation, from its labels."""
    labels = manifest["metadata"].get("labels", {})
    if Label.NODE not in labels or Label.INCARNATION not in labels:
        return None
    return int(labels[Label.NODE]), int(labels[Label.INCARNATION])


def phase_of(pod: dict[str, Any]) -> str:
    """The phase of a pod, in one word."""
    if "deletionTimestamp" in pod["metadata"]:
        return "ending"
    phase = pod.get("status", {}).get("phase", "Pending")
    if phase == "Pending":
        return "placed" if pod["spec"].get("nodeName") else "made"
    return {"Running": "runs", "Succeeded": "succeeded", "Failed": "failed"}.get(phase, phase)


def owner_of(manifest: dict[str, Any]) -> str:
    """The uid of an object's owner."""
    owners = manifest["metadata"].get("ownerReferences", ())
    return next((owner["uid"] for owner in owners if owner.get("controller")), "")


def _parts(path: str) -> tuple[str, str, str, str]:
    """The resource, namespace, name and subresource of a path. For paths such as `/api`, the resource is the path."""
    parts = path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    if not rest:
        return path, "", "", ""
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    resource, name, subresource = (*rest, "", "")[:3]
    queued = parts[1] == QUEUED.partition(".")[2] and resource == QUEUED.partition(".")[0]
    return QUEUED if queued else resource, namespace, name, subresource


def _reading(name: str, query: Mapping[str, str]) -> str:
    if query.get("watch") in {"true", "1"}:
        return "watch"
    return "get" if name else "list"


def _of(document: Any, key: str) -> str:
    return str(document.get("metadata", {}).get(key, "")) if isinstance(document, dict) else ""


def _word(resource: str, subresource: str, document: Any) -> str:
    if resource == "events":
        return str(document.get("reason", "again"))
    if subresource == "status":
        return _told(_status(document)) if resource == QUEUED else _said(_status(document))
    return ""


def _status(patch: Any) -> dict[str, Any]:
    if isinstance(patch, dict):
        return dict(patch.get("status", {}))
    return next((dict(one["value"]) for one in patch if one["path"] == "/status"), {})


def _said(status: dict[str, Any]) -> str:
    """The content of a status, such as `attempt-2-Running-created`, where `created` means that all pods exist."""
    created = any(one["type"] == "Created" and one["status"] == "True" for one in status.get("conditions", ()))
    return f"attempt-{status.get('attempt', 0)}-{status.get('state', '')}" + ("-created" if created else "")


def condition_of(status: Mapping[str, Any], kind: str) -> str:
    """The status of a condition; empty if there is no such condition."""
    return next((str(one["status"]) for one in status.get("conditions", ()) if one["type"] == kind), "")


def _told(status: dict[str, Any]) -> str:
    """What a status tells a queue: `Finished`, `PodsReady`, or that its quota is `free`."""
    if condition_of(status, "QuotaReserved") == "False":
        return "free"
    return next((kind for kind in ("Finished", "PodsReady") if condition_of(status, kind) == "True"), "")


def _uid(verb: str, document: Any) -> str:
    if verb == "create":
        involved = document.get("involvedObject", {}).get("uid")
        return str(involved or owner_of(document)) if "metadata" in document else ""
    if verb == "delete":
        return str(document.get("preconditions", {}).get("uid", ""))
    return _of(document, "uid")
