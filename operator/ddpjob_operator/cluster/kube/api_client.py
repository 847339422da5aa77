"""The only door to the Kubernetes API: a few verbs on paths, JSON in and out, and errors as the server words them.

Nothing is retried here: the job's next round does again what failed, from what exists by then.
"""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from http import HTTPStatus
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec

from ddpjob_operator.api.contract import API_VERSION
from ddpjob_operator.cluster.serve.metrics import API_REQUESTS, UNREADABLE
from ddpjob_operator.engine import KUEUE_API, Manifest, document_of

from .clock import Reading
from .connection import Check, Connection
from .objects import (
    Change,
    EventObject,
    FlavorObject,
    JobObject,
    NodeObject,
    Object,
    PodObject,
    PriorityClassObject,
    Status,
    Unreadable,
    decoder,
)

PAGE_BYTES = 4 << 20
"""About how large a page of a list is. The API server only counts objects: the last page shows how large they are."""
FIRST_LIMIT, MOST_LIMIT = 20, 500
"""How many objects are asked for if nothing is known about their size, and at most."""
LONGEST_RETRY_AFTER = 60.0
"""A busy server asks us to wait for seconds; a demand for a day comes from something in between."""

WATCH_SECONDS = 300
"""After this long the server ends a watch."""
SILENCE_SECONDS = 90.0
"""If nothing happens the server sends a bookmark each minute: a watch that is silent for longer may be cut off."""

T = TypeVar("T")

logger = logging.getLogger(__name__)


class PageMetadata(msgspec.Struct, rename="camel"):
    """Where the list goes on, and the version at which it is complete."""

    resource_version: str = ""
    rest: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct):
    """A part of a list."""

    metadata: PageMetadata
    items: list[msgspec.Raw]


@dataclass(frozen=True)
class Resource(Generic[T]):
    """A kind of object: where it is served, and what is read of it."""

    path: str
    plural: str
    type: type[T]

    def __str__(self) -> str:
        """Its name as kubectl has it, with the API group: kinds of different groups may have the same plural."""
        group = self.path.removeprefix("/apis/").partition("/")[0]
        return f"{self.plural}.{group}" if self.path.startswith("/apis/") else self.plural

    @cached_property
    def object(self) -> msgspec.json.Decoder[T]:
        """Decodes one object."""
        return decoder(self.type)


DDPJOBS = Resource(f"/apis/{API_VERSION}", "ddpjobs", JobObject)
PODS = Resource("/api/v1", "pods", PodObject)
EVENTS = Resource("/api/v1", "events", EventObject)
NODES = Resource("/api/v1", "nodes", NodeObject)
WHOLE_KUEUE_WORKLOADS = Resource(f"/apis/{KUEUE_API}", "workloads", dict[str, Any])
"""With all that they have: of their status we change a part, and the rest is Kueue's."""
FLAVORS = Resource(f"/apis/{KUEUE_API}", "resourceflavors", FlavorObject)
KUEUE_PRIORITIES = Resource(f"/apis/{KUEUE_API}", "workloadpriorityclasses", PriorityClassObject)
POD_PRIORITIES = Resource("/apis/scheduling.k8s.io/v1", "priorityclasses", PriorityClassObject)
LEASES = Resource("/apis/coordination.k8s.io/v1", "leases", dict[str, Any])
NAMESPACES = Resource("/api/v1", "namespaces", Object)
RULES_REVIEWS = Resource("/apis/authorization.k8s.io/v1", "selfsubjectrulesreviews", dict[str, Any])
TOKEN_REVIEWS = Resource("/apis/authentication.k8s.io/v1", "tokenreviews", dict[str, Any])
SUBJECT_REVIEWS = Resource("/apis/authorization.k8s.io/v1", "subjectaccessreviews", dict[str, Any])
ACCESS_REVIEWS = Resource("/apis/authorization.k8s.io/v1", "selfsubjectaccessreviews", dict[str, Any])

_ENCODER = msgspec.json.Encoder()
_PAGES = msgspec.json.Decoder(Page)
_CHANGES = msgspec.json.Decoder(Change)
_STATUSES = msgspec.json.Decoder(Status)
_OBJECTS = msgspec.json.Decoder(Object)
_ANYTHING = msgspec.json.Decoder(dict[str, Any])


class ApiError(Exception):
    """The API server's refusal, or that it did not answer (status 0)."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        """Its word for programs: `AlreadyExists`, `Forbidden`, `Conflict`."""
        self.message = message
        self.retry_after = retry_after
        """Seconds after which the server wants to be asked again."""

    @property
    def passing(self) -> bool:
        """Whether it says nothing about the request itself: the server was busy, broken or unreachable."""
        # 401: credentials are replaced while we run, and read again each time they are refused.
        busy = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.UNAUTHORIZED)
        return self.status == 0 or self.status >= HTTPStatus.INTERNAL_SERVER_ERROR or self.status in busy


class StuckError(ApiError):
    """A watch has come to a change that it cannot get past, however often it tries: only a list helps."""


class FencedError(Exception):
    """Writing was not allowed: this process does not lead, or no longer leads."""


class ApiClient:
    """Requests to the API server. `may_write` is asked right before any change is sent."""

    def __init__(self, connection: Connection, may_write: Callable[[], bool]) -> None:
        self._connection = connection
        self._may_write = may_write

    def now(self) -> datetime:
        """The time, as the API server has it."""
        return self._connection.clock.now()

    def read_clock(self) -> Reading:
        """The time, and how certain it is."""
        return self._connection.clock.read()

    async def get(self, resource: Resource[T], namespace: str | None, name: str) -> T | None:
        """An object, or None if it does not exist."""
        try:
            content = await self._request("GET", resource, namespace, name)
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise
        return _decoded(resource.object, content)

    async def list(
        self, resource: Resource[T], namespace: str | None, labels: str = "", *, fields: str = ""
    ) -> tuple[list[T | Unreadable], int]:
        """All objects, of one namespace or of all, and the resource version at which the list was complete.

        Selects by labels and by fields.

        One that cannot be read is told by its name: it must not hide the others, nor seem to be gone.
        """
        items: list[T | Unreadable] = []
        # Without a resource version: the present state. With 0, a server may answer from a cache that lags behind.
        query = {"limit": str(FIRST_LIMIT), **_selecting(labels, fields)}
        while True:
            content = await self._request("GET", resource, namespace, query=query)
            page = _decoded(_PAGES, content)
            items += (one for item in page.items if (one := _one_of(resource, item)) is not None)
            if not page.metadata.rest:
                return items, int(page.metadata.resource_version)
            query |= {"continue": page.metadata.rest, "limit": str(_limit(len(content), len(page.items)))}

    async def watch(
        self, resource: Resource[T], namespace: str | None, labels: str, version: int
    ) -> AsyncGenerator[tuple[str, T | Unreadable]]:
        """Each change after a version, with its type, until the server ends the watch.

        Raises:
            StuckError: it came to what is no change of an object, or said that it cannot go on.
            ApiError: it could not begin, or ended in another way; what came before is true.
        """
        query = {
            "watch": "true",
            "resourceVersion": str(version),
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_SECONDS),
            **_selecting(labels),
        }
        try:
            async with self._connection.stream(_path(resource, namespace), SILENCE_SECONDS, query) as response:
                if response.status >= HTTPStatus.BAD_REQUEST:
                    raise _error(response.status, await response.read(), response.headers.get("Retry-After"))
                async for line in _lines(response):
                    change = _change(resource, line)
                    yield change
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _no_answer(error) from error

    async def create(self, resource: Resource[T], namespace: str | None, body: Manifest) -> T:
        """Creates an object and returns it as it is now; fields that the server does not know are errors."""
        content = await self._change("POST", resource, namespace, body=body, query={"fieldValidation": "Strict"})
        return _decoded(resource.object, content)

    async def replace(self, resource: Resource[T], namespace: str, name: str, body: Manifest) -> T:
        """Replaces an object, if it still has the resource version that `body` has."""
        return _decoded(resource.object, await self._change("PUT", resource, namespace, name, body=body))

    async def merge(self, resource: Resource[T], namespace: str, name: str, body: Manifest) -> T:
        """Changes the fields that `body` names."""
        headers = {"Content-Type": "application/merge-patch+json"}
        content = await self._change("PATCH", resource, namespace, name, body=body, headers=headers)
        return _decoded(resource.object, content)

    async def replace_status(
        self, resource: Resource[T], namespace: str, name: str, version: str, status: Manifest
    ) -> T:
        """Replaces the whole status, if the object still has this resource version, which no recreated object has."""
        change = {"op": "add", "path": "/status", "value": status}  # A new job has none to replace.
        return await self.patch(resource, namespace, f"{name}/status", version, [change])

    async def patch(
        self, resource: Resource[T], namespace: str, name: str, version: str, changes: Sequence[Manifest]
    ) -> T:
        """Makes these changes of a JSON patch, if the object still has this resource version."""
        # A wrong version is a conflict (409); a "test" operation that fails is an invalid request (422).
        patch = [{"op": "replace", "path": "/metadata/resourceVersion", "value": version}, *changes]
        headers = {"Content-Type": "application/json-patch+json"}
        content = await self._change("PATCH", resource, namespace, name, body=patch, headers=headers)
        return _decoded(resource.object, content)

    async def delete(
        self, resource: Resource[T], namespace: str, name: str, only_if: dict[str, str], grace: int | None = None
    ) -> T | None:
        """Deletes an object if it still has this uid, or this resource version.

        Returns it as it is while it ends, or None if it is gone: if it was being deleted elsewhere too, the server
        may show what it was, without a version.
        """
        body: Manifest = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": only_if}
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        content = await self._change("DELETE", resource, namespace, name, body=body)
        try:
            left = _decoded(resource.object, content)
        except ApiError:
            if _decoded(_OBJECTS, content).metadata.resource_version:
                raise
            return None  # A Status, whose field `status` is a word.
        return left if isinstance(left, Object) and left.metadata.resource_version else None

    async def served(self, path: str) -> frozenset[str]:
        """The kinds, in the plural, that the server knows of a version of an API group; none if it lacks that."""
        try:
            # By discovery, which everyone may read: to get the CRD would take another right.
            page = _decoded(_ANYTHING, await self._send("GET", path, "discovery"))
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return frozenset()
            raise
        return frozenset(known["name"] for known in page["resources"])

    async def allowed(self, attributes: Manifest) -> bool:
        """Whether we may do what these `resourceAttributes` of a SelfSubjectAccessReview say."""
        status = await self._review(ACCESS_REVIEWS, "SelfSubjectAccessReview", {"resourceAttributes": attributes})
        return bool(status["allowed"])

    async def user_of(self, token: str) -> Manifest | None:
        """Who has a token, as a TokenReview says; None: nobody."""
        status = await self._review(TOKEN_REVIEWS, "TokenReview", {"token": token})
        return status.get("user", {}) if status.get("authenticated") else None

    async def may_get(self, user: Manifest, path: str) -> bool:
        """Whether somebody may get a path that is no resource, as a SubjectAccessReview says."""
        who = {
            "user": user.get("username", ""),
            "uid": user.get("uid", ""),
            "groups": user.get("groups", []),
            "extra": user.get("extra", {}),
        }
        asked = {**who, "nonResourceAttributes": {"path": path, "verb": "get"}}
        return bool((await self._review(SUBJECT_REVIEWS, "SubjectAccessReview", asked))["allowed"])

    async def rules(self, namespace: str) -> tuple[Sequence[Any], bool]:
        """The `resourceRules` of a SelfSubjectRulesReview for a namespace, and whether there may be more of them."""
        status = await self._review(RULES_REVIEWS, "SelfSubjectRulesReview", {"namespace": namespace})
        return status["resourceRules"], status["incomplete"]

    async def _review(self, resource: Resource[dict[str, Any]], kind: str, spec: Manifest) -> Manifest:
        """The server's judgement, as the status of a review."""
        body = {"apiVersion": resource.path.removeprefix("/apis/"), "kind": kind, "spec": spec}
        answer = _decoded(_ANYTHING, await self._request("POST", resource, None, body=body))
        status: Manifest = answer.get("status", {})
        return status

    async def _change(self, *what: Any, **more: Any) -> bytes:
        return await self._request(*what, check=self._fence, **more)

    def _fence(self) -> None:
        if not self._may_write():
            raise FencedError

    async def _request(
        self, method: str, resource: Resource[Any], namespace: str | None, name: str = "", **more: Any
    ) -> bytes:
        return await self._send(method, _path(resource, namespace, name), resource.plural, **more)

    async def _send(
        self,
        method: str,
        path: str,
        plural: str,
        *,
        body: Any = None,
        query: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
        check: Check = lambda: None,
    ) -> bytes:
        data = None if body is None else _ENCODER.encode(body)
        headers = {"Content-Type": "application/json", **(headers or {})}
        try:
            status, content, retry_after = await self._connection.send(
                method, path, data, check, params=query, headers=headers
            )
        except (aiohttp.ClientError, TimeoutError) as error:
            API_REQUESTS.labels(method, plural, "none").inc()
            raise _no_answer(error) from error
        API_REQUESTS.labels(method, plural, str(status)).inc()
        if status >= HTTPStatus.BAD_REQUEST:
            raise _error(status, content, retry_after)
        return content


def _path(resource: Resource[Any], namespace: str | None, name: str = "") -> str:
    scope = f"/namespaces/{quote(namespace)}" if namespace else ""
    return f"{resource.path}{scope}/{resource.plural}" + (f"/{name}" if name else "")


def _limit(size: int, count: int) -> int:
    """How many objects of about this size the next page may have."""
    return max(1, min(MOST_LIMIT, PAGE_BYTES * count // size))


def _selecting(labels: str, fields: str = "") -> dict[str, str]:
    asked = {"labelSelector": labels, "fieldSelector": fields}
    return {name: selector for name, selector in asked.items() if selector}


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Whole lines, however long; one that breaks off is ignored."""
    rest = b""
    async for part in response.content.iter_any():
        *whole, rest = (rest + part).split(b"\n")
        for line in whole:
            yield line


def _change(resource: Resource[T], line: bytes) -> tuple[str, T | Unreadable]:
    try:
        change = _decoded(_CHANGES, line)
        if change.type != "ERROR":
            one = _one_of(resource, change.object)
            return change.type, _decoded(resource.object, change.object) if one is None else one
        said = _decoded(_STATUSES, change.object)
    except ApiError as error:
        raise StuckError(error.status, error.reason, error.message) from error
    raise StuckError(said.code, said.reason, said.message)


def _one_of(resource: Resource[T], item: msgspec.Raw) -> T | Unreadable | None:
    """An object, or which one it is if no more can be read; None if not even that."""
    try:
        return _decoded(resource.object, item)
    except ApiError as error:
        UNREADABLE.labels(resource.plural).inc()
        logger.error("%s: one is set aside: %s", resource.plural, error)  # noqa: TRY400  It is no bug of ours.
    try:
        # By a reader that takes more than msgspec: half a surrogate pair, for one.
        return msgspec.convert(document_of(bytes(item)), Unreadable)
    except msgspec.ValidationError:
        return None


def _decoded(decoder: msgspec.json.Decoder[T], content: bytes | msgspec.Raw) -> T:
    try:
        return decoder.decode(content)
    except (ValueError, RecursionError) as error:  # Of msgspec: not JSON, or not what the API promises.
        message = f"the API server's answer cannot be read: {error}: {_name_in(bytes(content))}"
        raise ApiError(0, "NoAnswer", message) from error


def _name_in(content: bytes) -> str:
    """Which object it is or, if not even that can be read, how it begins."""
    try:
        metadata = _ANYTHING.decode(content)["metadata"]
        return f"{metadata['namespace']}/{metadata['name']}"
    except (ValueError, RecursionError, KeyError, TypeError):
        return repr(content[:80])


def _no_answer(error: Exception) -> ApiError:
    return ApiError(0, "NoAnswer", f"no answer from the API server: {str(error) or type(error).__name__}")


def _error(status: int, content: bytes, retry_after: str | None) -> ApiError:
    """What a refusal says; a proxy before the server may not use a Status object for it."""
    seconds = min(float(retry_after), LONGEST_RETRY_AFTER) if retry_after and retry_after.isdecimal() else None
    try:
        said = _STATUSES.decode(content)
        return ApiError(status, said.reason or str(status), said.message or str(status), seconds)
    except ValueError:
        text = content.decode(errors="replace").strip()
        return ApiError(status, str(status), text or f"HTTP status {status}", seconds)
