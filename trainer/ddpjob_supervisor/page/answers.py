"""Answers requests to the status port.

Anyone who can reach the port may send requests, so everything is bounded and read-only.
"""

import asyncio
import contextlib
import json
import os
import platform
import re
import socket
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from aiohttp import web
from ddpjob_rank.environment import Env
from ddpjob_rank.machine.listening import Places, unmapped_address
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from ddpjob_supervisor.gang.addresses import is_loopback
from ddpjob_supervisor.web import FairServer

from . import first_page
from .document import Document
from .metrics import Metrics

LONGEST_WAIT_SECONDS = 30
WAITING = 64
"""How many clients may wait for changes at the same time. If there are more, the oldest client of the host with the
most waiting clients is answered immediately."""
CONNECTIONS = 128
"""How many connections may be open on which a request has begun."""
KEEPALIVE_SECONDS = 75.0
LINE_BYTES = 2048
"""The maximum length of the request line, and of each header."""

METHODS = ("GET", "HEAD")
PATHS = ("/", "/status", "/curve", "/metrics", "/healthz", "/stacks")
LOOK_SECONDS = 1.0
"""The shortest time between two interruptions of the ranks, however many clients request their stacks."""

Look = Callable[[], Awaitable[Document]]
"""Returns a document about what each rank is doing now."""

_WAIT = re.compile(r'(?:^|,)\s*wait\s*=\s*"?(\d{1,9})"?\s*(?:$|[,;])', re.IGNORECASE)
_NUMBER = re.compile("[0-9]{1,15}")


class Answers:
    """Answers requests from the current document."""

    def __init__(
        self, read: Callable[[], Document], look: Look | None = None, curve: Callable[[int], str] | None = None
    ) -> None:
        """`look` is None if this is not rank 0's supervisor, because only that one can reach all ranks.

        `curve` returns the records of the gang's curve after one of them, as JSON; None as with `look`.
        """
        self._read = read
        self._ask_ranks = look
        self._curve = curve
        self._looked, self._stacks = -LOOK_SECONDS, ""
        self._metrics = Metrics()
        self._mark = ""
        """The mark of the last document."""
        self._waiting: set[asyncio.Event] = set()
        """One event for each waiting client. It is set when the document changes, or when the client must make room
        for others."""
        self._places = Places[asyncio.Event](WAITING)
        self._look: asyncio.Handle | None = None
        self._closing = False
        self._server = FairServer(
            self._answer,
            CONNECTIONS,
            handler_cancellation=True,  # Otherwise a client that has gone away would keep waiting.
            keepalive_timeout=KEEPALIVE_SECONDS,
            max_line_size=LINE_BYTES,
            max_field_size=LINE_BYTES,
        )

    def listen(self, listener: socket.socket) -> None:
        """Answers clients that connect to this socket."""
        self._server.listen(listener)

    def changed(self) -> None:
        """Answers the waiting clients soon, if the document has changed. One check covers all changes until then."""
        if self._waiting and self._look is None:
            self._look = asyncio.get_running_loop().call_soon(self._look_for_news)

    async def close(self) -> None:
        """Answers waiting clients, and closes all connections."""
        self._closing = True
        self._answer_waiting()
        await self._server.close()

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        if request.path not in PATHS:
            return _refusal(HTTPStatus.NOT_FOUND, f"not found: the paths are {', '.join(PATHS)}")
        if request.method not in METHODS:
            allow = ", ".join(METHODS)
            return _refusal(HTTPStatus.METHOD_NOT_ALLOWED, f"{request.path} accepts only {allow}", Allow=allow)
        match request.path:
            case "/":
                answer = self._first_page(request)
            case "/status":
                answer = await self._status(request)
            case "/curve":
                answer = self._answer_curve(request)
            case "/metrics":
                content = self._metrics.exposition(self._document())
                answer = web.Response(body=content, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})
            case "/stacks":
                answer = await self._answer_stacks(request)
            case _:
                answer = web.Response(text="ok\n")
        return answer

    def _first_page(self, request: web.BaseRequest) -> web.Response:
        live = request.query_string == first_page.LIVE
        host, name = platform.node(), os.environ.get(Env.NAME)
        text = first_page.as_html(self._document(), f"{name} on {host}" if name else host, live=live)
        again = {"Refresh": str(first_page.AGAIN_SECONDS)} if live else {}
        return web.Response(text=text, content_type="text/html", charset="utf-8", headers=first_page.HEADERS | again)

    async def _status(self, request: web.BaseRequest) -> web.Response:
        document, seconds = self._document(), _wait_seconds(request)
        if seconds and any(tag.value == document["mark"] for tag in request.if_none_match or ()):
            await self._wait_for_news(unmapped_address(request.remote or ""), seconds)
            document = self._document()
        content = json.dumps(document, separators=(",", ":"), allow_nan=False)
        headers = {"ETag": f'"{document["mark"]}"', "Cache-Control": "no-store"}
        return web.Response(text=f"{content}\n", content_type="application/json", headers=headers)

    def _answer_curve(self, request: web.BaseRequest) -> web.Response:
        """The records of the curve after the one that the query names, or all that are kept."""
        if self._curve is None:
            return _refusal(HTTPStatus.NOT_FOUND, "only rank 0's supervisor has the curve")
        after = request.query.get("after", "0")
        if not _NUMBER.fullmatch(after):
            return _refusal(HTTPStatus.BAD_REQUEST, "after must be the number of a record, such as /curve?after=12")
        headers = {"Cache-Control": "no-store"}
        return web.Response(text=f"{self._curve(int(after))}\n", content_type="application/json", headers=headers)

    async def _answer_stacks(self, request: web.BaseRequest) -> web.Response:
        """What each rank is doing. Only for callers on this machine, because stacks reveal the program."""
        peer, own = (
            unmapped_address(str((request.get_extra_info(end) or ("",))[0])) for end in ("peername", "sockname")
        )
        if peer != own and not is_loopback(peer):
            return _refusal(HTTPStatus.FORBIDDEN, "stacks are shown only to callers on this machine or in this pod")
        if self._ask_ranks is None:
            return _refusal(HTTPStatus.NOT_FOUND, "only rank 0's supervisor shows stacks")
        now = asyncio.get_running_loop().time()
        if now >= self._looked + LOOK_SECONDS:
            self._looked, self._stacks = now, json.dumps(await self._ask_ranks(), separators=(",", ":"))
        return web.Response(text=f"{self._stacks}\n", content_type="application/json")

    async def _wait_for_news(self, host: str, seconds: float) -> None:
        """Waits until the document's mark changes, for at most `seconds`, or until `host` has too many clients."""
        turn = asyncio.Event()
        self._waiting.add(turn)
        if pushed_out := self._places.enter(host, turn):
            pushed_out[1].set()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0 if self._closing else seconds):
                    await turn.wait()
        finally:
            self._waiting.discard(turn)
            self._places.leave(host, turn)

    def _answer_waiting(self) -> None:
        for turn in self._waiting:
            turn.set()

    def _look_for_news(self) -> None:
        self._look = None
        self._document()

    def _document(self) -> Document:
        document = self._read()
        self._metrics.note(document)
        if document["mark"] != self._mark:
            self._mark = document["mark"]
            self._answer_waiting()
        return document


def _wait_seconds(request: web.BaseRequest) -> int:
    """How many seconds the client wants to wait for a change, at most LONGEST_WAIT_SECONDS; 0 for no wait.

    (https://www.rfc-editor.org/rfc/rfc7240#section-4.3)
    """
    preferred = _WAIT.search(",".join(request.headers.getall("Prefer", ())))
    return min(int(preferred[1]), LONGEST_WAIT_SECONDS) if preferred else 0


def _refusal(status: HTTPStatus, text: str, **headers: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n", headers=headers)
