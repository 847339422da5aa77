"""Decides whether a broken GPU is the cause of a rank's failure. Pure.

If a rank explains its failure itself, that counts, even if its GPU broke at the same time: a Python exception, a
configuration error, or running out of memory. The GPU is blamed only for failures that it may have caused: a signal,
an exit code without a report, a CUDA error, a lost peer, a collective that timed out.
"""

from collections.abc import Sequence

from ddpjob_rank.errors import DeviceFailedError, TrainerError
from ddpjob_rank.failure.device_words import cuda_error
from msgspec.structs import replace

from ddpjob_supervisor.gpu.signs import Fact, Meaning

from .judging import PEER_LOST
from .messages import STALLED, End

DEVICE_FAILED = DeviceFailedError.cause

OPEN = frozenset({DEVICE_FAILED, PEER_LOST, STALLED})
"""Causes of failure that a broken GPU may be behind. DEVICE_FAILED is among them because it does not tell what
broke."""


def is_open(end: End) -> bool:
    """Whether a rank has failed in a way that a broken GPU may have caused."""
    if end.cause == TrainerError.cause:
        return end.exception is None or cuda_error(end.message) is not None
    return end.cause in OPEN


def judged(end: End, facts: Sequence[Fact]) -> End:
    """Adds what happened to a rank's GPUs to its end: a broken GPU as the cause, anything else as a note.

    `end` has to be one that `is_open`. The first of `facts` is the most severe.
    """
    if not facts:
        return end
    worst = facts[0]
    if worst.meaning is Meaning.BROKEN and end.cause != DEVICE_FAILED:
        return replace(end, cause=DEVICE_FAILED, message=worst.message, exception=None, waited="")
    return replace(end, message=f"{end.message}; {worst.message}")
