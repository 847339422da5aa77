"""Programs that are started in a pod, through the API server (protocol v4.channel.k8s.io).

PodProgram
├── Conversation      lines in both directions
└── TerminalSession   a program that has a terminal, or only prints
"""

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from ddpjob_operator.text.foreign_json import parsed

from .errors import UnreachableError

STDIN, STDOUT, STDERR, OUTCOME, SIZE = range(5)
"""The channels. OUTCOME has one message: how the program ended, as a Status object. SIZE is the terminal's size."""

CLOSED, PING, PONG = 8, 9, 10
"""Opcodes of frames without content: the first ends a websocket (RFC 6455)."""

PIECE = 1 << 15
"""How many bytes are sent in one frame. The API server and kubelets refuse very large ones."""
LONGEST_LINE = 2 << 20
"""A line of the program may have this many bytes."""
NOT_FOUND = ("executable file not found", "no such file")
"""What container runtimes say if the image lacks a program."""
QUOTED_BYTES = 400
"""How many bytes of the program's errors are kept, from their end."""


class PodProgram:
    """A program in a pod: its input, and its output. The program is told by the end of its input that we are gone."""

    def __init__(self, tunnel: Any) -> None:
        """`tunnel` is the websocket of an exec."""
        self._tunnel = tunnel
        self._sending = threading.Lock()
        self._errors = b""
        self.problem = ""
        """Why the program ended, as far as it or Kubernetes has said so; empty if it ended well, or has not ended."""
        self.exit_code: int | None = None
        """The program's exit code; None if it has not ended, or the connection broke before."""

    @property
    def is_missing(self) -> bool:
        """Whether the program could not be started because the container has none of that name."""
        return self.exit_code is None and any(words in self.problem for words in NOT_FOUND)

    def send(self, line: bytes, channel: int = STDIN) -> None:
        """Writes to the program's standard input, or to another channel.

        Raises:
            UnreachableError: the connection broke.
        """
        with self._sending:
            for begin in range(0, len(line), PIECE):
                try:
                    self._tunnel.send_binary(bytes([channel]) + line[begin : begin + PIECE])
                except (OSError, self._broken) as error:
                    raise UnreachableError(f"the connection to the pod broke: {error}") from None

    def output(self) -> Iterator[tuple[int, bytes]]:
        """Yields what the program prints, each piece with its channel, until it ends or the connection breaks."""
        while (frame := self._next()) is not None:
            if not (content := frame[1:]):
                continue  # The API server begins with an empty frame of each channel.
            if frame[0] in {STDOUT, STDERR}:
                yield frame[0], content
            elif frame[0] == OUTCOME:
                self._heed(content)

    def close(self) -> None:
        """Closes the connection, without waiting for the other side."""
        with suppress(OSError, self._broken):
            self._tunnel.close(timeout=0)
        self._tunnel.shutdown()  # After the other side's close frame, `close` leaves the socket open.

    def _next(self) -> bytes | None:
        """The next frame with content; None if there is none any more.

        A program may print nothing for hours. After the tunnel's timeout, the pod is asked whether it is there.
        """
        import websocket  # noqa: PLC0415  Hardly any command needs it.

        asked = False
        while True:
            try:
                opcode, frame = self._tunnel.recv_data(control_frame=True)
            except websocket.WebSocketTimeoutException:
                if asked:
                    self.problem = self.problem or "the connection broke: the pod no longer answers"
                    return None
                asked = True
                with self._sending, suppress(OSError, self._broken):
                    self._tunnel.ping()
                continue
            except (OSError, self._broken) as error:
                self.problem = self.problem or f"the connection broke: {error}"
                return None
            if opcode == CLOSED:
                return None
            if opcode not in {PING, PONG}:
                return bytes(frame)
            asked = False

    def _heed(self, outcome: bytes) -> None:
        """Keeps how the program ended."""
        self.problem = outcome.decode(errors="replace")[:QUOTED_BYTES]
        with suppress(ValueError, AttributeError, TypeError, KeyError):
            status = parsed(outcome)
            if status.get("status") == "Success":
                self.problem, self.exit_code = "", 0
                return
            last = self._errors.decode(errors="replace").strip().rpartition("\n")[2]
            self.problem = last or str(status.get("message", ""))
            causes = status["details"]["causes"]
            self.exit_code = next((int(cause["message"]) for cause in causes if cause["reason"] == "ExitCode"), None)

    @property
    def _broken(self) -> type[Exception]:
        import websocket  # noqa: PLC0415  Hardly any command needs it.

        return websocket.WebSocketException


class Conversation(PodProgram):
    """Lines in both directions."""

    def lines(self) -> Iterator[bytes]:
        """Yields the lines of the program's standard output until it ends or the connection breaks."""
        rest = b""
        for channel, content in self.output():
            if channel == STDERR:
                self._errors = (self._errors + content)[-QUOTED_BYTES:]
                continue
            *lines, rest = (rest + content).split(b"\n")
            yield from lines
            if len(rest) > LONGEST_LINE:
                self.problem = "its answer is too long"
                return


class TerminalSession(PodProgram):
    """A program that has a terminal, whose size can change."""

    def resize(self, columns: int, rows: int) -> None:
        """Tells the program the size of its terminal.

        Raises:
            UnreachableError: the connection broke.
        """
        self.send(json.dumps({"Width": columns, "Height": rows}).encode(), SIZE)
