"""Checks that rank 0's node can resolve its own name, with which the other nodes and its own ranks find rank 0."""

import asyncio
import socket
from collections.abc import Callable

from ddpjob_supervisor.watch.threads import in_thread

from .findings import Finding, Level

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 2.0
"""Seconds between two lookups. For a new gang, names appear in DNS within seconds."""

Look = Callable[[str, None], object]


async def check_name(host: str, timeout_seconds: float, look: Look = socket.getaddrinfo) -> list[Finding]:
    """Waits until `host` can be resolved, for at most `timeout_seconds`. Reports a failure if it still cannot."""
    loop = asyncio.get_running_loop()
    deadline, pause = loop.time() + timeout_seconds, FIRST_PAUSE
    last: Exception = TimeoutError("no answer")
    while loop.time() < deadline:
        try:
            async with asyncio.timeout_at(deadline):
                await in_thread(look, host, None)
        except TimeoutError:
            break
        except (OSError, UnicodeError) as error:
            last = error
            await asyncio.sleep(min(pause, max(0.0, deadline - loop.time())))
            pause = min(2 * pause, LONGEST_PAUSE)
        else:
            return []
    return [_unknown(host, timeout_seconds, last)]


def _unknown(host: str, timeout_seconds: float, error: Exception) -> Finding:
    why = getattr(error, "strerror", None) or str(error)
    message = (
        f"this node's own name, {host}, cannot be resolved after {timeout_seconds:.0f} s ({why}): "
        "check that the job's Service exists, and that the cluster's DNS works"
    )
    return Finding("name", Level.FAIL, message, retry=not isinstance(error, UnicodeError), nodes=(0,))
