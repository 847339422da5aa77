"""Failure reports: a failing process writes one to explain why it failed.

In a pod the report is the container's termination message
(https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/): one file of at most 4 KiB.
"""

import json
import os
import re
import sysconfig
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddpjob_rank.bounded_json import parsed
from ddpjob_rank.console import warn
from ddpjob_rank.environment import Env
from ddpjob_rank.errors import DeviceFailedError, PeerLostError, TrainerError
from ddpjob_rank.machine.regular_file import NotRegularError, read_regular
from ddpjob_rank.moments import rfc3339

from .collective_errors import Fault, collective_error, lines_of, nccl_error, without_frames
from .device_words import broken_device, cuda_error, out_of_memory
from .full_storage import full_storage

VERSION = 2
"""The version of the data that supervisors report to the operator, here and on their status pages. Readers ignore
unknown fields, so the number changes only if known fields change."""

INSTALLED = ("<", *{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
"""How the names of files begin that are no part of the program."""
PACKAGES = {"site-packages", "dist-packages"}
"""Folders of packages that were installed somewhere else, such as those of `--pip`."""

DEFAULT_PATH = "/dev/termination-log"
REPORT_BYTES = 4096
"""The size of a termination message. Kubernetes cuts a longer one."""
MESSAGE_BYTES = 512
NAME_BYTES = 256
SENTENCE_BYTES = 200

CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
TIMED_OUT = re.compile(r"Timed out waiting \d+ms for (?:recv|send) operation")
"""gloo's message about a collective that another rank did not enter in time."""


@dataclass(frozen=True, slots=True)
class Report:
    """One failure. `step` is the number of finished steps, or None if training had not begun."""

    rank: int
    exit_code: int
    cause: str
    exception: str | None
    message: str
    step: int | None
    attempt: int | None = None
    incident: Mapping[str, Any] | None = None
    """Why the attempt ended (which rank failed first, and why), as rank 0's supervisor has told all supervisors."""
    node: int | None = None
    """The node's number, which is given only if ranks follow placement."""
    waited: bool = False
    """Whether the process waited in a collective until the timeout."""
    counted_steps: int | None = None
    """How many steps the attempt had finished, if steps are only counted."""
    line: str = ""
    """The program's line that raised the exception, such as `train.py:12`; empty if it is not known."""

    def to_json(self) -> str:
        """The report as the operator reads it. Its fields are limited in length, so that it stays below 4 KiB."""
        return json.dumps(
            {
                "version": VERSION,
                "rank": self.rank,
                "exitCode": self.exit_code,
                "exception": self.exception and _cut(self.exception, NAME_BYTES),
                "message": _cut(self.message, MESSAGE_BYTES),
                "step": self.step,
                "attempt": self.attempt,
                "cause": self.cause,
                "time": rfc3339(time.time()),
                **({} if self.incident is None else {"incident": self.incident}),
                **({} if self.node is None else {"node": self.node}),
                **({"waited": True} if self.waited else {}),
                **({} if self.counted_steps is None else {"stepsSinceRestart": self.counted_steps}),
                **({"line": _cut(self.line, NAME_BYTES)} if self.line else {}),
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
        exception=type(error).__qualname__,
        message=last_line(error),
        step=step,
        waited=isinstance(error, PeerLostError) and error.waited,
        line=line_of(error),
    )


def line_of(error: BaseException) -> str:
    """The line of the program that raised an error, such as `train.py:12`; empty if there is none.

    It is the innermost one that is neither in Python's library nor in an installed package.
    """
    if isinstance(error, SyntaxError) and isinstance(error.filename, str) and _is_own(error.filename):
        return f"{Path(error.filename).name}:{error.lineno}"
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    own = ((Path(file).name, line) for file, line in reversed(frames) if _is_own(file))
    name, line = next(own, ("", 0))
    return f"{name}:{line}" if name else ""


def _is_own(file: str) -> bool:
    """Whether a file is part of the program."""
    if not file or file.startswith(INSTALLED):
        return False
    with suppress(OSError, ValueError):  # It may be gone, or no file at all.
        return PACKAGES.isdisjoint(Path(file).resolve().parts)
    return True


def known_failure(error: BaseException, where: str = "") -> TrainerError | None:
    """The failure that an error means (a full disk, a broken GPU, a lost peer); None if it means none of these.

    The GPU is checked first, because NCCL passes a GPU's error on as its own. `where` is added to the message about a
    lost peer.
    """
    if isinstance(error, RuntimeError) and (words := broken_device(str(error))):
        return DeviceFailedError(f"the GPU does not work: {words}")
    if full := full_storage(error):
        return full
    found = collective_error(error)
    if found is None or found.fault is not Fault.PEER:
        return None
    lost = PeerLostError(f"lost a peer{where}: {_cut(found.sentence, SENTENCE_BYTES)}")
    lost.waited = TIMED_OUT.search(found.sentence) is not None
    return lost


def last_line(error: BaseException) -> str:
    """The line of an error's message that describes what happened: for most errors, the last line that is not empty.

    If that line only refers to a page, as those of SQLAlchemy and pydantic do, it is the first line instead.
    For an error of NCCL or CUDA it is NCCL's explanation or CUDA's own message, because the lines after it are advice
    and C++ frames. If a GPU has no memory left, it is how much was requested and how much was free.
    """
    try:
        text = without_frames(str(error))
    except Exception:  # noqa: BLE001  (The program may have written __str__ itself)
        return "<exception str() failed>"  # The text that Python's traceback uses in this case.
    of_nccl = nccl_error(text) if isinstance(error, RuntimeError) else None
    known = (of_nccl.sentence if of_nccl else None) or out_of_memory(text) or cuda_error(text)
    lines = lines_of(text)
    if known or not lines:
        return known or ""
    return lines[0] if "://" in lines[-1].rsplit(maxsplit=1)[-1] else lines[-1]


def report_path(env: Mapping[str, str]) -> Path | None:
    """The file for the report: the one that `env` names, or else a container's termination log; otherwise None."""
    if named := env.get(Env.TERMINATION_LOG):
        return Path(named)
    return Path(DEFAULT_PATH) if os.access(DEFAULT_PATH, os.W_OK) else None


def clear(path: Path | None) -> None:
    """Empties the file, which may contain an earlier run's report."""
    if path is not None and path.exists():
        _write(path, b"")


def write_report(report: Report, path: Path | None) -> None:
    """Writes a report, unless the file already contains the report of an earlier failure.

    The processes of a node share the file, and the first report explains the failure. Only the report of a lost peer
    is replaced, because a lost peer is always the consequence of another failure.
    """
    if path is None or _tells_of_a_first_failure(path):
        return
    _write(path, report.to_json().encode(errors="replace"))


def read_report(path: Path) -> dict[str, Any] | None:
    """The JSON object in a report's file; None if there is none, such as if the program has written there itself."""
    try:
        content = read_regular(path, REPORT_BYTES)
        known = parsed(content) if len(content) <= REPORT_BYTES else None
    except (OSError, NotRegularError, ValueError):
        return None
    return known if isinstance(known, dict) else None


def write_final_status(status: Mapping[str, Any], path: Path | None, result: Mapping[str, Any]) -> None:
    """Writes the final progress, because the operator may have read the status page some seconds before the end.

    `result` is what there is to say about the job's result. It replaces whatever the file contains, because the job
    has then succeeded, and this is the only place for it.
    """
    if path is not None and (result or not (path.exists() and path.read_bytes())):
        _write(path, _packed(_last_of(status) | dict(result)))


def add_last_progress(status: Mapping[str, Any], path: Path | None) -> None:
    """Adds the last progress to the failure report in the file, if a termination message has room for both."""
    report = None if path is None else read_report(path)
    if path is not None and report is not None and len(content := _packed(_last_of(status) | report)) <= REPORT_BYTES:
        _write(path, content)


def _last_of(status: Mapping[str, Any]) -> dict[str, Any]:
    return {name: status[name] for name in ("version", "progress", "checkpoint")}


def _packed(content: Mapping[str, Any]) -> bytes:
    """JSON without spaces and escapes, because a result alone may take half of the 4 KiB."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def _tells_of_a_first_failure(path: Path) -> bool:
    known = read_report(path)
    return known is not None and known.get("cause") != PeerLostError.cause


def _write(path: Path, content: bytes) -> None:
    """Replaces the content with one write. In a pod the file is a mount, so a rename cannot replace it."""
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
    """The beginning of a text, without control characters: in JSON, each of these takes six bytes."""
    text = CONTROL.sub("?", text)
    return text.encode(errors="replace")[:size].decode(errors="ignore")
