"""What a process tells its supervisor, and the file into which it writes it."""

import fcntl
import math
import mmap
import os
import sys
from pathlib import Path

from ddpjob_rank.console import warn
from ddpjob_rank.environment import Env

from .heartbeat import FILE_BYTES, SIGNATURE, SLOTS, TEXT_BYTES, Record, encode, encode_metrics, newest_number
from .pace import Pace

STARTING, TRAINING, EVALUATION, ENDING = "starting", "training", "evaluation", "ending"

ACTIVITY_BYTES = 32
METRICS_BYTES = TEXT_BYTES - ACTIVITY_BYTES

MEMORY_SECONDS = 1.0
"""How old the memory size may be: reading it costs more than all the rest."""


class Teller:
    """Holds the record and writes it. There is one per process, and one that writes into a file: the first."""

    def __init__(self, path: str) -> None:
        """Opens the file and locks it, for as long as this process lives.

        Raises:
            BlockingIOError: Another process writes into it.
            OSError: It cannot be opened, or is of another version.
            ValueError: It is too short.
        """
        self._page = _locked_page(path)
        self.record = Record(rank=_variable(Env.RANK), attempt=_variable(Env.ATTEMPT))
        self._pace = Pace()
        self._number = newest_number(self._page[:])
        self.origin = 0.0
        """How many steps were finished before the first one that this program counted."""
        self._metrics = b""
        self._measured = False
        """Whether metrics have changed since they were encoded."""
        self._memory_due = 0.0

    def finish(self, step: float, now: float) -> None:
        """This step is finished."""
        record = self.record
        if record.activity == TRAINING:
            self._pace.step(step - record.step, now)
        else:
            self._do(TRAINING, now)  # It is unknown how long the step took.
        if math.isnan(record.step):
            record.first_step = step
        record.step, record.step_at, record.step_seconds = step, now, self._pace.mean

    def begin(self, activity: str, now: float) -> None:
        """From now on the process does this; before the first step is finished, all training counts as starting."""
        if activity == TRAINING and math.isnan(self.record.step):
            activity = STARTING
        if activity == EVALUATION:
            self.record.announces = 1
        activity = activity.encode(errors="replace")[:ACTIVITY_BYTES].decode(errors="ignore")
        if activity != self.record.activity:
            self._do(activity, now)

    def measure(self, name: str, value: float | None) -> None:
        """A number of the program's own; None: it is no longer known."""
        if value is None:
            self.record.metrics.pop(name, None)
        else:
            self.record.metrics[name] = value
        self._measured = True

    def write(self, now: float) -> None:
        """Makes the record visible, all of it at once."""
        if now >= self._memory_due:
            self._memory_due = now + MEMORY_SECONDS
            self.record.memory_bytes = _memory_bytes()
        if self._measured:
            self._measured, self._metrics = False, _fitting(self.record.metrics)
        self._number += 1
        slot = SLOTS[self._number % 2]
        content = encode(self._number, self.record, self._metrics)
        self._page[slot : slot + len(content)] = content

    def _do(self, activity: str, now: float) -> None:
        if self.record.activity == TRAINING:
            self._pace.pause(now)
        elif activity == TRAINING:
            self._pace.resume(now)
        self.record.activity = activity


def _fitting(metrics: dict[str, float]) -> bytes:
    """Metrics as they are stored in the file; the newest ones without room there are removed."""
    encoded = encode_metrics(metrics)
    excess = len(encoded) - METRICS_BYTES
    if excess <= 0:
        return encoded
    while excess > 0:
        name, value = metrics.popitem()
        excess -= len(encode_metrics({name: value})) - 1  # Without the braces, and with a comma.
        warn_once("metrics", f"report({name}=…): left out, because all metrics must fit into {METRICS_BYTES} bytes")
    return encode_metrics(metrics)


def _locked_page(path: str) -> mmap.mmap:
    # It stays open: closing any descriptor that this process has of the file would release the lock.
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        # A lock of the process, not of the open file: a forked child does not share it.
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        page = mmap.mmap(descriptor, FILE_BYTES)
    except (OSError, ValueError):
        os.close(descriptor)
        raise
    if page[: len(SIGNATURE)] != SIGNATURE:
        os.close(descriptor)
        raise OSError("it is from another version of ddpjob")
    return page


_warned: set[str] = set()


def warn_once(about: str, message: str) -> None:
    """One warning about one thing, however often it happens: it may happen in every step."""
    if about not in _warned:
        _warned.add(about)
        warn(message)


def _variable(name: str) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else 0


def _memory_bytes() -> float:
    """What PyTorch holds on the GPU; without one, what this process holds in memory; NaN if unknown."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return int(torch.cuda.memory_allocated())
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * mmap.PAGESIZE
    except OSError:
        return math.nan
