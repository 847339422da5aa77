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
    place = find(os.environ.get(Env.UID, ""))
    if place is None:
        whole(OUTPUT, to_line(NotRun("rank 0's supervisor accepts no programs yet", later=True)))
        return
    with socket.socket(socket.AF_UNIX) as supervisor, selectors.DefaultSelector() as ready:
        supervisor.connect(str(place))
        pairs = {INPUT: supervisor.fileno(), supervisor.fileno(): OUTPUT}
        for source in pairs:
            ready.register(source, selectors.EVENT_READ)
        while ready.get_map().get(supervisor.fileno()):
            for key, _ in ready.select():
                piece = os.read(key.fd, PIECE)
                whole(pairs[key.fd], piece)
                if not piece:
                    ready.unregister(key.fd)
                if not piece and key.fd == INPUT:
                    supervisor.shutdown(socket.SHUT_WR)


def find(uid: str) -> Path | None:
    """The socket of a job's supervisor in this container; None if it has not created one yet, or holds no gang."""
    found = (path for parent in PARENTS for path in parent.glob(f"{PREFIX}*/{socket_of(uid)}"))
    return next((path for path in found if _answers(path)), None)


def _answers(place: Path) -> bool:
    """Whether a supervisor of this user listens there. A supervisor that was killed leaves its socket behind."""
    with socket.socket(socket.AF_UNIX) as supervisor:
        try:
            supervisor.connect(str(place))
        except OSError:
            return False
    return place.stat().st_uid == os.geteuid()


def whole(file: int, data: bytes) -> None:
    """Writes all of the data to a file descriptor."""
    while data:
        data = data[os.write(file, data) :]


if __name__ == "__main__":
    main()
