"""Exit codes that mean something to the operator, whose API contains a copy of them."""

from enum import IntEnum


class ExitCode(IntEnum):
    """How a training process ends. 128+n means that signal n ended it."""

    DONE = 0
    APPLICATION_ERROR = 1
    BAD_INPUT = 2
    PREFLIGHT_RETRY = 201
    PREFLIGHT_NEVER = 202
    STALLED = 203
    PEER_LOST = 204
    SAVED_AND_STOPPED = 205


SIGNAL_BASE = 128
