"""Writes a process's reports into its heartbeat file."""

import fcntl
import math
import mmap
import os
import sys
from pathlib import Path

from ddpjob_rank.console import warn
from ddpjob_rank.environment import Env

from .heartbeat import (
    FILE_BYTES,
    SIGNATURE,
    SLOTS,
    TEXT_BYTES,
    Record,
    encode,
    encode_metrics,
    encode_others,
    newest_number,
)
from .pace import Pace

STARTING, TRAINING, SAVING, EVALUATION, ENDING = "starting", "training", "saving", "evaluation", "ending"

ACTIVITY_BYTES = 32
METRICS_BYTES = TEXT_BYTES - ACTIVITY_BYTES

MEMORY_SECONDS = 1.0
"""How old the reported memory size may be. Reading the size costs more than the rest of a report."""


class Teller:
    """Holds the record of this process and writes it into a heartbeat file.

    Only one process at a time can do this.
    """

    def __init__(self, path: str) -> None:
        """Opens the file and locks it for as long as this process lives.

        Raises:
            BlockingIOError: Another process holds the lock.
            OSError: The file cannot be opened, or has another version.
            ValueError: The file is too short.
        """
        self._page = _locked_page(path)
        self.record = Record(rank=_variable(Env.RANK), attempt=_variable(Env.ATTEMPT))
        self._pace = Pace()
        self._number = newest_number(self._page[:])
        self.origin = 0.0
        """The number of steps that were finished before the first counted step."""
        self._metrics = b""
        self._others = b""
        """The encoded fields that do not change in each step; empty if they have to be encoded anew."""
        self._measured = False
        """Whether metrics have changed since they were last encoded."""
        self._memory_due = 0.0

    def finish(self, step: float, now: float) -> None:
        """Records that a step has finished."""
        record = self.record
        if record.activity == TRAINING:
            self._pace.step(step - record.step, now)
        else:
            self._do(TRAINING, now)  # It is unknown when this step began, so the pace does not count it.
            self._others = b""
        if math.isnan(record.step):
            record.first_step, self._others = step, b""
        record.step, record.step_at, record.step_seconds = step, now, self._pace.mean

    def begin(self, activity: str, now: float, *, heard: bool = False) -> None:
        """Notes that an activity begins or goes on. Until the first step has finished, training counts as starting.

        `heard`: the program has not reported the activity.
        """
        if activity == TRAINING and math.isnan(self.record.step):
            activity = STARTING
        if activity == EVALUATION and not heard:
            self.announce()
        activity = activity.encode(errors="replace")[:ACTIVITY_BYTES].decode(errors="ignore")
        self.record.activity_at = now
        if activity != self.record.activity:
            self._do(activity, now)

    def announce(self) -> None:
        """Notes that the program announces what takes long between two steps."""
        self.record.announces, self._others = 1, b""

    def measure(self, name: str, value: float | None) -> None:
        """Sets a metric of the program, or removes it if the value is None."""
        if value is None:
            self.record.metrics.pop(name, None)
        else:
            self.record.metrics[name] = value
        self._measured = True

    def write(self, now: float, *, step_only: bool = False) -> None:
        """Writes the whole record into the file, so that a reader sees either all of it or nothing.

        `step_only`: since the last call, only `finish` was called, and the epoch and the loss were set.
        """
        if not (step_only and self._others) or now >= self._memory_due:
            self._others = self._encode_others(now)
        self._number += 1
        slot = SLOTS[self._number % 2]
        content = encode(self._number, self.record, self._others)
        self._page[slot : slot + len(content)] = content

    def _encode_others(self, now: float) -> bytes:
        if now >= self._memory_due:
            self._memory_due = now + MEMORY_SECONDS
            self.record.memory_bytes = _memory_bytes()
        if self._measured:
            self._measured, self._metrics = False, _fitting(self.record.metrics)
        return encode_others(self.record, self._metrics)

    def _do(self, activity: str, now: float) -> None:
        if self.record.activity == TRAINING:
            self._pace.pause(now)
        elif activity == TRAINING:
            self._pace.resume(now)
        self.record.activity = activity


def _fitting(metrics: dict[str, float]) -> bytes:
    """The encoded metrics. If they do not fit into the file, the newest ones are removed, with a warning."""
    encoded = encode_metrics(metrics)
    excess = len(encoded) - METRICS_BYTES
    if excess <= 0:
        return encoded
    while excess > 0:
        name, value = metrics.popitem()
        excess -= len(encode_metrics({name: value})) - 1  # Subtracts the two braces, and adds a comma.
        warn_once(
            "metrics", f"{name}=…: left out of the report, because all metrics must fit into {METRICS_BYTES} bytes"
        )
    return encode_metrics(metrics)


def _locked_page(path: str) -> mmap.mmap:
    # The descriptor stays open, because closing any descriptor of the file in this process would release the lock.
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        # The lock belongs to the process, not to the open file, so a forked child does not share it.
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
    """Warns about a subject only the first time, because the cause may recur in every step."""
    if about not in _warned:
        _warned.add(about)
        warn(message)


def _variable(name: str) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else 0


def _memory_bytes() -> float:
    """How many bytes PyTorch holds on the GPU or, without a GPU, this process holds in memory; NaN if unknown."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return int(torch.cuda.memory_allocated())
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * mmap.PAGESIZE
    except OSError:
        return math.nan
