"""Whether a broken GPU is the cause of a rank's failure. Pure.

A rank's own explanation counts, even if its GPU broke at the same time: a Python exception, a configuration error, or
running out of memory. The GPU is blamed only for failures that it may have caused: a signal, an exit code without a
report, a CUDA error, a lost peer, a collective that timed out.
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
"""Causes of failure behind which there may be a broken GPU. DEVICE_FAILED is included: it does not say what broke."""


def is_open(end: End) -> bool:
    """Whether a rank has failed in a way that a broken GPU may have caused."""
    if end.cause == TrainerError.cause:
        return end.exception is None or cuda_error(end.message) is not None
    return end.cause in OPEN


def judged(end: End, facts: Sequence[Fact]) -> End:
    """Adds to an end that `is_open` what happened to the rank's GPUs: a broken GPU as the cause, all else as a note.

    `facts` has the most severe fact first.
    """
    if not facts:
        return end
    worst = facts[0]
    if worst.meaning is Meaning.BROKEN and end.cause != DEVICE_FAILED:
        return replace(end, cause=DEVICE_FAILED, message=worst.message, exception=None, waited="")
    return replace(end, message=f"{end.message}; {worst.message}")
