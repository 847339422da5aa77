"""A proxy between an operator and the API server: it names every request, keeps a log, and breaks what a plan says.

Plain HTTP towards the operator. `http://127.0.0.1:PORT/NUMBER` is the server of the operator's process NUMBER, so
that what a killed one still had under way is known, and comes to nothing.

Writes go through one at a time: what is done when a process dies is then a beginning of what it wanted to do.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web
from ddpjob_operator.api.contract import Label

from .calls import Call, Namer
from .dates import Dates
from .faults import (
    Answer,
    Armed,
    Crash,
    Drop,
    Effect,
    Gone,
    HalfOpen,
    Hang,
    Lag,
    Lost,
    Remember,
    Reset,
    Truncate,
)
from .witness import KINDS, NeverError

NOT_PASSED_ON = frozenset(
    {"authorization", "host", "connection", "accept-encoding", "content-length", "transfer-encoding"}
)
LISTS_AT_START = dict.fromkeys(KINDS, 1) | {"ddpjobs": 2}
"""The operator lists each kind before it begins to work, and kopf lists jobs before it watches them."""
SILENCE_SECONDS = 1.0
"""A watch that lags tells what it holds back once nothing has come for so long."""


@dataclass
class Record:
    """A request in the log."""

    call: Call
    process: int
    began: float
    body: bytes
    status: int = 0
    """The server's answer; 0 where it never heard of it."""
    injected: Effect | None = None
    answered: float = 0.0

    @property
    def done(self) -> bool:
        """Whether the server did as it was asked."""
        return 200 <= self.status < 300

    def __str__(self) -> str:
        broken = f" [{self.injected}]" if self.injected else ""
        return f"{self.began:9.3f} #{self.process} {self.call} -> {self.status or 'never heard'}{broken}"


@dataclass
class Proxy:
    """One operator's way to the API server."""

    upstream: aiohttp.ClientSession
    armed: list[Armed] = field(default_factory=list)
    log: list[Record] = field(default_factory=list)
    told: list[tuple[float, Call]] = field(default_factory=list)
    """What watches would have told, undisturbed."""
    process: int = 0
    """The number of the operator's newest process."""
    watching: set[tuple[int, str]] = field(default_factory=set)
    """Processes, and the resources of which they have an open watch."""
    remembered: dict[str, bytes] = field(default_factory=dict)
    """Lists as they once were."""
    port: int = 0
    dates: Dates | None = None
    """What time it is by the servers behind it; None: the right one."""
    last_words: dict[tuple[int, str], float] = field(default_factory=dict)
    """By process and resource: the next change is done at once and answered so many seconds after the look before it,
    and nothing that is asked later ever arrives."""
    cut_off: set[tuple[int, str]] = field(default_factory=set)
    """Processes, and the resources of which nothing that they ask arrives any more."""

    def __post_init__(self) -> None:
        self.crash: Callable[[], Awaitable[None]]
        """Kills the operator and starts another one."""
        self.remember: Callable[[], Awaitable[None]]
        """Keeps lists of what is so now."""
        self._old_lists: dict[tuple[int, str], int] = {}
        self.names = Namer()
        self._changed = asyncio.Condition()
        self._turn = asyncio.Lock()
        self._ended: defaultdict[int, asyncio.Event] = defaultdict(asyncio.Event)
        self._tasks: set[asyncio.Task[web.StreamResponse]] = set()

    async def start(self) -> web.ServerRunner:
        """Listens; whoever asked cleans up."""
        server = web.Server(self._serve, access_log=None)
        runner = web.ServerRunner(server, shutdown_timeout=5.0)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.port = runner.addresses[0][1]
        return runner

    def url(self, process: int) -> str:
        """Where an operator's process finds its API server."""
        return f"http://127.0.0.1:{self.port}/{process}"

    def arm(self, *faults: Armed) -> None:
        """From now on these faults wait for their moment."""
        self.armed += faults

    def hang_up(self, process: int) -> None:
        """This process is gone, and nobody listens to its watches any more."""
        self._ended[process].set()

    def travel_back(self) -> None:
        """The first lists of the next process tell what was so when it was remembered."""
        self._old_lists = {(self.process + 1, kind): LISTS_AT_START[kind] for kind in self.remembered}

    def untold(self) -> Iterator[str]:
        """Kinds of which nobody has been told yet what once was, though it was planned."""
        return (kind for (_, kind), left in self._old_lists.items() if left == LISTS_AT_START[kind])

    async def until(self, so: Callable[[], bool], seconds: float) -> None:
        """Waits for something to be so of what has passed by.

        Raises:
            NeverError: it was not.
        """
        try:
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(so)
        except TimeoutError:
            log = "\n".join(map(str, self.log[-20:]))
            raise NeverError(f"not within {seconds:.0f} s; open watches: {self.watching}\n{log}") from None

    async def drained(self) -> None:
        """Until nothing is under way any more, were it for 20 s."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        response = await self._respond(request)
        if not response.prepared:
            response.headers.update(self._date(request))
        return response

    def _date(self, request: web.BaseRequest) -> dict[str, str]:
        if self.dates is None or request.transport is None:
            return {}
        process = int(request.path.split("/", 2)[1])
        return {"Date": self.dates.of(request.transport.get_extra_info("peername"), process)}

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        _, process, path = request.path.split("/", 2)
        path, query, body = f"/{path}", dict(request.query), await request.read()
        call = self.names.request(request.method, path, query, body)
        record = Record(call, int(process), self._now(), body)
        self.log.append(record)
        effect = record.injected = self._effect(call)
        made_up = self._instead(request, effect)
        if made_up is not None:
            return made_up
        if call.verb == "watch":
            return await self._watch(request, path, record)
        # What was begun is ended, whether or not somebody still waits for it.
        task = asyncio.create_task(self._answer(request, path, record))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def _answer(self, request: web.BaseRequest, path: str, record: Record) -> web.StreamResponse:
        effect = record.injected
        if isinstance(effect, Hang):
            await asyncio.sleep(effect.seconds)
        if record.call.writes:
            async with self._turn:
                return await self._write(request, path, record)
        if (asked := (record.process, record.call.resource)) in self.cut_off:
            await self._ended[record.process].wait()
            return _torn(request)
        answer = await self._pass_on(request, path, record)
        if record.call.verb == "update" and (seconds := self.last_words.get(asked)) is not None:
            self.cut_off.add(asked)
            looks = (
                one.began for one in self.log if (one.process, one.call.resource, one.call.verb) == (*asked, "get")
            )
            await asyncio.sleep(max(looks, default=record.began) + seconds - self._now())
        return _torn(request) if isinstance(effect, Lost) else answer

    def _instead(self, request: web.BaseRequest, effect: Effect | None) -> web.StreamResponse | None:
        """What is answered without the server, if it is not to be asked."""
        match effect:
            case Answer():
                return self._made_up(effect)
            case Reset():
                return _torn(request)
        return None

    async def _write(self, request: web.BaseRequest, path: str, record: Record) -> web.StreamResponse:
        effect = record.injected
        if self._ended[record.process].is_set() and not isinstance(effect, Hang):
            return _torn(request)
        if effect == Crash(after=False):
            await self.crash()
            return _torn(request)
        answer = await self._pass_on(request, path, record)
        if effect == Crash(after=True):
            await self.crash()
        if effect == Remember():
            await self.remember()
        return _torn(request) if isinstance(effect, Lost | Crash) else answer

    async def _pass_on(self, request: web.BaseRequest, path: str, record: Record) -> web.StreamResponse:
        if record.call.verb == "list" and self._is_old(record, request):
            record.status = 200
            return web.Response(body=self.remembered[record.call.resource], content_type="application/json")
        async with self._asked(request, path, record.body) as answer:
            content = await answer.read()
            record.status, record.answered = answer.status, self._now()
            async with self._changed:
                self._changed.notify_all()
            headers = {key: answer.headers[key] for key in ("Retry-After",) if key in answer.headers}
            return web.Response(status=answer.status, body=content, content_type="application/json", headers=headers)

    def _is_old(self, record: Record, request: web.BaseRequest) -> bool:
        """Whether a list tells of the past; one of a single job's pods is a live look."""
        key = (record.process, record.call.resource)
        left = self._old_lists.get(key, 0)
        if not left or Label.JOB_UID in request.query.get("labelSelector", ""):
            return False
        self._old_lists[key] = left - 1
        return True

    def _asked(self, request: web.BaseRequest, path: str, body: bytes) -> Any:
        headers = {key: value for key, value in request.headers.items() if key.lower() not in NOT_PASSED_ON}
        url = path + (f"?{request.query_string}" if request.query_string else "")
        return self.upstream.request(
            request.method, url, data=body or None, headers=headers, skip_auto_headers=["Accept-Encoding"]
        )

    async def _watch(self, request: web.BaseRequest, path: str, record: Record) -> web.StreamResponse:
        effect = record.injected
        if isinstance(effect, Hang):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended[record.process].wait(), effect.seconds)
        async with self._asked(request, path, b"") as upstream:
            record.status, record.answered = upstream.status, self._now()
            if upstream.status != 200:
                return web.Response(status=upstream.status, body=await upstream.read())
            response = web.StreamResponse(headers={"Content-Type": "application/json", **self._date(request)})
            response.enable_chunked_encoding()
            with self._open_watch(record), suppress(ConnectionResetError):
                await response.prepare(request)
                async with self._changed:
                    self._changed.notify_all()
                await self._tell(upstream, response, record)
            return response

    @contextmanager
    def _open_watch(self, record: Record) -> Iterator[None]:
        key = (record.process, record.call.resource)
        self.watching.add(key)
        try:
            yield
        finally:
            self.watching.discard(key)

    async def _tell(self, upstream: aiohttp.ClientResponse, response: web.StreamResponse, record: Record) -> None:
        """Passes a watch's lines on until it ends, or a fault ends it."""
        held: list[bytes] = []
        lag = 0
        while line := await self._next_line(upstream, response, record, held):
            call = self.names.told(record.call.resource, json.loads(line))
            self.told.append((self._now(), call))
            match self._effect(call):
                case Drop():
                    continue
                case Gone():
                    await response.write(json.dumps({"type": "ERROR", "object": _status(410, "Expired")}).encode())
                    await response.write(b"\n")
                    return
                case Truncate():
                    await response.write(line[: len(line) // 2])
                    return
                case HalfOpen():
                    await self._ended[record.process].wait()
                    return
                case Lag(events):
                    lag = events
            held.append(line)
            while len(held) > lag:
                await response.write(held.pop(0))

    async def _next_line(
        self, upstream: aiohttp.ClientResponse, response: web.StreamResponse, record: Record, held: list[bytes]
    ) -> bytes:
        """The next line, empty at the end; while nothing comes, what is held back is told after all."""
        reading = asyncio.ensure_future(upstream.content.readline())
        ended = asyncio.ensure_future(self._ended[record.process].wait())
        try:
            while True:
                silence = SILENCE_SECONDS if held else None
                done, _ = await asyncio.wait((reading, ended), timeout=silence, return_when=asyncio.FIRST_COMPLETED)
                if done:
                    return b"" if ended in done else reading.result()
                await response.write(held.pop(0))
        finally:
            reading.cancel()
            ended.cancel()

    def _effect(self, call: Call) -> Effect | None:
        now = self._now()
        struck = [armed.fault.effect for armed in self.armed if armed.strikes(call, now)]
        return struck[0] if struck else None

    def _made_up(self, answer: Answer) -> web.Response:
        headers = {} if answer.retry_after is None else {"Retry-After": str(answer.retry_after)}
        text = answer.body if answer.body is not None else json.dumps(_status(answer.status, answer.reason))
        return web.Response(status=answer.status, text=text, content_type="application/json", headers=headers)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _torn(request: web.BaseRequest) -> web.Response:
    """No answer: the connection is reset."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def _status(code: int, reason: str) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f"a fault that was planned: {reason}",
        "reason": reason,
        "code": code,
    }
