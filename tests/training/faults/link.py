"""The network between two supervisors, which can be cut."""

import contextlib
import socket
import threading
from collections.abc import Callable


class Wire:
    """Passes connections on to another address, in the name of a node."""

    def __init__(self, to: Callable[[], tuple[str, int]], source: Callable[[], str]) -> None:
        self._to = to
        self._source = source
        self._ends: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._passing: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def cut(self) -> None:
        """Breaks all connections; new ones can be made."""
        ends, self._ends = self._ends, []
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Ends it."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self.cut()
        for thread in self._passing:
            thread.join()

    def _accept(self) -> None:
        with self._listener, contextlib.suppress(OSError):
            while True:
                here, _ = self._listener.accept()
                thread = threading.Thread(target=self._connect, args=[here], daemon=True)
                self._passing.append(thread)
                thread.start()

    def _connect(self, here: socket.socket) -> None:
        with here, contextlib.suppress(OSError):
            there = socket.create_connection(self._to(), source_address=(self._source(), 0))
            with there:
                self._ends += [here, there]
                back = threading.Thread(target=_pass_on, args=(there, here), daemon=True)
                back.start()
                _pass_on(here, there)
                back.join()


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while content := one.recv(1 << 16):
            other.sendall(content)
    for end in (one, other):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
