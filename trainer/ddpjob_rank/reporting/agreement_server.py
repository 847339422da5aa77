"""What rank 0 serves for an agreement: the leader's connections, and the bytes that ranks send to rank 0."""

import asyncio
import hmac
import math
import secrets
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from functools import partial

from ddpjob_rank.machine.listening import SILENT, Door, Places, unmapped_address

from . import agreement_rules as rules
from . import agreement_wire as wire
from .agreement_leader import Leader
from .agreement_warnings import ranks


class RanksEndedError(TimeoutError):
    """Ranks have ended without sending their content."""


class SentContents:
    """What the ranks have sent, by name and rank, for any thread."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._changed = threading.Condition()
        self._contents: dict[str, dict[int, bytes]] = {}
        self._awaited = ""
        self._left: dict[int, float] = {}
        """When each rank that has ended did so, on the monotonic clock."""

    def leave(self, rank: int) -> None:
        """Notes that a rank has ended, so that nobody waits for its contents."""
        with self._changed:
            self._left[rank] = time.monotonic()
            self._changed.notify_all()

    def put(self, rank: int, name: str, content: bytes) -> None:
        """Keeps a content. If there are too many names, drops the contents of the oldest name."""
        with self._changed:
            self._contents.setdefault(name, {})[rank] = content
            others = [known for known in self._contents if known != self._awaited]
            if len(others) > rules.CONTENTS_KEPT:
                del self._contents[others[0]]
            self._changed.notify_all()

    def gathered(self, name: str, seconds: float) -> dict[int, bytes]:
        """Waits for the contents of all ranks, and hands them out. May be called again after an error.

        Raises:
            RanksEndedError: Some contents will not come, because their ranks have ended. The message names the ranks.
            TimeoutError: Some contents have not come within `seconds`. The message names their ranks.
        """
        with self._changed:
            self._awaited = name
            if self._changed.wait_for(lambda: len(self._contents.get(name, ())) == self._size, seconds):
                return dict(sorted(self._contents.pop(name).items()))
            missing = {*range(self._size)} - self._contents.get(name, {}).keys()
            # What a rank sends last may arrive after its connection has ended.
            until = time.monotonic() - rules.LAST_WORDS_SECONDS
            ended = sorted(rank for rank in missing if self._left.get(rank, math.inf) < until)
        if ended:
            raise RanksEndedError(f"{ranks(ended, 'has')} ended, and sent nothing")
        raise TimeoutError(f"{ranks(sorted(missing), 'has')} sent nothing")


async def serve(listener: socket.socket, token: str, size: int, leader: Leader, sent: SentContents) -> None:
    """Serves the ranks that connect. Other programs are disconnected."""
    # Ranks of one machine connect at the same moment. So of their host alone there may be two connections for each.
    unproved = Places[socket.socket](SILENT + 2 * size)

    async def attend(connection: socket.socket) -> None:
        # ValueError: the program is not a rank. CancelledError: the leader ends.
        with suppress(OSError, ValueError, asyncio.CancelledError), closing(wire.prepared(connection)):
            host = unmapped_address(connection.getpeername()[0])
            if pushed_out := unproved.enter(host, connection):
                wire.end(pushed_out[1])
            try:
                given, number, *rest = await wire.greeted(connection)
            finally:
                unproved.leave(host, connection)
            if hmac.compare_digest(given.encode(), token.encode()) and 0 < int(number) < size:
                await asyncio.get_running_loop().sock_sendall(connection, wire.WELCOME)
                await _serve_rank(connection, int(number), rest, leader, sent)

    door = Door(listener, attend, silent=SILENT + 2 * size)
    try:
        await asyncio.Event().wait()
    finally:
        door.close()


async def _serve_rank(
    connection: socket.socket, rank: int, content: Sequence[str], leader: Leader, sent: SentContents
) -> None:
    """Receives a content if these words are its name and size, and otherwise the rank's messages to the leader."""
    if content:
        name, size = content
        if 0 <= int(size) <= rules.CONTENT_BYTES:
            sent.put(rank, name, bytes(await wire.content(connection, int(size))))
            await asyncio.get_running_loop().sock_sendall(connection, wire.WELCOME)
        return
    tell = partial(wire.tell, connection)
    leader.join(rank, tell)
    try:
        async for word, numbers in wire.messages(connection):
            leader.hear(rank, word, numbers)
    finally:
        leader.leave(rank, tell)
        sent.leave(rank)


def new_token() -> str:
    """A secret by which ranks prove that they belong to the group."""
    return secrets.token_hex(16)
