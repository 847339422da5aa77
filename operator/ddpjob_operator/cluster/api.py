"""The only door to the Kubernetes API: a few verbs on paths, JSON in and out, and errors as the server words them.

Nothing is retried here: what failed is done again by the next round of the job, from what is there by then.
"""

import json
from collections.abc import Callable
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import aiohttp

from ddpjob_operator.api.contract import API_VERSION
from ddpjob_operator.engine import Manifest

from .connection import Check, Connection
from .metrics import API_REQUESTS

LIST_LIMIT = 500
LONGEST_RETRY_AFTER = 60.0
"""A server that is busy asks for seconds; what asks for a day stands between."""

DDPJOBS = f"/apis/{API_VERSION}", "ddpjobs"
PODS = "/api/v1", "pods"
SERVICES = "/api/v1", "services"
EVENTS = "/api/v1", "events"
NODES = "/api/v1", "nodes"
NETWORK_POLICIES = "/apis/networking.k8s.io/v1", "networkpolicies"
LEASES = "/apis/coordination.k8s.io/v1", "leases"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1", "selfsubjectaccessreviews"

Resource = tuple[str, str]
"""A resource's API path and its plural name."""


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
        """Whether it says nothing about the request itself: the server was busy, broken or not there."""
        busy = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.UNAUTHORIZED)
        return self.status == 0 or self.status >= HTTPStatus.INTERNAL_SERVER_ERROR or self.status in busy


class FencedError(Exception):
    """Writing was not allowed: this process does not lead, or not any more."""


class Api:
    """Requests to the API server. `may_write` is asked right before anything that is to change goes out."""

    def __init__(self, connection: Connection, may_write: Callable[[], bool]) -> None:
        self._connection = connection
        self._may_write = may_write

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Manifest | None:
        """An object, or None where it does not exist."""
        try:
            return await self._request("GET", resource, namespace, name)
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise

    async def list(self, resource: Resource, namespace: str | None, labels: str = "") -> tuple[list[Manifest], int]:
        """All objects, of one namespace or of all, and the resource version at which this was the whole of them."""
        items: list[Manifest] = []
        query = {"limit": str(LIST_LIMIT), **({"labelSelector": labels} if labels else {})}
        while True:
            page = await self._request("GET", resource, namespace, query=query)
            items += page["items"]
            token = page["metadata"].get("continue")
            if not token:
                return items, int(page["metadata"]["resourceVersion"])
            query["continue"] = token

    async def create(self, resource: Resource, namespace: str | None, body: Manifest) -> Manifest:
        """Makes an object and returns it as it is now; fields that the server does not know are errors."""
        return await self._change("POST", resource, namespace, body=body, query={"fieldValidation": "Strict"})

    async def replace(self, resource: Resource, namespace: str, name: str, body: Manifest) -> Manifest:
        """Replaces an object, if it still has the resource version that `body` has."""
        return await self._change("PUT", resource, namespace, name, body=body)

    async def merge(self, resource: Resource, namespace: str, name: str, body: Manifest) -> Manifest:
        """Changes the fields that `body` names."""
        headers = {"Content-Type": "application/merge-patch+json"}
        return await self._change("PATCH", resource, namespace, name, body=body, headers=headers)

    async def replace_status(
        self, resource: Resource, namespace: str, name: str, version: str, status: Manifest
    ) -> Manifest:
        """Replaces the whole status, if the object still has this resource version, which no object made anew has."""
        patch = [
            {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
            {"op": "add", "path": "/status", "value": status},
        ]
        headers = {"Content-Type": "application/json-patch+json"}
        return await self._change("PATCH", resource, namespace, f"{name}/status", body=patch, headers=headers)

    async def delete(
        self, resource: Resource, namespace: str, name: str, only_if: dict[str, str], grace: int | None = None
    ) -> Manifest:
        """Deletes an object if it still has this uid, or this resource version; returns it as it is while it ends."""
        body: Manifest = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": only_if}
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        return await self._change("DELETE", resource, namespace, name, body=body)

    async def served(self, resource: Resource) -> bool:
        """Whether the server knows the resource at all."""
        try:
            page = await self._send("GET", resource[0], resource[1])
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return False
            raise
        return any(known["name"] == resource[1] for known in page["resources"])

    async def allowed(self, attributes: Manifest) -> bool:
        """Whether we may do what these `resourceAttributes` of a SelfSubjectAccessReview say."""
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        answer = await self._request("POST", ACCESS_REVIEWS, None, body=review)
        return bool(answer["status"]["allowed"])

    async def _change(self, *what: Any, **more: Any) -> Manifest:
        return await self._request(*what, check=self._fence, **more)

    def _fence(self) -> None:
        if not self._may_write():
            raise FencedError

    async def _request(
        self, method: str, resource: Resource, namespace: str | None, name: str = "", **more: Any
    ) -> Manifest:
        group, plural = resource
        scope = f"/namespaces/{quote(namespace)}" if namespace else ""
        path = f"{group}{scope}/{plural}" + (f"/{name}" if name else "")
        return await self._send(method, path, plural, **more)

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
    ) -> Manifest:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **(headers or {})}
        try:
            status, content, retry_after = await self._connection.send(
                method, path, data, check, params=query, headers=headers
            )
        except (aiohttp.ClientError, TimeoutError) as error:
            API_REQUESTS.labels(method, plural, "none").inc()
            said = f"no answer from the API server: {error or type(error).__name__}"
            raise ApiError(0, "NoAnswer", said) from error
        API_REQUESTS.labels(method, plural, str(status)).inc()
        if status >= HTTPStatus.BAD_REQUEST:
            raise _error(status, content, retry_after)
        try:
            result: Manifest = json.loads(content)
        except ValueError as error:
            raise ApiError(0, "NoAnswer", f"the API server's answer is not JSON: {content[:80]!r}") from error
        return result


def _error(status: int, content: bytes, retry_after: str | None) -> ApiError:
    """What a refusal says; a proxy before the server may say it in another form than a Status object."""
    seconds = min(float(retry_after), LONGEST_RETRY_AFTER) if retry_after and retry_after.isdecimal() else None
    try:
        said = json.loads(content)
        return ApiError(status, said.get("reason") or str(status), said.get("message") or str(status), seconds)
    except (ValueError, AttributeError):
        text = content.decode(errors="replace").strip()
        return ApiError(status, str(status), text or f"HTTP status {status}", seconds)
