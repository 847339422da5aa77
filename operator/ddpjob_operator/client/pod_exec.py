"""Talks to a program that is started in a pod, line by line, through the API server (protocol v4.channel.k8s.io)."""

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from .errors import UnreachableError

STDIN, STDOUT, STDERR, OUTCOME = range(4)
"""The channels. OUTCOME has one message: how the program ended, as a Status object."""

CLOSED = 8
"""The opcode of the frame that ends a websocket (RFC 6455)."""

PIECE = 1 << 15
"""How many bytes are sent in one frame. The API server and kubelets refuse very large ones."""
LONGEST_LINE = 1 << 16
"""A line of the program may have this many bytes."""
QUOTED_BYTES = 400
"""How many bytes of the program's errors are kept, from their end."""


class Conversation:
    """A program in a pod: its input, and its output. The program is told by the end of its input that we are gone."""

    def __init__(self, tunnel: Any) -> None:
        """`tunnel` is the websocket of an exec."""
        self._tunnel = tunnel
        self._sending = threading.Lock()
        self._errors = b""
        self.problem = ""
        """Why the program ended, as far as it or Kubernetes has said so; empty if it ended well, or has not ended."""

    def send(self, line: bytes) -> None:
        """Writes to the program's standard input.

        Raises:
            UnreachableError: the connection broke.
        """
        with self._sending:
            for begin in range(0, len(line), PIECE):
                try:
                    self._tunnel.send_binary(bytes([STDIN]) + line[begin : begin + PIECE])
                except (OSError, self._broken) as error:
                    raise UnreachableError(f"the connection to the pod broke: {error}") from None

    def lines(self) -> Iterator[bytes]:
        """Yields the lines of the program's standard output until it ends or the connection breaks."""
        rest = b""
        while (frame := self._next()) is not None:
            channel, content = frame[:1], frame[1:]
            if channel == bytes([STDOUT]):
                *lines, rest = (rest + content).split(b"\n")
                yield from lines
                if len(rest) > LONGEST_LINE:
                    self.problem = "its answer is too long"
                    return
            elif channel == bytes([STDERR]):
                self._errors = (self._errors + content)[-QUOTED_BYTES:]
            elif channel == bytes([OUTCOME]):
                self.problem = self._said(content)

    def close(self) -> None:
        """Closes the connection, without waiting for the other side."""
        with suppress(OSError, self._broken):
            self._tunnel.close(timeout=0)
        self._tunnel.shutdown()  # After the other side's close frame, `close` leaves the socket open.

    def _next(self) -> bytes | None:
        """The next frame; None if there is none any more."""
        try:
            opcode, frame = self._tunnel.recv_data()
        except (OSError, self._broken) as error:
            self.problem = self.problem or f"the connection broke: {error}"
            return None
        return None if opcode == CLOSED else frame

    def _said(self, outcome: bytes) -> str:
        with suppress(ValueError, AttributeError):
            status = json.loads(outcome)
            if status.get("status") == "Success":
                return ""
            last = self._errors.decode(errors="replace").strip().rpartition("\n")[2]
            return last or str(status.get("message", ""))
        return outcome.decode(errors="replace")[:QUOTED_BYTES]

    @property
    def _broken(self) -> type[Exception]:
        import websocket  # noqa: PLC0415  Hardly any command needs it.

        return websocket.WebSocketException
