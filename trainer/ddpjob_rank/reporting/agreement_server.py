"""What rank 0 serves for an agreement: the leader's connections, and the bytes that ranks send to rank 0."""

import asyncio
import hmac
import secrets
import socket
import threading
from contextlib import closing, suppress
from functools import partial

from . import agreement_rules as rules
from . import agreement_wire as wire
from .agreement_leader import Leader
from .agreement_warnings import ranks


class SentContents:
    """What the ranks have sent, by name and rank, for any thread."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._changed = threading.Condition()
        self._contents: dict[str, dict[int, bytes]] = {}

    def put(self, rank: int, name: str, content: bytes) -> None:
        """Keeps a content, and forgets those of the oldest name if there are too many names."""
        with self._changed:
            self._contents.setdefault(name, {})[rank] = content
            if len(self._contents) > rules.CONTENTS_KEPT:
                del self._contents[next(iter(self._contents))]
            self._changed.notify_all()

    def gathered(self, name: str, seconds: float) -> dict[int, bytes]:
        """Waits for the contents of all ranks, and hands them out.

        Raises:
            TimeoutError: Some have not come within `seconds`. The message names their ranks.
        """
        with self._changed:
            self._changed.wait_for(lambda: len(self._contents.get(name, ())) == self._size, seconds)
            contents = self._contents.pop(name, {})
        if missing := sorted({*range(self._size)} - contents.keys()):
            raise TimeoutError(f"{ranks(missing, 'has')} sent nothing within {seconds:.0f} s")
        return dict(sorted(contents.items()))


async def serve(listener: socket.socket, token: str, size: int, leader: Leader, sent: SentContents) -> None:
    """Serves the ranks that connect; a stranger is dismissed."""
    served = set[asyncio.Task[None]]()
    try:
        while True:
            connection = await wire.accepted(listener)
            if len(served) > 4 * size + 256:  # Strangers: a rank has two connections at most.
                connection.close()
                continue
            task = asyncio.ensure_future(_attend(connection, token, size, leader, sent))
            served.add(task)
            task.add_done_callback(served.discard)
    finally:
        for task in served:
            task.cancel()


async def _attend(connection: socket.socket, token: str, size: int, leader: Leader, sent: SentContents) -> None:
    # A ValueError: it is no rank. Cancelled: the leader ends.
    with suppress(OSError, ValueError, asyncio.CancelledError), closing(connection):
        given, number, *rest = await wire.greeted(connection)
        rank = int(number)
        if not hmac.compare_digest(given.encode(), token.encode()) or not 0 < rank < size:
            return
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(connection, wire.WELCOME)
        if rest:
            name, length = rest[0], int(rest[1])
            if not 0 <= length <= rules.CONTENT_BYTES:
                return
            sent.put(rank, name, bytes(await wire.content(connection, length)))
            await loop.sock_sendall(connection, wire.WELCOME)
            return
        tell = partial(wire.tell, connection)
        leader.join(rank, tell)
        try:
            async for word, numbers in wire.messages(connection):
                leader.hear(rank, word, numbers)
        finally:
            leader.leave(rank, tell)


def new_token() -> str:
    """What ranks prove themselves by."""
    return secrets.token_hex(16)
