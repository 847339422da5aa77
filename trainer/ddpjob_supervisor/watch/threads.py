"""Runs functions in threads, if they may block and cannot be interrupted."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")


async def in_thread(function: Callable[[*Arguments], T], *arguments: *Arguments) -> T:
    """Calls a function that may block for long, in a thread that does not keep the program from exiting.

    At its end, a program waits for asyncio's own threads, so it would hang if one of them is stuck because a file
    system or a name server does not answer.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def finish(deliver: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # The event loop is closed, so nobody waits for the result.
            loop.call_soon_threadsafe(lambda: None if future.done() else deliver())

    def work() -> None:
        try:
            result = function(*arguments)
        except Exception as error:  # noqa: BLE001  (every error is passed on to the caller)
            raised = error
            finish(lambda: future.set_exception(raised))
        else:
            finish(lambda: future.set_result(result))

    threading.Thread(target=work, name=getattr(function, "__name__", "work"), daemon=True).start()
    return await future
