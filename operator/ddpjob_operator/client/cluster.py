"""Sends requests to a cluster's API, as JSON, and raises readable errors."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from http.client import HTTPException
from typing import Any, Self

import urllib3
from kubernetes.client.api_client import ApiClient
from kubernetes.client.exceptions import ApiException

from ddpjob_operator.text.foreign_json import parsed_object

from . import port_forward
from .connections import Connections
from .errors import ClosedError, UnreachableError, refusal
from .pod_exec import Conversation, TerminalSession

Document = dict[str, Any]
"""A Kubernetes object in the form of JSON."""

Query = Mapping[str, str]

Timeout = tuple[float, float | None]

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

PROTOCOL = "v4.channel.k8s.io"
"""The protocol of tunnels: each frame begins with a byte that names its channel."""

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 60.0
LARGEST_BYTES = 8 << 20
"""A pod's answer is read up to this many bytes."""
QUOTED_BYTES = 400
"""A pod's error page is quoted up to this many bytes."""


@dataclass(frozen=True)
class Cluster:
    """A cluster, and the namespace to use in it."""

    api: ApiClient
    context: str
    """The context's name in the kubeconfig."""
    namespace: str
    connections: Connections | None = field(default=None, kw_only=True)
    """The connections that `close` ends; None if they are shared."""

    def apart(self) -> Self:
        """The same cluster over connections of its own, which another thread can `close`."""
        api = ApiClient(self.api.configuration)
        return replace(self, api=api, connections=Connections(api))

    def close(self) -> None:
        """Ends the requests of all threads, which get ClosedError. Does nothing if the connections are shared."""
        if self.connections is not None:
            self.connections.close()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self.connections is not None and self.connections.closed

    def call(self, method: str, path: str, body: Document | None = None, query: Query | None = None) -> Document:
        """Sends one request, and returns the answer.

        Raises:
            UnreachableError: there is no answer.
            RefusedError: the API server refuses the request.
        """
        with self._answer(method, path, (CONNECT_SECONDS, ANSWER_SECONDS), query, body) as response:
            return self._read(response)

    def metadata(self, path: str, query: Query) -> list[Document]:
        """The metadata of each object of a collection, without the objects' content.

        Raises:
            UnreachableError: there is no answer.
            RefusedError: the API server refuses the request.
        """
        with self._answer("GET", path, (CONNECT_SECONDS, ANSWER_SECONDS), query, accept=METADATA) as response:
            return [item["metadata"] for item in self._read(response)["items"]]

    def lines(self, path: str, query: Query, silence_seconds: float | None = None) -> Iterator[bytes]:
        """Yields lines until the server ends its answer. `silence_seconds` is the longest pause between two lines.

        Raises:
            ClosedError: another thread has closed the cluster.
            UnreachableError: the connection broke, or was never made.
            RefusedError: the API server refuses the request.
        """
        with self._answer("GET", path, (CONNECT_SECONDS, silence_seconds), query) as response:
            yield from response

    def ask_pod(self, name: str, port: int, path: str) -> Document:
        """Sends a GET request to a port of a pod, as if from inside the pod, and returns the JSON of the answer.

        The request goes through the API server and the kubelet, so no NetworkPolicy blocks it. The user needs the
        right to forward ports (`pods/portforward`).

        Raises:
            UnreachableError: there is no answer.
            RefusedError: the API server or the pod refuses the request.
        """
        tunnel = self._tunnel(name, "portforward", [("ports", str(port))])
        try:
            with self._explained(name):
                response = port_forward.get(tunnel, path)
                data = response.read(LARGEST_BYTES)
        finally:
            tunnel.shutdown()  # After the other side's close frame, `close` would leave the socket open.
        if response.status != HTTPStatus.OK:
            raise UnreachableError(
                f"pod {name} gives no answer: {data[:QUOTED_BYTES].decode(errors='replace').strip()}"
            )
        return _document(data)

    @contextmanager
    def start_in_pod(self, name: str, container: str, command: Sequence[str]) -> Iterator[Conversation]:
        """Starts a program in a container of a running pod, as `kubectl exec` does.

        The connection is closed after the `with` block, which ends the program's input.
        The user needs the right to do so (`pods/exec`).

        Raises:
            UnreachableError: the pod cannot be reached.
            RefusedError: the API server refuses the request.
        """
        with closing(Conversation(self._exec(name, container, command, "stdin", "stdout", "stderr"))) as conversation:
            yield conversation

    @contextmanager
    def attach_to_pod(
        self, name: str, container: str, command: Sequence[str], *, terminal: bool
    ) -> Iterator[TerminalSession]:
        """Starts a program that has a terminal, as `kubectl exec -it` does; without `terminal`, it has no input.

        The connection is closed after the `with` block, which closes the program's terminal.
        The user needs the right to do so (`pods/exec`).

        Raises:
            UnreachableError: the pod cannot be reached.
            RefusedError: the API server refuses the request.
        """
        streams = ("stdin", "stdout", "tty") if terminal else ("stdout", "stderr")
        with closing(TerminalSession(self._exec(name, container, command, *streams))) as session:
            yield session

    def _exec(self, name: str, container: str, command: Sequence[str], *streams: str) -> Any:
        """The websocket of a program that is started in a pod."""
        words = (("command", word) for word in command)
        return self._tunnel(
            name, "exec", [("container", container), *words, *((stream, "true") for stream in streams)]
        )

    def _tunnel(self, name: str, what: str, query: Sequence[tuple[str, str]]) -> Any:
        """Opens the websocket of a pod's subresource."""
        from kubernetes.stream.ws_client import create_websocket, get_websocket_url  # noqa: PLC0415

        resource = f"/api/v1/namespaces/{self.namespace}/pods/{name}/{what}"
        _, url, headers, *_ = self.api.param_serialize("GET", resource, auth_settings=["BearerToken"])
        headers = {**headers, "sec-websocket-protocol": PROTOCOL}
        with self._explained(name):
            url = get_websocket_url(url, query)  # type: ignore[no-untyped-call]
            tunnel = create_websocket(self.api.configuration, url, headers)  # type: ignore[no-untyped-call]
        tunnel.settimeout(ANSWER_SECONDS)
        return tunnel

    @contextmanager
    def _explained(self, pod: str) -> Iterator[None]:
        """Turns errors of a tunnel into errors for the user."""
        import websocket  # noqa: PLC0415  Hardly any command needs it.

        try:
            yield
        except websocket.WebSocketBadStatusException as error:
            raise refusal(error.status_code, _status(error.resp_body or b""), str(self)) from None
        except (websocket.WebSocketException, HTTPException, OSError) as error:
            raise UnreachableError(f"pod {pod} gives no answer: {error or type(error).__name__}") from None

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
        if self.closed:
            raise ClosedError(f"the connections to {self} were closed")
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
            if self.closed:
                raise ClosedError(f"the connections to {self} were closed") from None
            raise UnreachableError(self._unreachable(error)) from None

    def _read(self, response: urllib3.HTTPResponse) -> Document:
        if answer := _status(response.data):
            return answer
        host = self.api.configuration.host
        raise UnreachableError(
            f"the answer of {self} at {host} is not a JSON object: does a proxy in front of it ask for a login?"
        )

    def _unreachable(self, error: Exception) -> str:
        reason = getattr(error, "reason", None) or str(error).rpartition(": ")[2] or type(error).__name__
        host = self.api.configuration.host
        return f"cannot reach {self} at {host}: {reason}. Is this the right cluster, and is it running?"


def _document(data: bytes) -> Document:
    """Parses a pod's answer.

    Raises:
        UnreachableError: the answer is not a JSON object.
    """
    answer = parsed_object(data)
    if not answer:
        raise UnreachableError("the pod's answer cannot be read: its image has another version of DDPJob")
    return answer


def _status(data: bytes) -> Document:
    """The Status object that explains a refusal; empty if the answer comes from a proxy, which sends none."""
    try:
        answer = json.loads(data)  # A list of all jobs may be large, and its depth is that of our own type.
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}
