"""A supervisor's status port, which serves only GET /, /status, /curve, /metrics, /healthz and /stacks.

Training does not depend on it: if the port is taken, training continues without the page. The HTTP server is imported
when the page starts, and in a thread, so that neither the zygote nor the gang waits for the import.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from ddpjob_rank.console import warn
from ddpjob_rank.environment import Env
from ddpjob_rank.machine.listening import listen_on, why_not

from ddpjob_supervisor.watch.threads import in_thread

from .document import Document

if TYPE_CHECKING:
    from .answers import Answers, Look


class Page:
    """Serves the status page; `read` returns the current document."""

    def __init__(
        self,
        port: int,
        listen: str | None,
        read: Callable[[], Document],
        look: "Look | None" = None,
        curve: Callable[[int], str] | None = None,
    ) -> None:
        """A page on a port of the address `listen`, or of all addresses if `listen` is None.

        Port 0 selects a free port.

        For `look` and `curve` see `Answers`.
        """
        self.port: int | None = None
        """The port on which the page listens; None if it does not listen."""
        self._wanted = port
        self._listen = listen
        self._read = read
        self._look = look
        self._curve = curve
        self._answers: Answers | None = None
        self._serving: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Listens, unless the port is not available. Requests are answered as soon as the HTTP server is imported."""
        try:
            listener = listen_on(self._listen, self._wanted)
        except OSError as error:
            cannot = f"cannot listen on port {self._wanted}: {why_not(error, self._wanted)}"
            _go_without(f"{cannot}; set another {Env.STATUS_PORT} (spec.network.statusPort)")
        else:
            self.port = listener.getsockname()[1]
            self._serving = asyncio.create_task(self._serve(listener))
        return self

    def changed(self) -> None:
        """Answers the clients that wait for a change, if the document's mark has changed."""
        if self._answers is not None:
            self._answers.changed()

    async def __aexit__(self, *_: object) -> None:
        """Answers the waiting clients, and closes the page."""
        if self._serving is not None:
            await self._serving
        if self._answers is not None:
            await self._answers.close()

    async def _serve(self, listener: socket.socket) -> None:
        try:
            answers = (await in_thread(_import_answers))(self._read, self._look, self._curve)
            answers.listen(listener)
        except Exception as error:  # noqa: BLE001  A broken library must not end the training.
            listener.close()
            _go_without(f"{type(error).__name__}: {error}; it needs aiohttp and prometheus-client")
        else:
            self._answers = answers


def _go_without(why: str) -> None:
    warn(f"training goes on without a status page: {why}")


def _import_answers() -> "type[Answers]":
    from .answers import Answers  # noqa: PLC0415  This module imports aiohttp.

    return Answers
