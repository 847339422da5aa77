"""The operator's own pages: /healthz and /readyz for the kubelet, /metrics for Prometheus."""

import socket
from collections.abc import Callable, Mapping

from aiohttp import web
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from .metrics import JOBS, REGISTRY

Question = Callable[[], str]
"""Returns what is wrong, or nothing."""


async def serve(
    port: int, *, ready: Question, beside: Question, states: Callable[[], Mapping[str, int]]
) -> tuple[web.AppRunner, int]:
    """Serves on all addresses; port 0 takes a free one. Returns the running server and its port.

    `beside`: what is wrong while everything else goes on; `states`: how many jobs are in each.
    """

    async def healthz(_: web.Request) -> web.Response:
        # An answer is all that counts: how long a job takes depends on the API server, and every request ends in
        # time.
        return _answer("")

    async def readyz(_: web.Request) -> web.Response:
        return _answer(ready(), beside())

    async def metrics(_: web.Request) -> web.Response:
        JOBS.clear()
        for state, count in states().items():
            JOBS.labels(state).set(count)
        return web.Response(body=generate_latest(REGISTRY), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    listener = _listener(port)
    await web.SockSite(runner, listener).start()
    return runner, listener.getsockname()[1]


def _listener(port: int) -> socket.socket:
    """One port for both IPv4 and IPv6, if there is IPv6."""
    dual = socket.has_dualstack_ipv6()
    return socket.create_server(("", port), family=socket.AF_INET6 if dual else socket.AF_INET, dualstack_ipv6=dual)


def _answer(wrong: str, beside: str = "") -> web.Response:
    said = "\n".join(filter(None, (wrong or "ok", beside)))
    return web.Response(text=f"{said}\n", status=503 if wrong else 200)
