"""Hands the supervisor, which outlives its ranks, a copy of the newest checkpoint for the next attempt.

A copy consists of two files in memory, the state and its manifest. They have no name: their descriptors are passed
through a socket, whose path consists of the path of rank 0's heartbeat file and a suffix. A copy whose manifest is
empty is not valid. So a rank invalidates a copy without waiting for its supervisor.
"""

import os
import socket
from array import array
from contextlib import suppress

from ddpjob_rank.environment import Env

SOCKET = ".copy"
"""The suffix of the socket."""

KEEP, DROP, ASK = b"keep", b"drop", b"ask"
"""The first words of messages. The attempt's number follows; after KEEP, also the checkpoint's location. With KEEP
come the two descriptors, with ASK the descriptor of a socket for the answer: the location and the two descriptors."""

MESSAGE_BYTES, FILES_BYTES = 64 * 1024, socket.CMSG_LEN(2 * array("i").itemsize)
ANSWER_SECONDS = 5.0
"""How long a supervisor may take to answer. Usually it answers within milliseconds."""


def available() -> bool:
    """Whether there is a supervisor that keeps a copy."""
    return Env.HEARTBEAT in os.environ and os.path.exists(_path())  # noqa: PTH110  (as the socket needs it)


def keep(location: str, state: int, manifest: int) -> bool:
    """Hands over the two files of a copy, by their descriptors; returns whether the supervisor gets them."""
    return _sent(KEEP, location, state, manifest)


def drop() -> None:
    """Lets the supervisor close the copy, so that its memory is freed."""
    _sent(DROP)


def ask() -> tuple[str, int, int] | None:
    """The location and the descriptors of the copy that this attempt or the one before it has handed over."""
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with mine, suppress(OSError):
        with theirs:
            if not _sent(ASK, "", theirs.fileno()):
                return None
        mine.settimeout(ANSWER_SECONDS)
        location, files = received(mine)
        if len(files) == 2:  # noqa: PLR2004  (state and manifest)
            return location.decode(errors="replace"), *files
        for file in files:  # The limit on open files was reached, so one is missing.
            os.close(file)
    return None


def received(connection: socket.socket) -> tuple[bytes, tuple[int, ...]]:
    """The next message, and at most two descriptors that came with it.

    Children must not inherit them, but `socket.recv_fds` ignores its flags.
    """
    said, parts, _, _ = connection.recvmsg(MESSAGE_BYTES, FILES_BYTES, socket.MSG_CMSG_CLOEXEC)
    files = array("i")
    for level, kind, data in parts:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            files.frombytes(data)
    return said, tuple(files)


def _path() -> str:
    return f"{os.environ[Env.HEARTBEAT]}{SOCKET}"


def _sent(word: bytes, location: str = "", *files: int) -> bool:
    if not available():
        return False
    message = b" ".join([word, os.environ.get(Env.ATTEMPT, "0").encode(), location.encode()])
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.settimeout(ANSWER_SECONDS)
        sender.connect(_path())
        socket.send_fds(sender, [message], files)
        return True
    return False
