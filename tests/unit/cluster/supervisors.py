"""Stands in for the supervisor in a rank 0's pod: a real server on this machine, with a status that a test writes."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from ddpjob_operator.engine import Asked, fingerprint

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
POD = "digits-0-abcde"
UID = "job-uid"
NOON = "2026-01-01T12:00:00.000Z"


def a_document(**more: Any) -> dict[str, Any]:
    """A status of job `digits`, as little of it as a listener needs."""
    return {
        "version": 1,
        "job": fingerprint(UID),
        "mark": "1",
        "attempt": 1,
        "phase": "Running",
        "since": NOON,
        **more,
    }


class Supervisor:
    """A status page that waits for news as the contract says."""

    def __init__(self, **what: Any) -> None:
        self.document = a_document(**what)
        self.asked = 0
        """Questions so far."""
        self.waiting: Counter[str] = Counter()
        """Those that wait for news, by the mark that they know."""
        self.most_waiting = 0
        self.waits: set[str] = set()
        """For how long they would."""
        self._changed = asyncio.Condition()

    async def says(self, **what: Any) -> None:
        """Another status, with another mark unless one is given."""
        async with self._changed:
            self.document = self.document | {"mark": str(int(self.document["mark"]) + 1)} | what
            self._changed.notify_all()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Waits until something holds of the questions."""
        async with self._changed:
            await self._changed.wait_for(condition)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answers at once or, asked to wait, once the mark is another one."""
        known, wait = request.headers.get("If-None-Match", ""), request.headers.get("Prefer", "wait=0")
        async with self._changed:
            self.asked += 1
            self.waiting[known] += 1
            self.waits.add(wait)
            self.most_waiting = max(self.waiting.total(), self.most_waiting)
            self._changed.notify_all()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(float(wait.removeprefix("wait="))):
                    await self._changed.wait_for(lambda: known != f'"{self.document["mark"]}"')
            self.waiting[known] -= 1
        return web.json_response(self.document, headers={"ETag": f'"{self.document["mark"]}"'})


@asynccontextmanager
async def serving(handler: Handler, port: int = 0) -> AsyncIterator[Asked]:
    """Serves GET /status with this handler; gives where."""
    app = web.Application()
    app.router.add_get("/status", handler)
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    assert site._server is not None
    listening = site._server.sockets[0].getsockname()[1]
    try:
        yield Asked(POD, "127.0.0.1", listening)
    finally:
        await runner.cleanup()
