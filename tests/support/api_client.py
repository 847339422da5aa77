"""A client of an API server that keeps its connections, because starting kubectl costs more than most requests."""

import json
from collections.abc import Iterator
from ssl import SSLContext
from typing import Any

import urllib3

MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
OF_THE_CLUSTER = {
    "ClusterQueue",
    "ClusterRole",
    "ClusterRoleBinding",
    "Namespace",
    "Node",
    "PersistentVolume",
    "PriorityClass",
    "ResourceFlavor",
    "Topology",
    "WorkloadPriorityClass",
}
"""Kinds whose objects do not belong to a namespace."""

Object = dict[str, Any]


class ApiError(Exception):
    """The API server has refused a request. The message is the server's answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class ApiClient:
    """A client that any thread may use. Paths are those of the API, including the query."""

    def __init__(self, url: str, context: SSLContext | None = None) -> None:
        secure = {"ssl_context": context} if context else {}
        self._pool = urllib3.connection_from_url(url, maxsize=4, timeout=30, **secure)

    def close(self) -> None:
        """Closes all connections."""
        self._pool.close()

    def get(self, path: str) -> Any:
        """The JSON at a path; None if the path does not exist."""
        try:
            return json.loads(self.read(path))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def read(self, path: str) -> bytes:
        """The bytes at a path."""
        return self._ask("GET", path)

    def create(self, path: str, body: Object) -> Object:
        """Creates an object in a collection, and returns it."""
        return dict(json.loads(self._ask("POST", path, body, "application/json")))

    def patch(self, path: str, body: Object, content: str = MERGE) -> Object:
        """Changes the given fields of an object, and removes those that are None. Returns the object."""
        return dict(json.loads(self._ask("PATCH", path, body, content)))

    def apply(self, document: Object, namespace: str) -> Object:
        """Works like `kubectl apply --server-side`, in this namespace if the kind has namespaces.

        Returns the object.
        """
        path = f"{collection(document, namespace)}/{document['metadata']['name']}"
        return self.patch(f"{path}?fieldManager=tests&force=true&fieldValidation=Strict", document, APPLY)

    def delete(self, path: str, *, cascade: str = "Background", grace: int | None = None) -> None:
        """Deletes an object, but does not wait until it is gone.

        `grace` is in seconds; the default is the object's own.
        """
        options = {"propagationPolicy": cascade} | ({} if grace is None else {"gracePeriodSeconds": grace})
        self._ask("DELETE", path, options, "application/json")

    def watch(self, collection: str, name: str, seconds: int) -> Iterator[Object]:
        """Yields an object as it is now, and then after each change, for this many seconds."""
        query = f"watch=1&fieldSelector=metadata.name%3D{name}&timeoutSeconds={seconds}"
        answer = self._pool.request("GET", f"{collection}?{query}", preload_content=False, timeout=seconds + 30)
        try:
            for line in answer:
                yield json.loads(line)["object"]
        finally:
            answer.close()
            answer.release_conn()

    def _ask(self, method: str, path: str, body: Object | None = None, content: str | None = None) -> bytes:
        headers = {"Content-Type": content} if content else {}
        answer = self._pool.request(method, path, body=json.dumps(body) if body else None, headers=headers)
        if answer.status >= 300:
            raise ApiError(answer.status, _words(answer.data))
        return answer.data


def collection(document: Object, namespace: str) -> str:
    """The path of all objects of the document's kind, in a namespace or in the cluster."""
    version, kind = document["apiVersion"], document["kind"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    place = root if kind in OF_THE_CLUSTER else f"{root}/namespaces/{namespace}"
    return f"{place}/{_plural(kind.lower())}"


def _plural(kind: str) -> str:
    if kind.endswith("y"):
        return f"{kind[:-1]}ies"
    return f"{kind}es" if kind.endswith("s") else f"{kind}s"


def _words(data: bytes) -> str:
    """The text of a refusal. Most refusals are a Status, some are plain text."""
    try:
        return str(json.loads(data)["message"])
    except (ValueError, KeyError, TypeError):
        return data.decode(errors="replace")
