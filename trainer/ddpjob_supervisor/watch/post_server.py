"""Accepts the progress that rank 0's program posts, in Kubeflow's protocol, on this machine's loopback address.

Hugging Face's Trainer posts by itself if the environment names a server. Only callers with the token are believed,
which is in a file of this user, and each attempt has an address of its own. Nothing depends on it: if it cannot
listen, training goes on, and steps are still counted.
"""

import asyncio
import hmac
import importlib
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ddpjob_supervisor.listening import listen_on

from .beat import Beat
from .post import Post, merged, read_post

if TYPE_CHECKING:
    from aiohttp import web

    from ddpjob_supervisor.web import FairServer

URL, TOKEN = "KUBEFLOW_TRAINER_SERVER_URL", "KUBEFLOW_TRAINER_SERVER_TOKEN"
PROXIES = frozenset({"http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"})

Answer = tuple[HTTPStatus, str]

LOOPBACK = "127.0.0.1"
CONNECTIONS = 8
BODY_BYTES = 1 << 16
READ_SECONDS = 5.0
"""As long as Hugging Face's Trainer waits for an answer."""


class PostServer:
    """Listens as long as its context lasts, and keeps the last post of the present attempt."""

    def __init__(self, directory: Path) -> None:
        """`directory` is one that no other user can look into."""
        self._token = secrets.token_urlsafe(32)
        self._token_file = directory / "token"
        self._listener: socket.socket | None = None
        self._serving: asyncio.Task[None] | None = None
        self._web: Any = None
        self._server: FairServer | None = None
        self._attempt = 0
        self._last: Post | None = None
        self._beat: Callable[[], Beat | None] = lambda: None

    async def __aenter__(self) -> Self:
        """Starts to listen, without waiting until it can answer."""
        with suppress(OSError):
            self._token_file.touch(mode=0o600)
            self._token_file.write_text(self._token, encoding="ascii")
            self._listener = listen_on(LOOPBACK, 0)
            self._serving = asyncio.create_task(self._serve(self._listener))
        return self

    async def __aexit__(self, *_: object) -> None:
        """Closes all connections."""
        if self._serving is not None:
            await self._serving
        if self._server is not None:
            await self._server.close()

    def begin(self, attempt: int, beat: Callable[[], Beat | None]) -> None:
        """From now on only posts of this attempt count; `beat` reads what rank 0 reports by its heartbeat."""
        self._attempt, self._last, self._beat = attempt, None, beat

    def env(self, env: Mapping[str, str]) -> dict[str, str]:
        """Variables that point a program of the present attempt here, unless its environment points elsewhere."""
        if self._listener is None or URL in env:
            return {}
        port = self._listener.getsockname()[1]
        here = {URL: f"http://{LOOPBACK}:{port}{self._path}", TOKEN: str(self._token_file)}
        if PROXIES & env.keys():  # No proxy can reach this machine's loopback address.
            spared = env.get("no_proxy") or env.get("NO_PROXY")
            here["no_proxy"] = f"{spared},{LOOPBACK}" if spared else LOOPBACK
        return here

    def merged(self, beat: Beat | None) -> Beat | None:
        """What rank 0 reports: by this heartbeat, and by what its program has posted."""
        return merged(beat, self._last, self._attempt, time.monotonic())

    @property
    def _path(self) -> str:
        return f"/attempts/{self._attempt}"

    async def _serve(self, listener: socket.socket) -> None:
        try:
            ours = await asyncio.to_thread(importlib.import_module, "ddpjob_supervisor.web")
            self._web = ours.web
            self._server = ours.FairServer(self._answer, CONNECTIONS, keepalive_timeout=READ_SECONDS)
            self._server.listen(listener)
        except Exception:  # noqa: BLE001  Whatever is wrong with a library, it must not end a training.
            self._server = self._listener = None
            listener.close()

    async def _answer(self, request: "web.BaseRequest") -> "web.Response":
        status, words = self._refusal(request) or await self._hear(request)
        response: web.Response = self._web.Response(status=status, text=f"{words}\n")
        return response

    def _refusal(self, request: "web.BaseRequest") -> Answer | None:
        """Why the request is refused before its body is read; None if it is not."""
        proof = request.headers.get("Authorization", "").encode(errors="replace")
        if not hmac.compare_digest(proof, f"Bearer {self._token}".encode()):
            return HTTPStatus.UNAUTHORIZED, "the token is another one"
        if request.path != self._path:
            return HTTPStatus.NOT_FOUND, f"there is {self._path}"
        if request.method != "POST":
            return HTTPStatus.METHOD_NOT_ALLOWED, f"{self._path} knows POST"
        return None

    async def _hear(self, request: "web.BaseRequest") -> Answer:
        content = b""
        try:
            async with asyncio.timeout(READ_SECONDS):
                async for part in request.content.iter_any():
                    content += part
                    if len(content) > BODY_BYTES:
                        return HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {BODY_BYTES // 1024} KiB are read"
            post = read_post(content, self._beat(), time.monotonic())
        except TimeoutError:
            return HTTPStatus.REQUEST_TIMEOUT, f"it took more than {READ_SECONDS:.0f} s"
        except ValueError as error:
            return HTTPStatus.BAD_REQUEST, str(error)
        if request.path == self._path:  # Otherwise the attempt has ended meanwhile.
            self._last = post.after(self._last)
        return HTTPStatus.OK, "ok"
