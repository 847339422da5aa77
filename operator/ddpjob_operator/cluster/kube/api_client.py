"""The only client of the Kubernetes API: a few verbs on resources, with JSON bodies and the server's error messages.

Nothing is retried here, because the job's next round decides again from the state at that time.
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
from ddpjob_operator.engine import KUEUE_API, Manifest
from ddpjob_operator.text.foreign_json import parsed_object

from .clock import Reading
from .connection import Connection, Fence
from .objects import (
    Change,
    ConfigMapObject,
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
"""The target size of a page of a list. The API server can only limit the number of objects, so each page's limit is
computed from the size of the objects in the previous page."""
FIRST_LIMIT, MOST_LIMIT = 20, 500
"""The number of objects in a list's first page, when their size is unknown, and the largest number in any page."""
LONGEST_RETRY_AFTER = 60.0
"""The longest Retry-After that is obeyed. A busy API server demands only seconds, so a longer one is from a proxy."""

WATCH_SECONDS = 300
"""How long a watch lasts before the API server ends it."""
SILENCE_SECONDS = 90.0
"""How long a watch may receive no data before it counts as broken. An idle server sends a bookmark each minute."""

T = TypeVar("T")

logger = logging.getLogger(__name__)


class PageMetadata(msgspec.Struct, rename="camel"):
    """The resource version of the list, and the token with which it continues."""

    resource_version: str = ""
    rest: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct):
    """A page of a list, whose objects are not decoded yet."""

    metadata: PageMetadata
    items: list[msgspec.Raw]


@dataclass(frozen=True)
class Resource(Generic[T]):
    """An API resource: its path, and the type that its objects are decoded into."""

    path: str
    plural: str
    type: type[T]

    def __str__(self) -> str:
        """Returns the name with its API group, as in kubectl, because groups may share a plural name."""
        group = self.path.removeprefix("/apis/").partition("/")[0]
        return f"{self.plural}.{group}" if self.path.startswith("/apis/") else self.plural

    @cached_property
    def object(self) -> msgspec.json.Decoder[T]:
        """The decoder of one object."""
        return decoder(self.type)


DDPJOBS = Resource(f"/apis/{API_VERSION}", "ddpjobs", JobObject)
PODS = Resource("/api/v1", "pods", PodObject)
EVENTS = Resource("/api/v1", "events", EventObject)
NODES = Resource("/api/v1", "nodes", NodeObject)
WHOLE_KUEUE_WORKLOADS = Resource(f"/apis/{KUEUE_API}", "workloads", dict[str, Any])
"""Kueue's Workloads with all fields, for writing back a status after changing only a part of it."""
FLAVORS = Resource(f"/apis/{KUEUE_API}", "resourceflavors", FlavorObject)
KUEUE_PRIORITIES = Resource(f"/apis/{KUEUE_API}", "workloadpriorityclasses", PriorityClassObject)
POD_PRIORITIES = Resource("/apis/scheduling.k8s.io/v1", "priorityclasses", PriorityClassObject)
LEASES = Resource("/apis/coordination.k8s.io/v1", "leases", dict[str, Any])
CONFIG_MAPS = Resource("/api/v1", "configmaps", ConfigMapObject)
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
    """The API server refused a request, or did not answer. Without an answer, `status` is 0."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        message = message or f"{reason} ({status})"  # A webhook may give no message.
        super().__init__(message)
        self.status = status
        self.reason = reason
        """The server's reason, in one CamelCase word: `AlreadyExists`, `Forbidden`, `Conflict`."""
        self.message = message
        self.retry_after = retry_after
        """Seconds to wait before the next request, from the server's Retry-After; None if it sent none."""

    @property
    def passing(self) -> bool:
        """Whether the same request may succeed later, because the server was busy, broken or unreachable."""
        # 401 counts too, because credentials may be replaced while the operator runs, and are then read again.
        busy = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.UNAUTHORIZED)
        return self.status == 0 or self.status >= HTTPStatus.INTERNAL_SERVER_ERROR or self.status in busy


class StuckError(ApiError):
    """A watch cannot be resumed and a new list is needed, for example because a change cannot be read."""


class FencedError(Exception):
    """A write was not sent, because this process is not the leader, or no longer is."""

    def __str__(self) -> str:
        return "this process is not the leader, or no longer is"


class ApiClient:
    """Sends requests to the API server. Before it sends a change, it calls `may_write`."""

    def __init__(self, connection: Connection, may_write: Callable[[], bool]) -> None:
        self._connection = connection
        self._may_write = may_write

    def now(self) -> datetime:
        """Returns the time by the API server's clock."""
        return self._connection.clock.now()

    def read_clock(self) -> Reading:
        """Returns the time, and how certain it is."""
        return self._connection.clock.read()

    async def get(self, resource: Resource[T], namespace: str | None, name: str) -> T | None:
        """Returns an object, or None if it does not exist."""
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
        """Returns all objects of a namespace or, with None, of all, and the resource version of the list.

        `labels` and `fields` are selectors. An object that cannot be read is listed as Unreadable with its identity,
        so that the others are still listed, and the object does not seem to be gone.
        """
        items: list[T | Unreadable] = []
        # No resourceVersion is sent, so the list shows the present state. With resourceVersion=0 the server might
        # answer from a cache that lags behind.
        query = {"limit": str(FIRST_LIMIT), **_selecting(labels, fields)}
        while True:
            content = await self._request("GET", resource, namespace, query=query)
            page = _decoded(_PAGES, content)
            items += (decoded for item in page.items if (decoded := _one_of(resource, item)) is not None)
            if not page.metadata.rest:
                return items, int(page.metadata.resource_version)
            query |= {"continue": page.metadata.rest, "limit": str(_limit(len(content), len(page.items)))}

    async def watch(
        self, resource: Resource[T], namespace: str | None, labels: str, version: int, *, fields: str = ""
    ) -> AsyncGenerator[tuple[str, T | Unreadable]]:
        """Yields each change after a resource version, with its type, until the server ends the watch.

        `labels` and `fields` are selectors.

        Raises:
            StuckError: the server sent an error, or a line that is not a change of an object.
            ApiError: the watch could not begin, or broke off. The changes that it yielded before are valid.
        """
        query = {
            "watch": "true",
            "resourceVersion": str(version),
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_SECONDS),
            **_selecting(labels, fields),
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
        """Creates an object and returns it as the server stored it. Unknown fields are an error."""
        content = await self._change("POST", resource, namespace, body=body, query={"fieldValidation": "Strict"})
        return _decoded(resource.object, content)

    async def replace(self, resource: Resource[T], namespace: str, name: str, body: Manifest) -> T:
        """Replaces an object if it still has the resource version in `body`."""
        return _decoded(resource.object, await self._change("PUT", resource, namespace, name, body=body))

    async def merge(self, resource: Resource[T], namespace: str, name: str, body: Manifest) -> T:
        """Applies `body` to an object as a JSON merge patch."""
        headers = {"Content-Type": "application/merge-patch+json"}
        content = await self._change("PATCH", resource, namespace, name, body=body, headers=headers)
        return _decoded(resource.object, content)

    async def replace_status(
        self, resource: Resource[T], namespace: str, name: str, version: str, status: Manifest
    ) -> T:
        """Replaces the whole status if the object still has this resource version (a recreated object does not)."""
        change = {"op": "add", "path": "/status", "value": status}  # "replace" would fail for a job without a status.
        return await self.patch(resource, namespace, f"{name}/status", version, [change])

    async def patch(
        self, resource: Resource[T], namespace: str, name: str, version: str, changes: Sequence[Manifest]
    ) -> T:
        """Applies the operations of a JSON patch if the object still has this resource version."""
        # The version is not checked by a "test" operation, whose failure would be an invalid request (422). If the
        # patch replaces the version instead, a wrong version is a conflict (409).
        patch = [{"op": "replace", "path": "/metadata/resourceVersion", "value": version}, *changes]
        headers = {"Content-Type": "application/json-patch+json"}
        content = await self._change("PATCH", resource, namespace, name, body=patch, headers=headers)
        return _decoded(resource.object, content)

    async def delete(
        self, resource: Resource[T], namespace: str, name: str, only_if: dict[str, str], grace: int | None = None
    ) -> T | None:
        """Deletes an object if it still has the uid, or the resource version, in `only_if`.

        `grace` is the grace period in seconds; None: the object's own. Returns the object while it is ending, or None
        if it is gone. An answer that contains the object without a resource version also means that it is gone. This
        happens when somebody else deletes it at the same time.
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
            return None  # The answer was a Status, whose field `status` is a string instead of an object.
        return left if isinstance(left, Object) and left.metadata.resource_version else None

    async def served(self, path: str) -> frozenset[str]:
        """Returns the plural names of the kinds that are served at `path`, the path of a version of an API group."""
        try:
            # This reads the discovery document, which everybody may read. Reading the CRD would need another right.
            page = _decoded(_ANYTHING, await self._send("GET", path, "discovery"))
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return frozenset()
            raise
        return frozenset(known["name"] for known in page["resources"])

    async def allowed(self, attributes: Manifest) -> bool:
        """Checks with a SelfSubjectAccessReview whether the operator has the right in these `resourceAttributes`."""
        status = await self._review(ACCESS_REVIEWS, "SelfSubjectAccessReview", {"resourceAttributes": attributes})
        return bool(status["allowed"])

    async def user_of(self, token: str) -> Manifest | None:
        """Finds out with a TokenReview which user a token belongs to; None if the token is not valid."""
        status = await self._review(TOKEN_REVIEWS, "TokenReview", {"token": token})
        return status.get("user", {}) if status.get("authenticated") else None

    async def may_get(self, user: Manifest, path: str) -> bool:
        """Checks with a SubjectAccessReview whether a user may get a non-resource path such as /metrics."""
        subject = {
            "user": user.get("username", ""),
            "uid": user.get("uid", ""),
            "groups": user.get("groups", []),
            "extra": user.get("extra", {}),
        }
        spec = {**subject, "nonResourceAttributes": {"path": path, "verb": "get"}}
        return bool((await self._review(SUBJECT_REVIEWS, "SubjectAccessReview", spec))["allowed"])

    async def rules(self, namespace: str) -> tuple[Sequence[Any], bool]:
        """Reads a namespace's `resourceRules` from a SelfSubjectRulesReview, and whether they may be incomplete."""
        status = await self._review(RULES_REVIEWS, "SelfSubjectRulesReview", {"namespace": namespace})
        return status["resourceRules"], status["incomplete"]

    async def _review(self, resource: Resource[dict[str, Any]], kind: str, spec: Manifest) -> Manifest:
        """Creates a review and returns its status, which contains the server's answer."""
        body = {"apiVersion": resource.path.removeprefix("/apis/"), "kind": kind, "spec": spec}
        answer = _decoded(_ANYTHING, await self._request("POST", resource, None, body=body))
        status: Manifest = answer.get("status", {})
        return status

    async def _change(self, *what: Any, **more: Any) -> bytes:
        return await self._request(*what, fence=self._fence, **more)

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
        fence: Fence = lambda: None,
    ) -> bytes:
        data = None if body is None else _ENCODER.encode(body)
        headers = {"Content-Type": "application/json", **(headers or {})}
        try:
            status, content, retry_after = await self._connection.send(
                method, path, data, fence, params=query, headers=headers
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
    """Computes the next page's limit from the last page's size in bytes and its number of objects."""
    return max(1, min(MOST_LIMIT, PAGE_BYTES * count // size))


def _selecting(labels: str, fields: str = "") -> dict[str, str]:
    selectors = {"labelSelector": labels, "fieldSelector": fields}
    return {name: selector for name, selector in selectors.items() if selector}


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yields the complete lines of a response, whatever their length. An incomplete last line is dropped."""
    rest = b""
    async for part in response.content.iter_any():
        *whole, rest = (rest + part).split(b"\n")
        for line in whole:
            yield line


def _change(resource: Resource[T], line: bytes) -> tuple[str, T | Unreadable]:
    try:
        change = _decoded(_CHANGES, line)
        if change.type != "ERROR":
            decoded = _one_of(resource, change.object)
            return change.type, _decoded(resource.object, change.object) if decoded is None else decoded
        status = _decoded(_STATUSES, change.object)
    except ApiError as error:
        raise StuckError(error.status, error.reason, error.message) from error
    raise StuckError(status.code, status.reason, status.message)


def _one_of(resource: Resource[T], item: msgspec.Raw) -> T | Unreadable | None:
    """Decodes an object or, if that fails, its identity as Unreadable; None if the identity cannot be read either."""
    try:
        return _decoded(resource.object, item)
    except ApiError as error:
        UNREADABLE.labels(resource.plural).inc()
        logger.error("%s: an object is ignored: %s", resource.plural, error)  # noqa: TRY400  It is not our bug.
    try:
        # Unlike msgspec, `parsed_object` accepts some invalid texts, such as half a surrogate pair.
        return msgspec.convert(parsed_object(bytes(item)), Unreadable)
    except msgspec.ValidationError:
        return None


def _decoded(decoder: msgspec.json.Decoder[T], content: bytes | msgspec.Raw) -> T:
    try:
        return decoder.decode(content)
    except (ValueError, RecursionError) as error:  # It is not JSON, or not of the expected type.
        message = f"the API server's answer cannot be read: {error}: {_name_in(bytes(content))}"
        raise ApiError(0, "NoAnswer", message) from error


def _name_in(content: bytes) -> str:
    """Returns an unreadable object's namespace and name or, if these are unreadable too, its first bytes."""
    try:
        metadata = _ANYTHING.decode(content)["metadata"]
        return f"{metadata['namespace']}/{metadata['name']}"
    except (ValueError, RecursionError, KeyError, TypeError):
        return repr(content[:80])


def _no_answer(error: Exception) -> ApiError:
    return ApiError(0, "NoAnswer", f"no answer from the API server: {str(error) or type(error).__name__}")


def _error(status: int, content: bytes, retry_after: str | None) -> ApiError:
    """Returns the error for a refused request. Its body is not always a Status, because a proxy may have answered."""
    seconds = min(float(retry_after), LONGEST_RETRY_AFTER) if retry_after and retry_after.isdecimal() else None
    try:
        answer = _STATUSES.decode(content)
        return ApiError(status, answer.reason or str(status), answer.message or str(status), seconds)
    except ValueError:
        text = content.decode(errors="replace").strip()
        return ApiError(status, str(status), text or f"HTTP status {status}", seconds)
