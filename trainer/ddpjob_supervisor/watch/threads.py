"""Waiting for what cannot be interrupted."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")


async def in_thread(function: Callable[[*Arguments], T], *arguments: *Arguments) -> T:
    """Calls a function that may block for long, without keeping the program from ending meanwhile.

    asyncio's own threads are waited for at the end of a program; one that is stuck because a file system or a name
    server does not answer would hold it up.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def finish(deliver: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # Nobody waits any more: the loop is closed.
            loop.call_soon_threadsafe(lambda: None if future.done() else deliver())

    def work() -> None:
        try:
            result = function(*arguments)
        except Exception as error:  # noqa: BLE001  (it is the caller's)
            raised = error
            finish(lambda: future.set_exception(raised))
        else:
            finish(lambda: future.set_result(result))

    threading.Thread(target=work, name=getattr(function, "__name__", "work"), daemon=True).start()
    return await future
