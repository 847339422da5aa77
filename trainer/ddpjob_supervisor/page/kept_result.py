"""Tells of a job's result: itself if it is small, and otherwise the place in the history where it is kept."""

import asyncio
from pathlib import Path
from typing import Any

from ddpjob_rank.errors import ConfigError, StorageError
from ddpjob_rank.reporting.result import STATUS_BYTES, left_result

from ddpjob_supervisor.history.history import NodeHistory
from ddpjob_supervisor.history.targets import ERRORS, is_lasting
from ddpjob_supervisor.watch.threads import in_thread

SECONDS = 60.0
"""How long saving a result in the history may take at most."""
LAST_SECONDS = 2.0
"""What is left of a grace period for the final status, and for the end of the history."""


async def kept_result(heartbeat: Path, attempt: int, history: NodeHistory, grace: float) -> dict[str, Any]:
    """The fields about a result for the final status; none if the attempt has set no result.

    `heartbeat` is the heartbeat file of rank 0. `grace` is how many seconds the pod gets to end when it is told to
    stop: this does not react to a signal, and so takes less.

    Raises:
        ConfigError: No history is kept, or it will not take the result of another attempt either.
        StorageError: The history does not take it now. The job may not end as if it had been kept. The restart
            counts, so that this cannot go on for ever.
    """
    left = left_result(heartbeat, attempt)
    if left is None:
        return {}
    result, size = left
    if size <= STATUS_BYTES:
        return {"result": result}
    seconds = min(SECONDS, max(grace - LAST_SECONDS, grace / 2))
    try:
        async with asyncio.timeout(seconds):
            place = await in_thread(history.keep_result, result, attempt)
    except (*ERRORS, TimeoutError) as error:
        kind = ConfigError if is_lasting(error) else StorageError
        reason = str(error) or f"it took more than {seconds:.0f} s"
        raise kind(f"cannot keep the job's result in the history: {reason}") from error
    if not place:
        raise ConfigError("cannot keep the job's result: it is too large for the status, and no history is kept")
    return {"resultPlace": place}
