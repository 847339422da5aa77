"""A proxy between an operator and the API server. It names and logs every request, and breaks what a plan says.

It speaks plain HTTP with the operator. `http://127.0.0.1:PORT/NUMBER` is the API server of the operator's process
NUMBER, so that requests of a killed process are recognized and have no effect.

Writes pass one at a time. So when a process dies, the first of the writes that it wanted are done, and no others.
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
"""For each kind, how many lists show the past after a start. The operator lists each kind before it starts, and kopf
lists jobs again before it watches them."""
SILENCE_SECONDS = 1.0
"""If nothing has happened for this long, a watch that lags delivers the events that it holds back."""


@dataclass
class Record:
    """A request in the log."""

    call: Call
    process: int
    began: float
    body: bytes
    status: int = 0
    """The status of the server's answer; 0 if the server did not receive the request."""
    injected: Effect | None = None
    answered: float = 0.0

    @property
    def done(self) -> bool:
        """Whether the server did what was requested."""
        return 200 <= self.status < 300

    def __str__(self) -> str:
        broken = f" [{self.injected}]" if self.injected else ""
        return f"{self.began:9.3f} #{self.process} {self.call} -> {self.status or 'never heard'}{broken}"


@dataclass
class Proxy:
    """One operator's connection to the API server."""

    upstream: aiohttp.ClientSession
    armed: list[Armed] = field(default_factory=list)
    log: list[Record] = field(default_factory=list)
    told: list[tuple[float, Call]] = field(default_factory=list)
    """The events that watches would have delivered without a fault."""
    process: int = 0
    """The number of the operator's newest process."""
    watching: set[tuple[int, str]] = field(default_factory=set)
    """Processes with an open watch, each with the watched resource."""
    remembered: dict[str, bytes] = field(default_factory=dict)
    """For each kind, the answer to a list at an earlier moment."""
    port: int = 0
    dates: Dates | None = None
    """The dates of the servers behind the proxy; None if they are right."""
    last_words: dict[tuple[int, str], float] = field(default_factory=dict)
    """Requests whose answer is delayed, by process and resource: the next update is done immediately, but answered
    this many seconds after the read before it, and no later request of that kind arrives."""
    cut_off: set[tuple[int, str]] = field(default_factory=set)
    """Processes, each with a resource about which its requests no longer arrive."""

    def __post_init__(self) -> None:
        self.crash: Callable[[], Awaitable[None]]
        """Kills the operator and starts another one."""
        self.remember: Callable[[], Awaitable[None]]
        """Keeps a list of each kind as it is now."""
        self._old_lists: dict[tuple[int, str], int] = {}
        self.names = Namer()
        self._changed = asyncio.Condition()
        self._turn = asyncio.Lock()
        self._ended: defaultdict[int, asyncio.Event] = defaultdict(asyncio.Event)
        self._tasks: set[asyncio.Task[web.StreamResponse]] = set()

    async def start(self) -> web.ServerRunner:
        """Starts to listen. The caller has to clean up."""
        server = web.Server(self._serve, access_log=None)
        runner = web.ServerRunner(server, shutdown_timeout=5.0)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.port = runner.addresses[0][1]
        return runner

    def url(self, process: int) -> str:
        """The URL of the API server for an operator's process."""
        return f"http://127.0.0.1:{self.port}/{process}"

    def arm(self, *faults: Armed) -> None:
        """Adds faults that wait for their moment."""
        self.armed += faults

    def hang_up(self, process: int) -> None:
        """Marks a process as gone, so that its requests and watches end."""
        self._ended[process].set()

    def travel_back(self) -> None:
        """Makes the first lists of the next process show the remembered state."""
        self._old_lists = {(self.process + 1, kind): LISTS_AT_START[kind] for kind in self.remembered}

    def untold(self) -> Iterator[str]:
        """Kinds whose remembered state should have been shown, but was not."""
        return (kind for (_, kind), left in self._old_lists.items() if left == LISTS_AT_START[kind])

    async def until(self, so: Callable[[], bool], seconds: float) -> None:
        """Waits until a condition on the requests and events so far is true.

        Raises:
            NeverError: It did not become true in time.
        """
        try:
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(so)
        except TimeoutError:
            log = "\n".join(map(str, self.log[-20:]))
            raise NeverError(f"not within {seconds:.0f} s; open watches: {self.watching}\n{log}") from None

    async def drained(self) -> None:
        """Waits until all requests have been answered, even those that take 20 s."""
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
        # A request that has begun is completed even if nobody waits for it any more.
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
        """An answer that is sent without asking the server, if there is one."""
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
        """Whether a list has to show the past. A list of a single job's pods always shows the present."""
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
        """Passes the lines of a watch on until it ends, or a fault ends it."""
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
        """The next line; empty at the end. If none comes for a while, delivers the lines that are held back."""
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
    """Resets the connection, so that there is no answer."""
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
