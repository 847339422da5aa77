"""Connections to a cluster that end at once, whatever other threads are waiting for."""

import socket
import threading
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from kubernetes.client.api_client import ApiClient


class Connections:
    """All connections of an API client.

    A thread that reads a watch, or the log of a silent pod, may wait for minutes, even for the first byte of an
    answer. Only the end of its connection wakes it up.
    """

    def __init__(self, api: ApiClient) -> None:
        """Records the connections that `api` makes. It must not have made any yet."""
        self.closed = False
        """Whether the connections were closed. No new ones are made then."""
        self._pools = api.rest_client.pool_manager
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self._lock = threading.Lock()
        classes: dict[str, Any] = self._pools.pool_classes_by_scheme
        self._pools.pool_classes_by_scheme = {scheme: self._recorded(pool) for scheme, pool in classes.items()}

    def close(self) -> None:
        """Closes all connections. Threads that wait for an answer get an error immediately."""
        with self._lock:
            self.closed = True
            for connected in self._sockets:
                _shut(connected)
        self._pools.clear()

    def _recorded(self, pool: Any) -> Any:
        """A kind of connection pool, with connections that are recorded."""
        made = self._made

        class Connection(pool.ConnectionCls):  # type: ignore[misc]
            def connect(self) -> None:
                super().connect()
                made(self.sock)

        class Pool(pool):  # type: ignore[misc]
            ConnectionCls = Connection

        return Pool

    def _made(self, connected: Any) -> None:
        raw = getattr(connected, "socket", connected)  # TLS inside of a proxy's TLS is not a socket, but has one.
        with self._lock:
            self._sockets.add(raw)
            if self.closed:
                _shut(raw)


def _shut(connected: socket.socket) -> None:
    with suppress(OSError):  # It may have ended meanwhile.
        # Not the method of SSLSocket, which would take away the TLS state that another thread is reading with.
        socket.socket.shutdown(connected, socket.SHUT_RDWR)
