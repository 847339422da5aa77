"""Ranks as children of a zygote, which has already imported everything."""

import asyncio
import contextlib
import itertools
import json
import os
import signal
from typing import Any, Self

from ddpjob_rank.errors import ConfigError, TrainerError

from ddpjob_supervisor.watch.threads import in_thread

from . import open_files
from .ranks import Launch, Rank, StartError, exit_code
from .zygote_process import Preload, ZygoteProcess, start_zygote

LINE_BYTES = 1 << 20


class Warm:
    """Starts ranks by requests to a zygote.

    The zygote imports modules immediately, and the first rank waits for that.
    """

    def __init__(self, preload: Preload, zygote: ZygoteProcess | None = None) -> None:
        """`zygote` is a zygote that was already started with the same `preload`."""
        self._preload = preload
        self._started = zygote
        self._zygote: _Zygote | None = None
        self._replacing = asyncio.Lock()

    @property
    def zygote(self) -> int | None:
        """The process ID of the zygote; None before it is started."""
        return None if self._zygote is None else self._zygote.pid

    @property
    def pids(self) -> set[int]:
        """The IDs of the child processes that this object reaps."""
        return set() if self._zygote is None else {self._zygote.pid}

    async def __aenter__(self) -> Self:
        """Starts the zygote, but does not wait until it is ready."""
        await self._living()
        return self

    async def ready(self) -> None:
        """Waits until the zygote has imported everything. Starts a new zygote if the last one has ended.

        Raises:
            ConfigError: The zygote cannot import one of the modules.
            StartError: The zygote ended before it had imported them.
        """
        await (await self._living()).ready()

    async def start(self, launch: Launch) -> Rank:
        """Starts a rank. If the last zygote has ended, starts a new one first.

        Raises:
            ConfigError: The zygote cannot import a module of `--preload`.
            StartError: The zygote ended before it could fork the rank.
        """
        return await (await self._living()).fork(launch)

    async def __aexit__(self, *_: object) -> None:
        """Kills the zygote and, with it, its ranks."""
        if self._zygote is not None:
            await self._zygote.end()

    async def _living(self) -> "_Zygote":
        async with self._replacing:  # The ranks of a node start concurrently, but must all come from the same zygote.
            if self._zygote is None or self._zygote.ended:
                process, self._started = self._started or start_zygote(self._preload), None
                self._zygote = await _Zygote.of(process)
            return self._zygote


class _Zygote:
    """A zygote, its unanswered requests, and the ranks forked from it. The ranks end when the zygote ends."""

    def __init__(self, process: ZygoteProcess, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.pid = process.pid
        self.ended = False
        self._process = process
        self._writer = writer
        self._numbers = itertools.count()
        self._asked: dict[int, asyncio.Future[Rank]] = {}
        self._ranks: dict[int, Rank] = {}
        self._decided = asyncio.Event()
        """Set when the zygote is ready, or has ended."""
        self._failure: TrainerError = StartError("the process that ranks are forked from has ended")
        self._listening = asyncio.create_task(self._listen(reader))

    @classmethod
    async def of(cls, process: ZygoteProcess) -> Self:
        open_files.restore_limit(process.pid)
        return cls(process, *await asyncio.open_connection(sock=process.connection, limit=LINE_BYTES))

    async def ready(self) -> None:
        await self._decided.wait()
        if self.ended:
            raise self._failure

    def fork(self, launch: Launch) -> asyncio.Future[Rank]:
        number = next(self._numbers)
        rank = self._asked[number] = asyncio.get_running_loop().create_future()
        request = {
            "id": number,
            "program": launch.program.words,
            "env": dict(launch.env),
            "cores": None if launch.cores is None else sorted(launch.cores),
            "directory": None if launch.directory is None else str(launch.directory),
        }
        self._writer.write(json.dumps(request).encode() + b"\n")
        return rank

    async def end(self) -> None:
        self._process.kill()
        await asyncio.wait([self._listening])

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            with contextlib.suppress(OSError):  # The zygote ended before it read all requests.
                while (line := await reader.readline()).endswith(b"\n"):
                    self._handle(json.loads(line))
        finally:
            self._process.kill()
            await in_thread(self._process.wait)
            self._writer.close()
            self._mark_ended()

    def _handle(self, said: dict[str, Any]) -> None:
        match said:
            case {"ready": True}:
                self._decided.set()
            case {"error": message}:
                self._failure = ConfigError(message)
            case {"id": number, "pid": pid}:
                rank = self._ranks[pid] = Rank(pid)
                asked = self._asked.pop(number)
                if asked.done():  # The caller no longer waits for the rank.
                    rank.kill()
                else:
                    asked.set_result(rank)
            # Other child processes may have been started by preloaded modules.
            case {"pid": pid, "status": status} if pid in self._ranks:
                self._ranks.pop(pid).ended.set_result(exit_code(os.waitstatus_to_exitcode(status)))

    def _mark_ended(self) -> None:
        self.ended = True
        self._decided.set()
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(self._failure)
        for rank in self._ranks.values():
            rank.ended.set_result(exit_code(-signal.SIGKILL))
