"""Asks NCCL's RAS what it knows of all ranks: a thread of NCCL's in each of them answers, whatever the program does.

Its protocol is lines of text, since NCCL 2.24 (src/ras/client.cc, and
https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/ras.html). The form of its answers changes
from release to release, so they are for people to read.
"""

import asyncio
import contextlib
import socket
from collections.abc import Mapping
from functools import cache

from ddpjob_rank.console import printable

ADDRESS, ENABLE = "NCCL_RAS_ADDR", "NCCL_RAS_ENABLE"

GREETING, GREETED = b"CLIENT PROTOCOL 2\n", b"SERVER PROTOCOL "
QUESTION = b"TIMEOUT 2\nVERBOSE STATUS\n"
"""For how many seconds it waits for ranks that do not answer, and what is asked."""

OK = b"OK\n"

GREETING_SECONDS = 0.5
"""A thread greets at once. All ranks of a node listen at one address; one that is stopped never does."""

SECONDS = 3.5
"""For the whole answer; what has come by then counts. A stalled gang is examined for little longer."""

LONGEST = 64 << 10
"""In bytes: it tells of each communicator."""


def settings(env: Mapping[str, str]) -> dict[str, str]:
    """Makes the ranks of this node listen where others on this machine do not; nothing if somebody has set it."""
    return {} if ADDRESS in env or env.get(ENABLE) == "0" else {ADDRESS: _reserved()}


@cache
def _reserved() -> str:
    """An address for the ranks of this supervisor, which share it with each other as NCCL does."""
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind(("127.0.0.1", 0))
        host, port = reserved.getsockname()
        reserved.detach()  # It stays bound, so that nobody else gets it, until this process ends.
    return f"{host}:{port}"


async def ask(address: str) -> str:
    """What the ranks that listen there say of all; empty if none does. It takes no longer than SECONDS."""
    host, _, port = address.rpartition(":")
    said = bytearray()
    with contextlib.suppress(OSError, ValueError, TimeoutError):
        async with asyncio.timeout(SECONDS):
            while not await _asked(host.strip("[]"), int(port), said):
                pass
    text = said.removeprefix(OK).decode(errors="replace").strip()
    return "\n".join(map(printable, text.split("\n")))


async def _asked(host: str, port: int, said: bytearray) -> bool:
    """Asks one rank and adds its answer; returns whether one has answered.

    Raises:
        OSError: Nobody listens.
    """
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(GREETING)
        try:
            async with asyncio.timeout(GREETING_SECONDS):
                greeting = await reader.readline()
        except TimeoutError:
            return False
        if greeting.startswith(GREETED):
            writer.write(QUESTION)
            while len(said) < LONGEST and (part := await reader.read(LONGEST - len(said))):
                said += part
        return True
    finally:
        writer.close()
