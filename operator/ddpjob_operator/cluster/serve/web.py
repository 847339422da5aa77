"""The operator's own pages: /healthz and /readyz for the kubelet, /metrics for Prometheus.

The kubelet has its own port. On the port of the metrics, strangers could open so many connections that the probes
fail and the operator is restarted.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from http import HTTPStatus

from aiohttp import web
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from .fair_server import FairServer, text
from .metrics import REGISTRY

Problem = Callable[[], str]
"""Returns the lines of a problem; empty if there is none."""

Access = Callable[[str], Awaitable[HTTPStatus]]
"""Checks the token of a request for the metrics. Returns OK, or the status with which the request is refused."""

Page = Callable[[web.BaseRequest], Awaitable[web.Response]]

IDLE_SECONDS = 75.0
"""How long an idle connection is kept: longer than the usual interval between two scrapes by Prometheus."""
PROBE_IDLE_SECONDS = 10.0


class PortTakenError(Exception):
    """A port is not available, usually because another process is listening on it."""

    def __init__(self, flag: str, port: int, error: OSError) -> None:
        super().__init__(f"Cannot listen on {flag} {port}")
        self.error = error


async def serve(
    stack: AsyncExitStack,
    ports: tuple[int, int],
    *,
    ready: Problem,
    problems: Problem,
    jobs: Callable[[], Collector],
    access: Access | None = None,
) -> tuple[int, int]:
    """Serves all pages on the first port, and only those for probes on the second, until the stack is closed.

    Port 0 means any free port. `ready` returns why the operator is not ready. `problems` returns the problems that do
    not affect readiness. `jobs` returns the metrics of jobs. `access`, if given, checks who may read the metrics.
    Returns the ports.

    Raises:
        PortTakenError: one of the ports is not available.
    """
    # The text of 15,000 series takes a tenth of a second, so it is made in a thread. There is only one such thread,
    # because with many, strangers could take most of the CPU time.
    renderer = ThreadPoolExecutor(1, "metrics")
    stack.callback(renderer.shutdown, wait=False)

    async def healthz(_: web.BaseRequest) -> web.Response:
        # It is enough that the process answers. Slow rounds are not a reason to restart the operator, because they
        # depend on the API server, and every request to it has a timeout.
        return text("ok")

    async def readyz(_: web.BaseRequest) -> web.Response:
        not_ready = ready()
        return text("\n".join(filter(None, (not_ready or "ok", problems()))), 503 if not_ready else 200)

    async def rendered() -> bytes:
        collectors = REGISTRY, jobs()
        loop = asyncio.get_running_loop()
        return b"".join([await loop.run_in_executor(renderer, generate_latest, each) for each in collectors])

    rendering: asyncio.Task[bytes] | None = None

    async def metrics(request: web.BaseRequest) -> web.Response:
        nonlocal rendering
        if access is not None and (status := await access(_token(request))) is not HTTPStatus.OK:
            challenge = {"WWW-Authenticate": "Bearer"} if status is HTTPStatus.UNAUTHORIZED else {}
            return text(status.phrase, status, **challenge)
        # Requests in the meantime get the same text, because a copy of the counts takes memory and time.
        if rendering is None or rendering.done():
            rendering = asyncio.create_task(rendered())
        return web.Response(body=await asyncio.shield(rendering), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    probes: dict[str, Page] = {"/healthz": healthz, "/readyz": readyz}
    everything = _pages({**probes, "/metrics": metrics}), "--port", ports[0], IDLE_SECONDS
    for_kubelet = _pages(probes), "--probe-port", ports[1], PROBE_IDLE_SECONDS
    first, second = [await _listen(stack, *server) for server in (everything, for_kubelet)]
    return first, second


async def _listen(stack: AsyncExitStack, page: Page, flag: str, port: int, idle_seconds: float) -> int:
    server = FairServer(page, idle_seconds)
    try:
        listening_on = await server.listen(port)
    except OSError as error:
        raise PortTakenError(flag, port, error) from error
    stack.push_async_callback(server.close)
    return listening_on


def _pages(pages: Mapping[str, Page]) -> Page:
    async def answer(request: web.BaseRequest) -> web.Response:
        if request.path not in pages:
            return text(f"this port serves {', '.join(pages)}", HTTPStatus.NOT_FOUND)
        if request.method not in {"GET", "HEAD"}:
            return text(f"{request.path} allows only GET and HEAD", HTTPStatus.METHOD_NOT_ALLOWED, Allow="GET, HEAD")
        return await pages[request.path](request)

    return answer


def _token(request: web.BaseRequest) -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
