"""A server of made-up jobs, and what it answers."""

import argparse
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import web
from ddpjob_operator.cli.dashboard.board import Board
from ddpjob_operator.cli.dashboard.guard import Guard
from ddpjob_operator.cli.dashboard.web_server import application

from tests.unit.cli.top.made_up import MadeUp

ARGUMENTS = argparse.Namespace(kubeconfig=None, context="here", history=None)


@dataclass
class Served:
    """A client that has the token."""

    guard: Guard
    session: aiohttp.ClientSession

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.guard.port}{path}"

    async def get(self, path: str, status: int = 200, **query: str) -> Any:
        async with self.session.get(self.url(path), params=query) as answer:
            assert answer.status == status, await answer.text()
            return await answer.json()

    async def act(self, job_id: str, name: str, given: str = "") -> tuple[int, Any]:
        asked = {"id": job_id, "act": name, "given": given}
        async with self.session.post(self.url("/api/act"), json=asked) as answer:
            return answer.status, await answer.json()

    async def events(self, path: str, **query: str) -> AsyncIterator[Any]:
        """The events of a stream."""
        async with self.session.get(self.url(path), params=query) as answer:
            assert answer.status == 200, await answer.text()
            assert answer.content_type == "text/event-stream"
            rest = ""
            async for data in answer.content.iter_any():
                *whole, rest = (rest + data.decode()).split("\n\n")
                for event in whole:
                    if event.startswith("data: "):
                        yield json.loads(event.removeprefix("data: "))


@asynccontextmanager
async def served(*feeds: MadeUp) -> AsyncIterator[Served]:
    """Serves these feeds for as long as the block runs."""
    listening = socket.create_server(("127.0.0.1", 0))
    guard = Guard(listening.getsockname()[1], "the-token")
    runner = web.AppRunner(
        application(Board(feeds, ARGUMENTS), guard), shutdown_timeout=0.1, handler_cancellation=True
    )
    await runner.setup()
    await web.SockSite(runner, listening).start()
    try:
        async with aiohttp.ClientSession(headers={"Authorization": "Bearer the-token"}) as session:
            yield Served(guard, session)
    finally:
        await runner.cleanup()
