"""Rank 0's port, on which the processes of a world meet."""

import socket
import time
from datetime import timedelta

from ddpjob_rank.errors import PeerLostError
from ddpjob_rank.world import World

CONNECT_SECONDS = 5.0
RETRY_SECONDS = 0.02


def await_rank_0(world: World, timeout: timedelta) -> None:
    """Waits until rank 0 accepts connections. PyTorch's store waits too, but fails with pages of C++ frames."""
    deadline = time.monotonic() + timeout.total_seconds()
    while True:
        try:
            socket.create_connection((world.master_addr, world.master_port), timeout=CONNECT_SECONDS).close()
        except OSError as error:
            if time.monotonic() >= deadline:
                seconds = f"{timeout.total_seconds():.0f}"
                raise PeerLostError(
                    f"waited {seconds} s for rank 0 to answer at {world.master_addr}:{world.master_port}:"
                    f" {error.strerror or error}"
                ) from error
            time.sleep(RETRY_SECONDS)
        else:
            return
