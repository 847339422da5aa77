"""Connects to the API server with its address and credentials, which kopf's watch uses as well."""

import os
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

import aiohttp
import kopf
import yaml
from aiohttp.abc import AbstractStreamWriter

from .clock import Clock, steady

CONNECT_SECONDS = 5.0
REQUEST_SECONDS = 15.0
"""How long a request may remain unanswered before it counts as failed. The next round finds out whether it had an
effect."""
STREAM_BYTES = 1 << 20
"""How many bytes of a stream are buffered before they are read. The API server drops clients that read events too
slowly, and while a thousand requests are in flight, the stream is read only now and then."""

USER_AGENT = f"ddpjob-operator/{version('ddpjob')}"


class NoClusterError(Exception):
    """There are no usable credentials for a cluster. The program prints this error's text unchanged, and exits."""


def credentials() -> kopf.ConnectionInfo:
    """Returns the service account of this pod or, outside a cluster, the current context of the kubeconfig.

    Raises:
        NoClusterError: there is neither a service account nor a context, or the kubeconfig cannot be used.
    """
    return _pod_credentials() or _kubeconfig_credentials()


def _pod_credentials() -> kopf.ConnectionInfo | None:
    """Returns the service account of this pod; None if there is none.

    As in other Kubernetes clients, the server's address comes from the environment, because a pod may lack the
    cluster's DNS.
    """
    info = kopf.login_with_service_account(settings=kopf.OperatorSettings())
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if info is None or not host:
        return info
    return replace(info, server=f"https://{f'[{host}]' if ':' in host else host}:{port}")


def _kubeconfig_credentials() -> kopf.ConnectionInfo:
    try:
        info = kopf.login_with_kubeconfig(settings=kopf.OperatorSettings())
    except KeyError as error:
        raise NoClusterError(f"The kubeconfig cannot be used: there is no {error} in it.") from error
    except (OSError, kopf.LoginError, yaml.YAMLError, AttributeError, TypeError) as error:
        raise NoClusterError(f"The kubeconfig cannot be used: {' '.join(str(error).split())}") from error
    if info is None:
        raise NoClusterError(
            "No cluster: this is not a pod with a service account, and there is no kubeconfig (set KUBECONFIG)."
        )
    if not info.server:
        raise NoClusterError("The kubeconfig cannot be used: its cluster has no server.")
    has_credentials = info.token or info.password or info.certificate_path or info.certificate_data
    if not has_credentials and info.server.startswith("https:"):
        raise NoClusterError(
            "The kubeconfig cannot be used: its user has no token, password or certificate of its own, and plugins "
            "(exec) are not called here. `kubectl create token` makes a token for a service account."
        )
    return info


def _ssl_context(info: kopf.ConnectionInfo) -> ssl.SSLContext:
    try:
        return info.as_ssl_context()
    except (OSError, ValueError) as error:
        paths = (info.ca_path, info.certificate_path, info.private_key_path)
        files = ", ".join(str(path) for path in paths if path)
        raise NoClusterError(f"The certificates cannot be read ({files or 'given as data'}): {error}") from error


Fence = Callable[[], None]
"""Raises an exception if this process is no longer allowed to write. Then the request is not sent."""


class Connection:
    """An HTTP session with the API server. It renews its credentials: a service account's token changes hourly."""

    def __init__(self, clock_settling_seconds: float = 0.0) -> None:
        """`clock_settling_seconds` is how long the time counts as uncertain after a start or a jump of the clock."""
        self.clock = Clock(clock_settling_seconds)
        self._info = credentials()
        self._session = aiohttp.ClientSession(
            base_url=self._info.server.rstrip("/") + "/",
            # There is no limit on connections, because with aiohttp's default of 100, renewals of the Lease would
            # have to wait for writes. `Turns` limits the writes.
            connector=aiohttp.TCPConnector(ssl=_ssl_context(self._info), limit=0),
            response_class=_Response,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": USER_AGENT},
            timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS, connect=CONNECT_SECONDS),
        )

    @property
    def server(self) -> str:
        """The address of the API server."""
        return self._info.server

    async def send(
        self, method: str, path: str, data: bytes | None, fence: Fence, **more: Any
    ) -> tuple[int, bytes, str | None]:
        """Sends a request. Returns the response's status, body and Retry-After header.

        `fence` is called first, and again right before a body is sent. If it raises an exception, the request is not
        sent. An exception from the second call is raised as a ClientError.

        Raises:
            aiohttp.ClientError, TimeoutError: there was no response.
        """
        fence()
        for _ in range(2):
            body = None if data is None else _Body(data, fence)
            answer = await self._send(method, path, data=body, **more)
            if answer[0] != HTTPStatus.UNAUTHORIZED:
                break
            self._renew_credentials()
        return answer

    @asynccontextmanager
    async def stream(self, path: str, silence: float, query: dict[str, str]) -> AsyncIterator[aiohttp.ClientResponse]:
        """Sends a GET request whose response is read as it arrives, perhaps forever.

        Raises:
            aiohttp.ClientError, TimeoutError: there was no response, the response broke off, or nothing arrived for
                `silence` seconds.
        """
        timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_SECONDS, sock_read=silence)
        for again in (True, False):
            headers, asked = self._info.as_http_headers(), steady()
            async with self._session.get(
                path.lstrip("/"), params=query, headers=headers, timeout=timeout, read_bufsize=STREAM_BYTES
            ) as response:
                self._note_date(response, asked)
                if again and response.status == HTTPStatus.UNAUTHORIZED:
                    self._renew_credentials()
                    continue
                yield response
                return

    async def close(self) -> None:
        """Closes the session."""
        await self._session.close()

    def _renew_credentials(self) -> None:
        """Reads the credentials again. Keeps the old ones if the kubeconfig cannot be read or is being written."""
        with suppress(NoClusterError):
            self._info = credentials()

    async def _send(self, method: str, path: str, **more: Any) -> tuple[int, bytes, str | None]:
        headers = {**self._info.as_http_headers(), **more.pop("headers", {})}
        asked = steady()
        async with self._session.request(method, path.lstrip("/"), headers=headers, **more) as response:
            self._note_date(response, asked)
            return response.status, await response.read(), response.headers.get("Retry-After")

    def _note_date(self, response: aiohttp.ClientResponse, asked: float) -> None:
        connection = response.local_address if isinstance(response, _Response) else None
        self.clock.note_date(response.headers.get("Date"), asked, connection)


class _Response(aiohttp.ClientResponse):
    """A response that keeps the address of its connection, which aiohttp drops after the response has been read."""

    local_address: object = None
    """The local address of the connection."""

    async def start(self, connection: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        """Reads the status and the headers."""
        if connection.transport is not None:
            self.local_address = connection.transport.get_extra_info("sockname")
        return await super().start(connection)


class _Body(aiohttp.BytesPayload):
    """A request's body that calls `fence` right before it is sent. aiohttp sends the headers together with the body.

    An earlier check would not be enough, because between the check and the sending, the process may be paused for a
    long time.
    """

    def __init__(self, content: bytes, fence: Fence) -> None:
        super().__init__(content)
        self._fence = fence

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        self._fence()
        await super().write_with_length(writer, content_length)
