"""`ddpjob dashboard`: all jobs in a browser, those on this machine, on a cluster, and in a history."""

import argparse
import os
import secrets
import socket
import sys
import tempfile
import webbrowser
from html import escape
from pathlib import Path

from ddpjob_operator.api import BadInputError
from ddpjob_operator.cli.top import feeds_of

from .board import Board
from .guard import LOOPBACK, Guard

__all__ = ["dashboard"]

TOKEN_BYTES = 32


def dashboard(arguments: argparse.Namespace) -> int:
    """Serves a page of all jobs, for this user alone, until Ctrl-C is pressed.

    Raises:
        BadInputError: flags contradict each other, the port is taken, or a place cannot be read.
    """
    with feeds_of(arguments) as feeds, _listening(arguments.port) as listening:
        board = Board(feeds, arguments)
        guard = Guard(listening.getsockname()[1], secrets.token_urlsafe(TOKEN_BYTES))
        print(f"Dashboard: {guard.address}\nCtrl-C ends it.", flush=True)
        from .web_server import serve  # noqa: PLC0415  It is slow to import, and the connections can wait.

        entry = _opened(guard.address) if arguments.open and _has_screen() else None
        try:
            serve(board, guard, listening)
        finally:
            if entry is not None:
                entry.unlink(missing_ok=True)
    return 0


def _listening(port: int) -> socket.socket:
    try:
        return socket.create_server((LOOPBACK, port))
    except OSError as error:
        raise BadInputError(f"--port {port}: {os.strerror(error.errno or 0)}; without it, any port is used") from None


def _has_screen() -> bool:
    """Whether a browser would open a window. Without one, some take the terminal."""
    return sys.platform in {"darwin", "win32"} or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))


def _opened(address: str) -> Path | None:
    """Opens a browser by a file that leads it to the address; the file, or None if there is no browser.

    Other users of the machine see the words of all commands, and so would see the token of an address.
    """
    handle, name = tempfile.mkstemp(prefix="ddpjob-dashboard-", suffix=".html")  # Nobody else may read it.
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(
            f'<!doctype html><meta http-equiv="refresh" content="0;url={escape(address)}"><title>DDPJob</title>'
        )
    entry = Path(name)
    try:
        opened = webbrowser.open(entry.as_uri())
    except webbrowser.Error:
        opened = False
    if not opened:
        entry.unlink()
    return entry if opened else None
