"""Asks NCCL's RAS for the state of all ranks. A thread of NCCL in each rank answers, even if the program is stuck.

Since NCCL 2.24 the protocol consists of lines of text (src/ras/client.cc, and
https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/ras.html). The format of the answers changes
from release to release, so they are shown to people and not parsed.
"""

import asyncio
import contextlib
import socket
from collections.abc import Mapping
from functools import cache, partial

from ddpjob_rank.console import printable

from .threads import in_thread

ADDRESS, ENABLE = "NCCL_RAS_ADDR", "NCCL_RAS_ENABLE"

GREETING, GREETED = b"CLIENT PROTOCOL 2\n", b"SERVER PROTOCOL "
QUESTION = b"TIMEOUT 2\nVERBOSE STATUS\n"
"""Requests the state of all ranks, with a timeout of 2 seconds for ranks that do not answer."""

OK = b"OK\n"

GREETING_SECONDS = 0.5
"""How long to wait for a greeting, which normally comes immediately. All ranks of a node listen at the same address.
If a connection reaches a rank that is stopped, no greeting comes, and another rank is tried."""

SECONDS = 3.5
"""How long to wait for the whole answer. If only a part has arrived by then, the part is used. The examination of a
stalled gang takes little longer than this."""

LONGEST = 64 << 10
"""The longest answer in bytes. An answer describes each communicator, so it may be long."""


def settings(env: Mapping[str, str]) -> dict[str, str]:
    """The variable for the address of this node's RAS, which no other node on this machine uses.

    Empty if `env` has set the address, or turned RAS off.
    """
    return {} if ADDRESS in env or env.get(ENABLE) == "0" else {ADDRESS: _reserved()}


@cache
def _reserved() -> str:
    """An address that this supervisor reserves for its ranks, which share it because NCCL sets SO_REUSEPORT."""
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind(("127.0.0.1", 0))
        host, port = reserved.getsockname()
        reserved.detach()  # The socket stays bound until this process ends, so that no other process gets the port.
    return f"{host}:{port}"


async def ask(address: str) -> str:
    """The answer of RAS at an address; empty if nothing answers. Takes at most SECONDS."""
    host, _, port = address.rpartition(":")
    answer = bytearray()
    with contextlib.suppress(OSError, ValueError, TimeoutError):
        async with asyncio.timeout(SECONDS):
            # Not the event loop's own lookup: asyncio waits for it when the loop closes, even if the name server
            # hangs.
            look = partial(socket.getaddrinfo, host.strip("[]"), int(port), type=socket.SOCK_STREAM)
            place = (await in_thread(look))[0][-1]
            while not await _asked(str(place[0]), int(place[1]), answer):
                pass
    text = answer.removeprefix(OK).decode(errors="replace").strip()
    return "\n".join(map(printable, text.split("\n")))


async def _asked(host: str, port: int, answer: bytearray) -> bool:
    """Sends the request to a rank and appends its answer to `answer`. Returns False if the rank did not greet.

    Raises:
        OSError: Nothing listens at the address.
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
            while len(answer) < LONGEST and (part := await reader.read(LONGEST - len(answer))):
                answer += part
        return True
    finally:
        writer.close()
