"""Ranks as children of a zygote, which has imported everything already."""

import asyncio
import itertools
import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any, Self

from .ranks import Place, Rank, StartError, exit_code

PRELOADED = ("torch", "torch.distributed", "torch.nn.parallel", "torch._dynamo")
"""What any rank imports until its first step; DistributedDataParallel's constructor takes torch._dynamo."""

OURS = ("ddpjob_trainer.training.run", "ddpjob_trainer.workloads.convnet", "ddpjob_trainer.workloads.mlp")
"""What a rank of `ddpjob-train` imports as well."""

LINE_BYTES = 1 << 20


class Warm:
    """Starts ranks by asking the zygote; its imports begin at once, and the first rank waits for them."""

    def __init__(self, preloaded: Sequence[str] = PRELOADED) -> None:
        self._preloaded = preloaded
        self._numbers = itertools.count()
        self._zygote: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._listening: asyncio.Task[None] | None = None
        self._asked: dict[int, asyncio.Future[Rank]] = {}
        self._ranks: dict[int, Rank] = {}

    @property
    def zygote(self) -> int | None:
        """The process from which ranks are forked."""
        return None if self._zygote is None else self._zygote.pid

    @property
    def pids(self) -> set[int]:
        """Processes that it waits for itself."""
        return set() if self._zygote is None else {self._zygote.pid}

    async def __aenter__(self) -> Self:
        """Starts the zygote, and does not wait until it is ready."""
        await self._spawn()
        return self

    async def start(self, place: Place) -> Rank:
        """Starts one, from a new zygote if the last one has ended.

        Raises:
            StartError: The zygote ended before it could.
        """
        if self._listening is None or self._listening.done():
            await self._spawn()
        assert self._writer is not None, "it was spawned"
        number = next(self._numbers)
        asked: asyncio.Future[Rank] = asyncio.get_running_loop().create_future()
        self._asked[number] = asked
        request = {
            "id": number,
            "program": place.program.words,
            "env": dict(place.env),
            "threads": place.threads,
            "cores": None if place.cores is None else sorted(place.cores),
        }
        self._writer.write(json.dumps(request).encode() + b"\n")
        return await asked

    async def __aexit__(self, *_: object) -> None:
        """Ends the zygote, and with it what it has started."""
        if self._writer is not None and self._zygote is not None and self._listening is not None:
            self._writer.close()
            await self._listening
            await self._zygote.wait()

    async def _spawn(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._zygote = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                f"{__package__}.zygote",
                str(theirs.fileno()),
                str(os.getpid()),
                *self._preloaded,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        reader, self._writer = await asyncio.open_connection(sock=ours, limit=LINE_BYTES)
        self._listening = asyncio.create_task(self._listen(reader))

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                self._heed(json.loads(line))
        finally:
            for asked in self._asked.values():
                asked.set_exception(StartError("the process that ranks are forked from has ended"))
            for rank in self._ranks.values():
                rank.ended.set_result(exit_code(-signal.SIGKILL))
            self._asked, self._ranks = {}, {}

    def _heed(self, said: dict[str, Any]) -> None:
        if "id" in said:
            rank = self._ranks[said["pid"]] = Rank(said["pid"])
            self._asked.pop(said["id"]).set_result(rank)
        else:
            self._ranks.pop(said["pid"]).ended.set_result(exit_code(os.waitstatus_to_exitcode(said["status"])))
