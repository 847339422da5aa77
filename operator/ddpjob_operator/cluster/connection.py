"""Where the API server is and who we are to it, for kopf's watches and for our own requests alike."""

from collections.abc import Callable
from http import HTTPStatus
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import aiohttp
import kopf

CONNECT_SECONDS = 5.0
REQUEST_SECONDS = 15.0
"""A request without an answer for so long has failed; what it did or did not do, the next round sees."""

USER_AGENT = f"ddpjob-operator/{version('ddpjob')}"


class NoClusterError(Exception):
    """No credentials for a cluster. Its text is complete: the program prints it and exits."""


def credentials() -> kopf.ConnectionInfo:
    """The service account of this pod or, outside of a cluster, the current context of the kubeconfig.

    Raises:
        NoClusterError: there is neither.
    """
    settings = kopf.OperatorSettings()
    try:
        info = kopf.login_with_service_account(settings=settings) or kopf.login_with_kubeconfig(settings=settings)
    except (OSError, kopf.LoginError) as error:
        raise NoClusterError(f"The kubeconfig cannot be used: {error}") from error
    if info is None:
        raise NoClusterError(
            "No cluster: this is not a pod with a service account, and there is no kubeconfig (set KUBECONFIG)."
        )
    return info


Check = Callable[[], None]


class Connection:
    """An HTTP session with the API server that outlives its credentials: a service account's token changes hourly."""

    def __init__(self) -> None:
        self._info = credentials()
        self._session = aiohttp.ClientSession(
            base_url=self._info.server.rstrip("/") + "/",
            connector=aiohttp.TCPConnector(ssl=self._info.as_ssl_context(), limit=0),
            headers={"User-Agent": USER_AGENT},
            timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS, connect=CONNECT_SECONDS),
            trace_configs=[_checked_at_the_last_moment()],
        )

    @property
    def server(self) -> str:
        """Address of the API server."""
        return self._info.server

    async def send(self, method: str, path: str, check: Check, **more: Any) -> tuple[int, bytes, str | None]:
        """One request; returns the response's status, its body and its Retry-After.

        `check` is called when all is ready and nothing is sent yet; what it raises ends the request.

        Raises:
            aiohttp.ClientError, TimeoutError: there was no response.
        """
        answer = await self._send(method, path, trace_request_ctx=check, **more)
        if answer[0] == HTTPStatus.UNAUTHORIZED:
            self._info = credentials()
            answer = await self._send(method, path, trace_request_ctx=check, **more)
        return answer

    async def close(self) -> None:
        """Ends the session."""
        await self._session.close()

    async def _send(self, method: str, path: str, **more: Any) -> tuple[int, bytes, str | None]:
        headers = {**self._info.as_http_headers(), **more.pop("headers", {})}
        async with self._session.request(method, path.lstrip("/"), headers=headers, **more) as response:
            return response.status, await response.read(), response.headers.get("Retry-After")


def _checked_at_the_last_moment() -> aiohttp.TraceConfig:
    """Calls a request's check once it has its connection: opening one takes a while, a frozen process any time."""

    async def check(_: aiohttp.ClientSession, context: SimpleNamespace, __: object) -> None:
        context.trace_request_ctx()

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(check)
    trace.on_connection_reuseconn.append(check)
    return trace
