"""Sends requests to a cluster's API: JSON in and out, with readable errors."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import urllib3
from kubernetes.client.api_client import ApiClient
from kubernetes.client.exceptions import ApiException

from .errors import UnreachableError, refusal

Document = dict[str, Any]
"""A Kubernetes object in the form of JSON."""

Query = Mapping[str, str]

Timeout = tuple[float, float | None]

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 60.0


@dataclass(frozen=True)
class Cluster:
    """A cluster, and the namespace to use in it."""

    api: ApiClient
    context: str
    """The context's name in the kubeconfig."""
    namespace: str

    def call(self, method: str, path: str, body: Document | None = None, query: Query | None = None) -> Document:
        """The answer to one request.

        Raises:
            UnreachableError: there is no answer.
            RefusedError: the API server refuses the request.
        """
        with self._answer(method, path, (CONNECT_SECONDS, ANSWER_SECONDS), query, body) as response:
            answer: Document = json.loads(response.data)
            return answer

    def metadata(self, path: str, query: Query) -> list[Document]:
        """The metadata of each object of a collection, without the objects' content.

        Raises:
            UnreachableError: there is no answer.
            RefusedError: the API server refuses the request.
        """
        with self._answer("GET", path, (CONNECT_SECONDS, ANSWER_SECONDS), query, accept=METADATA) as response:
            return [item["metadata"] for item in json.loads(response.data)["items"]]

    def lines(self, path: str, query: Query, silence_seconds: float | None = None) -> Iterator[bytes]:
        """The lines of an answer, until the server ends it; `silence_seconds` is the longest time between two lines.

        Raises:
            UnreachableError: the connection broke, or was never made.
            RefusedError: the API server refuses the request.
        """
        with self._answer("GET", path, (CONNECT_SECONDS, silence_seconds), query) as response:
            yield from response

    def __str__(self) -> str:
        return f"the cluster of context {self.context}"

    @contextmanager
    def _answer(
        self,
        method: str,
        path: str,
        timeout: Timeout,
        query: Query | None,
        body: Document | None = None,
        *,
        accept: str = f"{JSON}, */*",
    ) -> Iterator[urllib3.HTTPResponse]:
        headers = {"Accept": accept, "Content-Type": MERGE_PATCH if method == "PATCH" else JSON}
        request = self.api.param_serialize(
            method, path, None, list((query or {}).items()), headers, body, auth_settings=["BearerToken"]
        )
        try:
            response = self.api.call_api(*request, _request_timeout=timeout).response
            try:
                if response.status >= HTTPStatus.BAD_REQUEST:
                    raise refusal(response.status, _status(response.data), str(self))
                yield response
            finally:
                response.close()
        except (
            urllib3.exceptions.HTTPError,
            ApiException,
        ) as error:  # ApiException: raised here only for TLS errors.
            raise UnreachableError(self._unreachable(error)) from None

    def _unreachable(self, error: Exception) -> str:
        reason = getattr(error, "reason", None) or str(error).rpartition(": ")[2] or type(error).__name__
        return f"cannot reach {self} at {self.api.configuration.host}: {reason}. Is it the right one? Does it run?"


def _status(data: bytes) -> Document:
    """The Status object that explains a refusal; empty if a proxy refused the request, because proxies send none."""
    try:
        answer = json.loads(data)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}
