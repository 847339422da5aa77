"""`python -m tests.training.faults.supervisor`: the supervisor, less patient.

Its preflight can be held, and SIGUSR1 cuts its links.
"""

import asyncio
import contextlib
import os
import signal
import socket
from weakref import WeakSet

from ddpjob_rank import limits
from ddpjob_rank.running.program import Program
from ddpjob_supervisor.gang import link, node_attempt
from ddpjob_supervisor.main import main

OTHER_AT_LEAST = 10.0
"""Instead of 600: how long the first step, an evaluation, a save and the end may take."""

limits.TIMES_TRAINING, limits.STARTING_TIMES_THE_FIRST_STEP, limits.OTHER_AT_LEAST = 2.0, 1.0, OTHER_AT_LEAST
node_attempt.COLLECTIVE = Program(
    module=True,
    name="tests.training.faults.collective",
    arguments=("--timeout-seconds", os.environ.get("FAULTS_PATIENCE_SECONDS", "60")),
)


class CutLink(link.TcpLink):
    """One that breaks at once when this process gets SIGUSR1; new ones can be made."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(reader, writer)
        links.add(writer)


links = WeakSet[asyncio.StreamWriter]()


def cut(*_: object) -> None:
    """Breaks all links that there are."""
    for writer in [*links]:
        with contextlib.suppress(OSError):
            writer.get_extra_info("socket").shutdown(socket.SHUT_RDWR)


link.TcpLink = CutLink  # type: ignore[misc]
signal.signal(signal.SIGUSR1, cut)
main()
