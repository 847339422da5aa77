"""What rank 0 serves for an agreement: the leader's connections, and the bytes that ranks send to rank 0."""

import asyncio
import hmac
import math
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import closing, suppress
from functools import partial
from itertools import takewhile

from ddpjob_rank.machine.listening import SILENT, Door, Places, unmapped_address

from . import agreement_rules as rules
from . import agreement_wire as wire
from .agreement_leader import Leader
from .agreement_warnings import ranks

NAMES_KEPT = 10_000
"""The most names of dropped contents that are kept for each rank, for a message."""


class NotSentError(TimeoutError):
    """Some ranks have not sent their contents. The message names them."""

    def __init__(self, missing: Sequence[int], what: str, *, final: bool = False, arriving: bool = False) -> None:
        super().__init__(f"{ranks(missing, 'has')} {what}")
        self.missing = missing
        self.arriving = arriving
        """Whether a content of each of these ranks is arriving: this one, or one before it."""
        self.final = final
        """Whether these contents will never come."""


class SentContents:
    """What the ranks have sent, by name and rank, for any thread."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._changed = threading.Condition()
        self._contents: list[dict[str, bytes]] = [{} for _ in range(size)]
        """The contents of each rank, by name, the oldest first."""
        self._dropped = [deque[str](maxlen=NAMES_KEPT) for _ in range(size)]
        self._awaited = ""
        self._arriving: dict[int, float] = {}
        """When the last bytes have come from each rank of whose present content some are missing."""
        self._left: dict[int, float] = {}
        """When each rank that has no connection any more lost it, on the monotonic clock."""

    def join(self, rank: int) -> None:
        """Notes that a rank has connected, maybe again."""
        with self._changed:
            self._left.pop(rank, None)

    def leave(self, rank: int) -> None:
        """Notes that a rank has ended or its connection is lost, so that nobody waits long for its contents."""
        with self._changed:
            self._left[rank] = time.monotonic()
            self._changed.notify_all()

    def arrive(self, rank: int) -> None:
        """Notes that some bytes of a content have come."""
        self._arriving[rank] = time.monotonic()

    def put(self, rank: int, names: Sequence[str], content: bytes) -> None:
        """Keeps a content. If the rank has sent too much that nobody has gathered, drops the oldest."""
        with self._changed:
            self._arriving.pop(rank, None)
            kept = self._contents[rank]
            kept.update(dict.fromkeys(names, content))
            self._drop_older(rank, self._awaited)
            # A content may have several names.
            stay, room = {id(content), id(kept.get(self._awaited))}, rules.KEPT_BYTES // self._size - len(content)
            for known, other in reversed([*kept.items()]):
                if id(other) in stay:
                    continue
                room -= len(other)
                if room < 0:
                    del kept[known]
                    self._dropped[rank].append(known)
                else:
                    stay.add(id(other))
            self._changed.notify_all()

    def gathered(self, name: str, seconds: float) -> dict[int, bytes]:
        """Waits for the contents of all ranks, and hands them out. May be called again after an error.

        All ranks send contents in the order in which they are gathered, so older ones are dropped.

        Raises:
            NotSentError: Some contents have not come within `seconds`, or will not come.
        """
        with self._changed:
            self._awaited = name
            for rank in range(self._size):
                self._drop_older(rank, name)
            if self._changed.wait_for(lambda: all(name in kept for kept in self._contents), seconds):
                return {rank: self._take(rank, name) for rank in range(self._size)}
            missing = [rank for rank, kept in enumerate(self._contents) if name not in kept]
            until = time.monotonic() - rules.RETURN_SECONDS
            ended = [rank for rank in missing if self._left.get(rank, math.inf) < until]
            dropped = [rank for rank in missing if name in self._dropped[rank]]
            since = time.monotonic() - rules.ARRIVING_SECONDS
            arriving = all(self._arriving.get(rank, -math.inf) > since for rank in missing)
        if dropped:
            raise NotSentError(dropped, "come too far ahead of rank 0, which could not keep all states", final=True)
        if ended:
            raise NotSentError(ended, "ended, and sent nothing", final=True)
        raise NotSentError(missing, "sent nothing", arriving=arriving)

    def _take(self, rank: int, name: str) -> bytes:
        self._dropped[rank] = deque(maxlen=NAMES_KEPT)
        return self._contents[rank].pop(name)

    def _drop_older(self, rank: int, name: str) -> None:
        """Drops what a rank has sent before the content of this name, which nobody gathers any more."""
        kept = self._contents[rank]
        if name in kept:
            for older in [*takewhile(lambda known: known != name, kept)]:
                del kept[older]


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
        leader.end()
        door.close()


async def _serve_rank(
    connection: socket.socket, rank: int, content: Sequence[str], leader: Leader, sent: SentContents
) -> None:
    """Receives a content if these words are its names and size, and otherwise the rank's messages to the leader."""
    if content:
        *names, size = content
        if 0 <= int(size) <= rules.CONTENT_BYTES:
            sent.put(rank, names, bytes(await wire.content(connection, int(size), partial(sent.arrive, rank))))
            await asyncio.get_running_loop().sock_sendall(connection, wire.WELCOME)
        return
    tell, ended = partial(wire.tell, connection), False
    leader.join(rank, tell)
    sent.join(rank)
    try:
        async for word, numbers in wire.messages(connection):
            ended = word == "end"
            leader.hear(rank, word, numbers)
    finally:
        if leader.leave(rank, tell, ended=ended):
            sent.leave(rank)


def new_token() -> str:
    """A secret by which ranks prove that they belong to the group."""
    return secrets.token_hex(16)
