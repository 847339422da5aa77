"""A relay between two programs that communicate over TCP. It passes on their data, but does not have their secret."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager

READY_SECONDS = 30


@asynccontextmanager
async def relay(address: str, host: str, port: int = 0) -> AsyncIterator[str]:
    """Yields an address of `host`, with this port or any.

    Data that arrives there is passed on to `address`, over connections from `host`.
    """

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while part := await reader.read(1 << 16):
            writer.write(part)
        writer.close()

    async def pass_on_both(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(*address.split(":"), local_addr=(host, 0))
        with closing(writer), closing(far_writer):  # If the relay ends first, it ends all connections.
            await asyncio.gather(pass_on(reader, far_writer), pass_on(far_reader, writer), return_exceptions=True)

    server = await asyncio.start_server(pass_on_both, host, port)
    async with server:
        yield f"{host}:{server.sockets[0].getsockname()[1]}"


@contextmanager
def relay_in_a_thread(address: str, host: str, port: int = 0) -> Iterator[str]:
    """A relay in a thread, for tests without an event loop."""
    ready, ended, found = threading.Event(), asyncio.Event(), list[tuple[str, asyncio.AbstractEventLoop]]()

    async def serve() -> None:
        async with relay(address, host, port) as there:
            found.append((there, asyncio.get_running_loop()))
            ready.set()
            await ended.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(READY_SECONDS), "it does not listen"
    ((there, loop),) = found
    try:
        yield there
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
