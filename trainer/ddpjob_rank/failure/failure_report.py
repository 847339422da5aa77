"""Failure reports: what a failing process leaves behind to say why.

In a pod the report is the container's termination message
(https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/): at most 4 KiB of one file.
"""

import json
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from ddpjob_rank.console import warn
from ddpjob_rank.environment import Env
from ddpjob_rank.errors import DeviceFailedError, PeerLostError, TrainerError
from ddpjob_rank.moments import rfc3339

from .device_words import broken_device, cuda_error

VERSION = 2
"""The version of what supervisors report to the operator, here and on their status pages. A reader ignores fields
that it does not know; a new number means that known fields have changed."""

DEFAULT_PATH = "/dev/termination-log"
MESSAGE_BYTES = 512
NAME_BYTES = 256
SENTENCE_BYTES = 200

PEER_LOST_TYPES = frozenset({"DistError"})
"""The base class of torch.distributed's errors; by name, so that this module does not import torch."""

PEER_LOST_PHRASES = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "Connection refused",
    "Socket closed",
    "Application timeout caused pair closure",
    "Timed out waiting",
    "Wait timeout",
    "remote process exited",
    "ncclRemoteError",
    "NCCL communicator was aborted",
    "Watchdog caught collective operation timeout",
)
"""Phrases in a plain RuntimeError of gloo, NCCL or the store that mean that another process is gone."""


@dataclass(frozen=True, slots=True)
class Report:
    """One failure, of an attempt if that is known. `step`: the finished steps; None if training had not begun."""

    rank: int
    exit_code: int
    cause: str
    exception: str | None
    message: str
    step: int | None
    attempt: int | None = None
    incident: Mapping[str, Any] | None = None
    """What ended the attempt, as rank 0's supervisor told all supervisors: which rank failed first, and why."""
    node: int | None = None
    """The node's number, given only where ranks follow placement."""

    def to_json(self) -> str:
        """The report as the operator reads it; its bounded fields keep it below 4 KiB."""
        return json.dumps(
            {
                "version": VERSION,
                "rank": self.rank,
                "exitCode": self.exit_code,
                "exception": self.exception,
                "message": self.message,
                "step": self.step,
                "attempt": self.attempt,
                "cause": self.cause,
                "time": rfc3339(time.time()),
                **({} if self.incident is None else {"incident": self.incident}),
                **({} if self.node is None else {"node": self.node}),
            },
            ensure_ascii=False,
        )


def report_of(error: BaseException, rank: int, step: int | None) -> Report:
    """The report of a process that ends because of `error`."""
    kind = error if isinstance(error, TrainerError) else TrainerError
    return Report(
        rank=rank,
        exit_code=kind.exit_code,
        cause=kind.cause,
        exception=_cut(type(error).__qualname__, NAME_BYTES),
        message=_cut(last_line(error), MESSAGE_BYTES),
        step=step,
    )


def known_failure(error: BaseException, where: str = "") -> TrainerError | None:
    """The failure that an error of PyTorch means: a broken GPU or a lost peer; None if it is neither.

    The GPU is checked first, because NCCL passes on its error as one of NCCL's. `where` is added to the message about
    a lost peer.
    """
    if isinstance(error, RuntimeError) and (words := broken_device(str(error))):
        return DeviceFailedError(f"the GPU does not work: {words}")
    return PeerLostError(f"lost a peer{where}: {peer_lost_words(error)}") if is_peer_lost(error) else None


def is_peer_lost(error: BaseException) -> bool:
    """Whether a collective failed because another process is gone."""
    if any(ancestor.__name__ in PEER_LOST_TYPES for ancestor in type(error).__mro__):
        return True
    return isinstance(error, RuntimeError) and any(phrase in str(error) for phrase in PEER_LOST_PHRASES)


def last_line(error: BaseException) -> str:
    """The last line of an error's message that is not empty, without the C++ source line that gloo puts in front.

    Of a CUDA error, the line with CUDA's own message: the lines after it are advice.
    """
    return cuda_error(str(error)) or next(reversed(_lines(error)), "")


def peer_lost_words(error: BaseException) -> str:
    """How a collective failed, in a short sentence, without gloo's advice and PyTorch's C++ frames."""
    lines = _lines(error)
    matching = (line for line in lines if any(phrase in line for phrase in PEER_LOST_PHRASES))
    return _cut(next(chain(matching, lines), "").partition(". ")[0], SENTENCE_BYTES)


def _lines(error: BaseException) -> list[str]:
    lines = (re.sub(r"^\[[^\]]*\.cc:\d+\] ", "", line.strip()) for line in str(error).splitlines())
    return [line for line in lines if line]


def report_path(env: Mapping[str, str]) -> Path | None:
    """The file for the report: the one that `env` names, or a container's termination log, or None."""
    if named := env.get(Env.TERMINATION_LOG):
        return Path(named)
    return Path(DEFAULT_PATH) if os.access(DEFAULT_PATH, os.W_OK) else None


def clear(path: Path | None) -> None:
    """Empties the file, in which an earlier run may have left a report."""
    if path is not None and path.exists():
        _write(path, b"")


def write_report(report: Report, path: Path | None) -> None:
    """Writes a report, unless the file already holds the report of an earlier failure.

    The processes of one node share the file, and the first report explains the failure. Only the report of a lost
    peer is replaced, because a lost peer is always the consequence of another failure.
    """
    if path is None or _tells_of_a_first_failure(path):
        return
    _write(path, report.to_json().encode(errors="replace"))


def write_final_status(status: Mapping[str, Any], path: Path | None) -> None:
    """Writes the final progress: the operator may have last read the status page some seconds before the end."""
    if path is not None and not (path.exists() and path.read_bytes()):
        _write(path, json.dumps({name: status[name] for name in ("version", "progress", "checkpoint")}).encode())


def _tells_of_a_first_failure(path: Path) -> bool:
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(known, dict) and known.get("cause") != PeerLostError.cause


def _write(path: Path, content: bytes) -> None:
    """Replaces the content in one write. In a pod the file is a mount, so it cannot be replaced by a rename."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, content)
            os.ftruncate(descriptor, len(content))
        finally:
            os.close(descriptor)
    except OSError as error:
        warn(f"cannot write the failure report to {path}: {error.strerror}")


def _cut(text: str, size: int) -> str:
    return text.encode(errors="replace")[:size].decode(errors="ignore")
