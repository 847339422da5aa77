"""An S3 server, which is not part of the tests' environment, and a proxy that disturbs requests to it."""

import asyncio
import io
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from urllib.request import Request, urlopen

import aiohttp
from aiohttp import web

from tests.plant.build import uv
from tests.support.waiting import patience

LOCK = Path(__file__).parents[2] / "requirements" / "s3-server.txt"
# One request at a time, because the server could serve another request between a check and its write.
SERVER = """
import sys, threading
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server
app, one = DomainDispatcherApplication(create_backend_app), threading.Lock()
def alone(environ, start_response):
    with one:
        return list(app(environ, start_response))
server = make_server("127.0.0.1", 0, alone, threaded=True, request_handler=MotoRequestHandler)
print(server.server_port, flush=True)
server.serve_forever()
"""


def install(directory: Path) -> None:
    """Installs the server into a directory outside the environment, for PYTHONPATH."""
    words = ["pip", "install", "--quiet", "--python", sys.executable, "--require-hashes", "--requirement"]
    subprocess.run([uv() or "uv", *words, str(LOCK), "--target", str(directory)], check=True)


@contextmanager
def serving(directory: Path, log: Path, **env: str) -> Iterator[int]:
    """Runs the server that is installed in `directory`, and yields its port."""
    environ = {**os.environ, "PYTHONPATH": str(directory), **env}
    with log.open("w") as errors:
        server = subprocess.Popen(
            [sys.executable, "-c", SERVER], env=environ, stdout=subprocess.PIPE, stderr=errors, text=True
        )
    assert server.stdout
    try:
        port = server.stdout.readline()
        assert port, log.read_text()
        yield int(port)
    finally:
        server.kill()
        server.communicate()


def make_bucket(port: int, name: str) -> None:
    urlopen(Request(f"http://127.0.0.1:{port}/{name}", method="PUT"), timeout=patience(30))


def environment(port: int, host: str = "127.0.0.1") -> dict[str, str]:
    """What a client needs to find the server."""
    return {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "an-id",
        "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI-of-the-tests",
        "AWS_REGION": "us-east-1",
    }


class Trouble(Enum):
    """What the proxy does to a request."""

    UNAVAILABLE = auto()
    """It is answered by 503, and does not reach the server."""
    LOST = auto()
    """The server carries it out, and its answer is lost."""
    REFUSED = auto()
    """It is answered by 403."""
    SILENT = auto()
    """It is never answered, and does not reach the server."""


REFUSAL = "<Error><Code>AccessDenied</Code><StringToSign>wJalrXUtnFEMI-of-the-tests</StringToSign></Error>"


@dataclass
class Proxy:
    """Requests that go through it are in trouble while their method and path contain what `troubles` has."""

    server_port: int
    port: int = 0
    method: str = ""
    part: str = ""
    trouble: Trouble | None = None
    left: int = 0
    """How many more requests to disturb."""
    troubled: int = 0
    """How many requests were disturbed."""

    def trouble_next(self, count: int, trouble: Trouble, method: str = "", part: str = "") -> None:
        """Disturbs the next requests with this method and with `part` in their paths."""
        self.troubled, self.trouble, self.method, self.part, self.left = 0, trouble, method, part, count

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        trouble = None
        if self.left > 0 and self.method in request.method and self.part in request.raw_path:
            self.left, self.troubled, trouble = self.left - 1, self.troubled + 1, self.trouble
        if trouble is Trouble.UNAVAILABLE:
            return web.Response(status=503, text="<Error><Code>SlowDown</Code></Error>")
        if trouble is Trouble.SILENT:
            await asyncio.Event().wait()
        if trouble is Trouble.REFUSED:
            return web.Response(status=403, text=REFUSAL)
        url = f"http://127.0.0.1:{self.server_port}{request.raw_path}"
        headers = {name: value for name, value in request.headers.items() if name.lower() != "host"}
        async with (
            aiohttp.ClientSession(auto_decompress=False) as session,
            session.request(request.method, url, data=io.BytesIO(body) if body else None, headers=headers) as answer,
        ):
            content = await answer.read()
        if trouble is Trouble.LOST and request.transport:
            request.transport.abort()
        kept = {name: value for name, value in answer.headers.items() if name.lower() not in HOP}
        return web.Response(status=answer.status, body=content, headers=kept)


HOP = {"connection", "transfer-encoding", "content-encoding", "server", "date"}


@contextmanager
def proxied(server_port: int, host: str = "127.0.0.1") -> Iterator[Proxy]:
    """A proxy in a thread, for tests without an event loop."""
    proxy, ready = Proxy(server_port), threading.Event()
    ended, loops = asyncio.Event(), list[asyncio.AbstractEventLoop]()

    async def serve() -> None:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{path:.*}", proxy.handle)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, host, 0)
        await site.start()
        proxy.port = runner.addresses[0][1]
        loops.append(asyncio.get_running_loop())
        ready.set()
        await ended.wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(patience(30)), "the proxy does not listen"
    try:
        yield proxy
    finally:
        loops[0].call_soon_threadsafe(ended.set)
        thread.join()
