"""A supervisor's part in local copies, in a thread."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ddpjob_supervisor.node.copy_holder import CopyHolder

from tests.support.waiting import patience


@contextmanager
def holding(socket: Path) -> Iterator[CopyHolder]:
    """A holder that answers at `socket`."""
    ready, ended, holders = threading.Event(), asyncio.Event(), list[CopyHolder]()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        with CopyHolder(socket) as holder:
            holders.append(holder)
            ready.set()
            await ended.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
    thread.start()
    assert ready.wait(patience(30)), "the holder does not begin"
    try:
        yield holders[0]
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()
