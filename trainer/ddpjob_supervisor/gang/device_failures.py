"""When a rank's end is its GPU's fault. Pure.

A GPU that broke while a program ran into an error of its own did not cause that error: an exception of Python's, a
mistake in the configuration, memory that ran out are believed. What could be anybody's fault is not: a signal, an
exit code without a word, an error of CUDA's, a peer that is lost, a rank that waited in vain.
"""

from collections.abc import Sequence

from ddpjob_rank.errors import DeviceFailedError, TrainerError
from ddpjob_rank.failure.device_words import cuda_error
from msgspec.structs import replace

from ddpjob_supervisor.gpu.signs import Fact, Meaning

from .judging import PEER_LOST, STALLED
from .messages import End

DEVICE_FAILED = DeviceFailedError.cause

OPEN = frozenset({DEVICE_FAILED, PEER_LOST, STALLED})
"""Causes of which a GPU may be the cause, or which do not say what about it."""


def is_open(end: End) -> bool:
    """Whether a rank has failed, and what it says of that may be the consequence of a broken GPU."""
    if end.cause == TrainerError.cause:
        return end.exception is None or cuda_error(end.message) is not None
    return end.cause in OPEN


def judged(end: End, facts: Sequence[Fact]) -> End:
    """An open end in the light of what has happened to the rank's GPUs, the gravest first."""
    if not facts:
        return end
    gravest = facts[0]
    if gravest.meaning is Meaning.BROKEN and end.cause != DEVICE_FAILED:
        return replace(end, cause=DEVICE_FAILED, message=gravest.message, exception=None, waited="")
    return replace(end, message=f"{end.message}; {gravest.message}")
