"""The server of `ddpjob dashboard`: its files, and what its page asks for. Only this module imports aiohttp.

A stream tells what has changed since its last event, so that a page costs little however many jobs there are. A page
has one stream for all that it shows, because a browser opens only six connections to a server.
"""

import asyncio
import base64
import hashlib
import json
import re
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from aiohttp import web

from ddpjob_operator.api import BadInputError
from ddpjob_operator.cli.run_logs import SEQUENCE
from ddpjob_operator.cli.top.actions import OURSELVES
from ddpjob_operator.text import one_line
from ddpjob_operator.view_model import without_secrets

from .board import TROUBLE, Board
from .guard import Guard

WEB = Path(__file__).with_name("web")
TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".svg": "image/svg+xml",
}
"""The files that are served, by their endings. The system's own table may say anything."""
SOON_SECONDS = 0.2
"""How soon a change is told: changes that come together are told together."""
JOBS_SECONDS, DETAIL_SECONDS = 1.0, 3.0
"""How often ages and files are looked at, and the status page of a job."""
ALIVE_SECONDS = 15.0
"""How often a stream without news says that it lives, so that the end of its reader is noticed."""
MOST_JOBS = 16
"""How many jobs a stream shows in full."""
LOG_SECONDS = 0.1
LOG_LINES = 500
"""A piece of a log has at most so many lines, and waits so long for more of them."""
LONGEST_LINE = 4096
LARGEST_REQUEST = 1 << 16
ENDING_SECONDS = 1.0
INLINE = re.compile(rb"<script[^<>]*>([^<]+)</script>")

T = TypeVar("T")
State = dict[str, Any]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def serve(board: Board, guard: Guard, listening: socket.socket) -> None:
    """Serves the pages of a board until the user presses Ctrl-C."""
    web.run_app(
        application(board, guard),
        sock=listening,
        print=None,
        access_log=None,
        shutdown_timeout=ENDING_SECONDS,
        handler_cancellation=True,
    )


def application(board: Board, guard: Guard) -> web.Application:
    """The server, which follows the board's feeds while it runs."""
    files = {f"/{file.relative_to(WEB).as_posix()}": file for file in WEB.rglob("*") if file.suffix in TYPES}
    contents = {path: (file.read_bytes(), TYPES[file.suffix]) for path, file in files.items()}
    contents["/"] = contents.pop("/index.html")
    headers = headers_of(contents["/"][0])

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        if why := guard.refusal(request.path, request.headers):
            return web.Response(status=403, text=why)
        try:
            return await handler(request)
        except TROUBLE as error:
            return web.json_response({"problem": one_line(str(error))}, status=422)

    async def add_headers(_: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(headers)

    async def file(request: web.Request) -> web.Response:
        if request.path not in contents:
            raise web.HTTPNotFound
        body, kind = contents[request.path]
        return web.Response(body=body, content_type=kind, charset="utf-8")

    async def following(_: web.Application) -> AsyncIterator[None]:
        board.follow()
        yield
        board.stop()

    app = web.Application(middlewares=[guarded], client_max_size=LARGEST_REQUEST)
    app.on_response_prepare.append(add_headers)
    app.cleanup_ctx.append(following)
    app[BOARD] = board
    app.add_routes(
        [
            web.get("/api/watch", _watch),
            web.get("/api/logs", _logs),
            web.get("/api/yaml", _yaml),
            web.get("/api/events", _events),
            web.post("/api/act", _act),
            web.get("/{file:.*}", file),
        ]
    )
    return app


BOARD = web.AppKey("board", Board)


def headers_of(page: bytes) -> dict[str, str]:
    """The headers of all answers: code comes from files of this server and lines of the page, by their hash."""
    hashes = (base64.b64encode(hashlib.sha256(code).digest()).decode() for code in INLINE.findall(page))
    code = " ".join(["'self'", *(f"'sha256-{value}'" for value in hashes)])
    return {
        "Content-Security-Policy": (
            f"default-src 'none'; script-src {code}; style-src 'self'; img-src 'self'; connect-src 'self';"
            " base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
            # No text becomes markup: the browser itself refuses innerHTML and the like.
            " require-trusted-types-for 'script'; trusted-types 'none'"
        ),
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }


async def _watch(request: web.Request) -> web.StreamResponse:
    """A stream of all jobs or, with `id`, of these jobs in full."""
    board, ids = request.app[BOARD], request.query.getall("id", [])[:MOST_JOBS]
    stream = await _stream(request)
    look: Callable[[], State] = (lambda: board.details(ids)) if ids else board.jobs
    told: State | None = None
    silent = 0.0
    with suppress(ConnectionError):  # The reader has gone.
        while True:
            version, state = board.version, await aside(look)
            if change := difference(told, state):
                await _tell(stream, change)
                silent = 0.0
            elif silent >= ALIVE_SECONDS:
                await stream.write(b":\n\n")
                silent = 0.0
            told = state
            silent += await _until_worth_a_look(board, version, DETAIL_SECONDS if ids else JOBS_SECONDS)
    return stream


async def _until_worth_a_look(board: Board, version: int, longest: float) -> float:
    """Waits until a job has changed since `version`, or time is up; how long that was, in seconds."""
    waited = 0.0
    while waited < SOON_SECONDS or (waited < longest and board.version == version):
        await asyncio.sleep(SOON_SECONDS)
        waited += SOON_SECONDS
    return waited


def difference(before: State | None, after: State) -> State:
    """What an event says: which values are new or have changed, and which are gone. Empty if it is nothing.

    Example:
        >>> difference({"a": 1, "b": 2}, {"a": 1, "c": 3})
        {'put': {'c': 3}, 'gone': ['b']}
    """
    known = {} if before is None else before
    put = {name: value for name, value in after.items() if name not in known or known[name] != value}
    gone = [name for name in known if name not in after]
    return {"put": put, "gone": gone} if put or gone or before is None else {}


async def _logs(request: web.Request) -> web.StreamResponse:
    """A stream of a job's log as `ddpjob logs` prints it: in pieces of whole lines."""
    board, query = request.app[BOARD], request.query
    words = await aside(lambda: board.log_command(query.get("id", ""), query.get("attempt", "")))
    stream = await _stream(request)
    process = await asyncio.create_subprocess_exec(
        *(*OURSELVES, *words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    try:
        with suppress(ConnectionError):
            async for lines in pieces(process.stdout):
                await _tell(stream, {"lines": [*map(shown, lines)]})
            await _tell(stream, {"ended": await process.wait()})
    finally:
        with suppress(ProcessLookupError):
            process.kill()
    return stream


async def pieces(output: asyncio.StreamReader) -> AsyncIterator[list[str]]:
    """The lines of a program's output, as they come. A line that is too long is divided."""
    rest = b""
    while data := await output.read(LINES_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        if len(rest) > LONGEST_LINE:
            lines, rest = [*lines, rest], b""
        for at in range(0, len(lines), LOG_LINES):
            yield [line.decode(errors="replace") for line in lines[at : at + LOG_LINES]]
        await asyncio.sleep(LOG_SECONDS)
    if rest:
        yield [rest.decode(errors="replace")]


LINES_BYTES = 1 << 16


def shown(line: str) -> str:
    """A line of a log for a page: short, without colours, control characters and secrets."""
    return one_line(without_secrets(SEQUENCE.sub("", line[:LONGEST_LINE])).removesuffix("\r"))


async def _yaml(request: web.Request) -> web.Response:
    board, job_id = request.app[BOARD], request.query.get("id", "")
    return web.json_response({"text": await aside(lambda: board.text(job_id))})


async def _events(request: web.Request) -> web.Response:
    board, job_id = request.app[BOARD], request.query.get("id", "")
    return web.json_response({"events": await aside(lambda: board.events(job_id))})


async def _act(request: web.Request) -> web.Response:
    board = request.app[BOARD]
    try:
        asked = await request.json()
        job_id, name, given = (str(asked.get(part, "")) for part in ("id", "act", "given"))
    except (ValueError, AttributeError, RecursionError):
        raise BadInputError("this is not a request to act on a job") from None
    succeeded, said = await aside(lambda: board.act(job_id, name, given))
    return web.json_response({"succeeded": succeeded, "said": said})


async def _stream(request: web.Request) -> web.StreamResponse:
    stream = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
    await stream.prepare(request)
    return stream


async def _tell(stream: web.StreamResponse, event: State) -> None:
    await stream.write(f"data: {json.dumps(event, separators=(',', ':'))}\n\n".encode())


def aside(do: Callable[[], T]) -> "asyncio.Future[T]":
    """Calls a function in a thread of its own that, if it hangs, does not keep the process from ending."""
    answer: Future[T] = Future()
    answer.set_running_or_notify_cancel()  # From now on nobody can cancel it, so that there is somebody to answer.

    def call() -> None:
        try:
            answer.set_result(do())
        except BaseException as error:  # noqa: BLE001  It is raised where the answer is awaited.
            answer.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    return asyncio.wrap_future(answer)
