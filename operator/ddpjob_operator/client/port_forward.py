"""Sends an HTTP request to a pod through the API server's port forwarding (protocol v4.channel.k8s.io)."""

import io
from http.client import HTTPResponse
from typing import Any

from .pod_exec import CLOSED


def get(tunnel: Any, path: str) -> HTTPResponse:
    """Sends a GET request. Returns the response with its body unread. `tunnel` is the websocket of a forwarded port.

    Raises:
        OSError: the kubelet cannot connect to the port.
        HTTPException: the pod sends no response.
    """
    tunnel.send_binary(b"\0" + f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
    response = HTTPResponse(_Forwarded(tunnel))  # type: ignore[arg-type]
    response.begin()
    return response


class _Forwarded(io.RawIOBase):
    """A stream of the bytes that the pod sends, on channel 0. An error of the kubelet arrives on channel 1."""

    def __init__(self, tunnel: Any) -> None:
        self._tunnel = tunnel
        self._begun: set[int] = set()
        self._rest = b""

    def makefile(self, _: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            opcode, frame = self._tunnel.recv_data()
            if opcode == CLOSED:
                return 0
            if not frame:
                continue
            channel = frame[0]
            if channel not in self._begun:
                self._begun.add(channel)  # The first frame of a channel contains only the port number.
            elif channel:
                raise OSError(frame[1:].decode(errors="replace"))
            else:
                self._rest = frame[1:]
        part, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)
