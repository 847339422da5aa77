"""Connects an exec into rank 0's pod with the supervisor: `python -m ddpjob_supervisor.hold.speak`.

Copies its standard input to the supervisor's socket, and the answers to its standard output, until the supervisor
closes the conversation. The end of its input, which also comes if the person's connection breaks, is passed on, and
the supervisor then ends the program.
"""

import os
import selectors
import socket
from pathlib import Path

from ddpjob_rank.environment import Env
from ddpjob_rank.parsing import unpack_variables

from ddpjob_supervisor.node.directory import PARENTS, PREFIX

from .words import NotRun, socket_of, to_line

INPUT, OUTPUT = 0, 1
PIECE = 1 << 16


def main() -> None:
    """Copies in both directions until the supervisor has closed the conversation."""
    unpack_variables(os.environ)
    found = find(os.environ.get(Env.UID, ""))
    if found is None:
        whole(OUTPUT, to_line(NotRun("rank 0's supervisor accepts no programs yet", later=True)))
        return
    with found as supervisor, selectors.DefaultSelector() as ready:
        pairs = {INPUT: supervisor.fileno(), supervisor.fileno(): OUTPUT}
        for source in pairs:
            ready.register(source, selectors.EVENT_READ)
        while ready.get_map().get(supervisor.fileno()):
            for key, _ in ready.select():
                try:
                    piece = os.read(key.fd, PIECE)
                    whole(pairs[key.fd], piece)
                except OSError:  # A supervisor that refuses does not hear the rest, and its answer is still to come.
                    ready.unregister(key.fd)
                    continue
                if not piece:
                    ready.unregister(key.fd)
                if not piece and key.fd == INPUT:
                    supervisor.shutdown(socket.SHUT_WR)


def find(uid: str) -> socket.socket | None:
    """A connection to a job's supervisor in this container; None if it does not listen yet, or holds no gang."""
    places = (path for parent in PARENTS for path in parent.glob(f"{PREFIX}*/{socket_of(uid)}"))
    return next(filter(None, map(_connected, places)), None)


def _connected(place: Path) -> socket.socket | None:
    """A connection to this socket; None if it is of another user, or nobody listens.

    A supervisor that was killed leaves its socket behind.
    """
    supervisor = socket.socket(socket.AF_UNIX)
    supervisor.setblocking(False)  # Who has stopped accepting must not keep us: the command tries again.
    try:
        if place.stat().st_uid == os.geteuid():
            supervisor.connect(str(place))
            supervisor.setblocking(True)
            return supervisor
    except OSError:
        pass
    supervisor.close()
    return None


def whole(file: int, data: bytes) -> None:
    """Writes all of the data to a file descriptor."""
    while data:
        data = data[os.write(file, data) :]


if __name__ == "__main__":
    main()
