"""Where the API server is and who we are to it, for both kopf's watches and our own requests."""

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
"""A request without an answer for this long has failed; the next round sees what it did or did not do."""
STREAM_BYTES = 1 << 20
"""How much of a stream is buffered before it is read: the API server drops clients that are slower than events, and
beside a thousand requests the stream is read only now and then."""

USER_AGENT = f"ddpjob-operator/{version('ddpjob')}"


class NoClusterError(Exception):
    """No credentials for a cluster. Its text is complete: the program prints it and exits."""


def credentials() -> kopf.ConnectionInfo:
    """The service account of this pod or, outside a cluster, the current context of the kubeconfig.

    Raises:
        NoClusterError: there is neither.
    """
    return _of_the_pod() or _of_the_kubeconfig()


def _of_the_pod() -> kopf.ConnectionInfo | None:
    """The address comes from the environment, as for every client: a pod need not have the cluster's DNS."""
    info = kopf.login_with_service_account(settings=kopf.OperatorSettings())
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if info is None or not host:
        return info
    return replace(info, server=f"https://{f'[{host}]' if ':' in host else host}:{port}")


def _of_the_kubeconfig() -> kopf.ConnectionInfo:
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
    known = info.token or info.password or info.certificate_path or info.certificate_data
    if not known and info.server.startswith("https:"):
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


Check = Callable[[], None]


class Connection:
    """An HTTP session with the API server that outlives its credentials: a service account's token changes hourly."""

    def __init__(self, clock_settling_seconds: float = 0.0) -> None:
        """For `clock_settling_seconds` after its start and after each step the time is not certain."""
        self.clock = Clock(clock_settling_seconds)
        self._info = credentials()
        self._session = aiohttp.ClientSession(
            base_url=self._info.server.rstrip("/") + "/",
            # No limit: within aiohttp's 100, the Lease would wait for writes, which have turns of their own.
            connector=aiohttp.TCPConnector(ssl=_ssl_context(self._info), limit=0),
            response_class=_Response,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": USER_AGENT},
            timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS, connect=CONNECT_SECONDS),
        )

    @property
    def server(self) -> str:
        """Address of the API server."""
        return self._info.server

    async def send(
        self, method: str, path: str, data: bytes | None, check: Check, **more: Any
    ) -> tuple[int, bytes, str | None]:
        """One request; returns the response's status, its body and its Retry-After.

        `check` is called before anything is done, and again right before a body is sent; what it raises ends the
        request, the second time as a ClientError.

        Raises:
            aiohttp.ClientError, TimeoutError: there was no response.
        """
        check()
        for _ in range(2):
            body = None if data is None else _Body(data, check)
            answer = await self._send(method, path, data=body, **more)
            if answer[0] != HTTPStatus.UNAUTHORIZED:
                break
            self._renew()
        return answer

    @asynccontextmanager
    async def stream(self, path: str, silence: float, query: dict[str, str]) -> AsyncIterator[aiohttp.ClientResponse]:
        """A request whose response arrives bit by bit, perhaps forever, unless nothing arrives for `silence` seconds.

        Raises:
            aiohttp.ClientError, TimeoutError: there was no response, or no end of it.
        """
        timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_SECONDS, sock_read=silence)
        for again in (True, False):
            headers, asked = self._info.as_http_headers(), steady()
            async with self._session.get(
                path.lstrip("/"), params=query, headers=headers, timeout=timeout, read_bufsize=STREAM_BYTES
            ) as response:
                self._hear(response, asked)
                if again and response.status == HTTPStatus.UNAUTHORIZED:
                    self._renew()
                    continue
                yield response
                return

    async def close(self) -> None:
        """Ends the session."""
        await self._session.close()

    def _renew(self) -> None:
        """Reads our credentials again. A kubeconfig that is just being written is unreadable: then they stay."""
        with suppress(NoClusterError):
            self._info = credentials()

    async def _send(self, method: str, path: str, **more: Any) -> tuple[int, bytes, str | None]:
        headers = {**self._info.as_http_headers(), **more.pop("headers", {})}
        asked = steady()
        async with self._session.request(method, path.lstrip("/"), headers=headers, **more) as response:
            self._hear(response, asked)
            return response.status, await response.read(), response.headers.get("Retry-After")

    def _hear(self, response: aiohttp.ClientResponse, asked: float) -> None:
        connection = response.came_by if isinstance(response, _Response) else None
        self.clock.hears(response.headers.get("Date"), asked, connection)


class _Response(aiohttp.ClientResponse):
    """A response that knows by which connection it came: one that has arrived as a whole has given that back."""

    came_by: object = None
    """The connection's address here."""

    async def start(self, connection: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        """Reads its head."""
        if connection.transport is not None:
            self.came_by = connection.transport.get_extra_info("sockname")
        return await super().start(connection)


class _Body(aiohttp.BytesPayload):
    """A request's body, with which its head is sent too, and a check right before.

    Not earlier: between the check and the bytes the process may be stopped at any moment, and woken much later.
    """

    def __init__(self, content: bytes, check: Check) -> None:
        super().__init__(content)
        self._check = check

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        self._check()
        await super().write_with_length(writer, content_length)
