"""Reads the logs of a run as they grow, as whole lines, each with its node and attempt."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from ddpjob_operator.api import BadInputError, DDPJob
from ddpjob_operator.api.contract import ATTEMPT_BEGINS
from ddpjob_operator.api.job import domain_key

BEGINS = re.compile(rf"{ATTEMPT_BEGINS.format('([0-9]{1,9})')}(?: in place: .*)?")
LOG = re.compile(r"attempt-(\d+)/node-(\d+)\.log$")

PIECE = 1 << 20
"""How many bytes are read from a file in one call."""
LONGEST_LINE = 1 << 18
"""How many bytes of an unfinished line are kept in memory. Longer lines are split. A kubelet splits at 16 KiB."""

DETOUR = re.compile(rb"(?<!\n)\n++\r[^\r\n]*(?:\x1b\[A)+")
"""Line feeds, a line, and cursor movements back up: programs draw a second progress bar in this way."""
PART_OF_DETOUR = re.compile(rb"(?:\r[^\r\n]*)?")
SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
"""An escape sequence for a colour or a cursor movement."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a pod's output."""

    node: int
    """The node's number."""
    attempt: int
    text: str
    writer: str = "rank"
    """The noun before the number: `rank`, or `node` if several ranks of a node write to one log."""
    moment: str = ""
    """When it was written, in Kubernetes' format; empty for a run on this machine."""

    def __str__(self) -> str:
        return f"[{self.writer} {self.node}] {self.text}"


@dataclass(frozen=True, slots=True)
class Which:
    """Which logs the user wants, and how to print them."""

    node: int | None = None
    """Only the log of this node; None for the logs of all nodes."""
    rank: int | None = None
    """Only the log of the node on which this rank runs; `of_job` replaces it by the node."""
    attempt: int | None = None
    """Only the logs of this attempt; None for those of the present attempt."""
    previous: bool = False
    """Only the logs of the attempt before the present one."""
    tail: int | None = None
    """How many lines of each log to print, counted from its end; None for all lines."""
    since_seconds: int | None = None
    """Only lines that are no older than this; None for all lines."""
    timestamps: bool = False
    """Whether to print, before each line, the time at which it was written."""

    @property
    def past(self) -> bool:
        """Whether a particular attempt is requested. Its logs are printed without waiting for more lines."""
        return self.previous or self.attempt is not None

    def of_job(self, job: DDPJob, node_of: Callable[[int], int] | None = None) -> "Which":
        """The same, for the logs of this job: with the node in place of the rank.

        If ranks follow placement, `node_of` returns the node on which a rank runs at present; None if nobody can be
        asked. Where a rank ran in an earlier attempt is not known.

        Raises:
            BadInputError: there is no such rank, or its node is not known.
        """
        if self.rank is None:
            return self
        name, nodes = job.metadata.name, job.status.nodes or job.spec.nodes
        found = self.in_a_gang(name, nodes, job.status.procs_per_node or job.spec.resolved_procs_per_node())
        if domain_key(job) is None:
            return found
        if node_of is None or self.past:
            raise BadInputError(f"the ranks of {name} follow placement; give its node in place of rank {self.rank}")
        return replace(found, node=node_of(self.rank))

    def in_a_gang(self, name: str, nodes: int, procs_per_node: int) -> "Which":
        """As `of_job`, for the logs of a gang of this size, whose job has this name.

        Raises:
            BadInputError: there is no such rank.
        """
        if self.rank is None:
            return self
        if not 0 <= self.rank < nodes * procs_per_node:
            last = nodes * procs_per_node - 1
            has = f"its ranks are numbered 0 to {last}" if last else "it has only rank 0"
            raise BadInputError(f"{name} has no rank {self.rank}: {has}")
        return replace(self, node=self.rank // procs_per_node, rank=None)

    def shown(self, moment: str, text: str) -> str:
        """The line as `kubectl logs` prints it: if `timestamps` is set, its time comes first."""
        return f"{moment} {text}" if self.timestamps else text


class LineSource(Protocol):
    """A source of log lines."""

    def skip(self) -> None:
        """Skips the lines that have been written so far."""

    def lines(self, *, last: bool = False) -> Iterator[Line]:
        """The lines that were written between the previous call and this one; with `last`, also an unfinished line.

        The iterator reads lazily. Iterators of several calls must be consumed in the order of the calls.
        """
        ...

    def unfinished(self) -> Iterator[Line]:
        """The present text of lines that overwrite themselves, such as progress bars."""
        ...


def shown_last(text: str) -> str | None:
    """What a terminal finally shows of a line with carriage returns; None if the line erased itself."""
    *former, last = text.removesuffix("\r").split("\r")
    return None if former and not last.strip() else last


def attempt_of(text: str, before: int, last: int | None = None) -> int:
    """The attempt that a line belongs to, if the previous line of the same log belongs to the attempt `before`.

    `last` is the job's present attempt. A program may print a line that looks like the beginning of a later attempt;
    such a line is ignored.
    """
    found = BEGINS.fullmatch(text)
    return int(found[1]) if found and before < int(found[1]) <= (last or int(found[1])) else before


@dataclass
class RunLogs:
    """Reads a run's logs, in each call from where the previous call stopped."""

    logs: Path
    from_attempt: int = 0
    nodes: frozenset[int] | None = None
    """Only the logs of these nodes; None for all."""
    to_attempt: int | None = None
    """The last attempt to read; None for all, including later ones."""
    writer: str = "rank"
    first: int | None = None
    """The node whose new lines come before those of the other nodes."""
    last: int | None = None
    """The job's present attempt, if it is known."""
    _read: dict[Path, int] = field(default_factory=dict)
    _open: dict[Path, bytes] = field(default_factory=dict)
    """For each file: the bytes of its unfinished line; if the line overwrites itself, only its last version."""
    _attempts: dict[Path, int] = field(default_factory=dict)
    """For each file: the attempt of its last line. After a restart in place, output continues in the same file."""

    def skip(self) -> None:
        """Skips the lines that have been written so far."""
        self._read = {file: file.stat().st_size for file, _, _ in self._files()}
        self._open = {}

    def lines(self, *, last: bool = False) -> Iterator[Line]:
        """The lines that were written after the previous call; with `last`, also an unfinished line."""
        return self._lines([(*log, log[0].stat().st_size) for log in self._files()], last=last)

    def _lines(self, ends: list[tuple[Path, int, int, int]], *, last: bool) -> Iterator[Line]:
        present = max((attempt for _, _, attempt, _ in ends), default=0)
        for file, node, gang, end in ends:
            for text in self._new(file, end, last=last or gang < present):
                attempt = self._attempts[file] = attempt_of(text, self._attempts.get(file, gang), self.last)
                yield Line(node, attempt, text, self.writer)

    def unfinished(self) -> Iterator[Line]:
        """The present text of lines that overwrite themselves, such as progress bars."""
        for file, node, attempt in self._files():
            for part in self._open.get(file, b"").split(b"\n"):
                shown = shown_last(part.decode(errors="replace")) if b"\r" in part else None
                if shown:
                    yield Line(node, attempt, SEQUENCE.sub("", shown), self.writer)

    def _files(self) -> list[tuple[Path, int, int]]:
        found = []
        for file in self.logs.glob("attempt-*/node-*.log"):
            if not (match := LOG.search(file.as_posix())) or not file.is_file():
                continue
            attempt, node = int(match[1]), int(match[2])
            wanted = self.from_attempt <= attempt and (self.to_attempt is None or attempt <= self.to_attempt)
            if wanted and (self.nodes is None or node in self.nodes):
                found.append((file, node, attempt))
        return sorted(found, key=lambda log: (log[2], log[1] != self.first, log[1]))

    def _new(self, file: Path, end: int, *, last: bool) -> Iterator[str]:
        with file.open("rb") as content:
            content.seek(self._read.get(file, 0))
            while data := content.read(min(PIECE, max(0, end - content.tell()))):
                self._read[file] = content.tell()
                *whole, rest = DETOUR.sub(b"", self._open.pop(file, b"") + data).split(b"\n")
                self._open[file] = _kept(whole, rest)
                yield from _shown(whole)
        if last and (rest := self._open.pop(file, b"")):
            yield from _shown(rest.removesuffix(b"\n").split(b"\n"))


def _shown(whole: list[bytes]) -> Iterator[str]:
    """The lines as a terminal finally shows them."""
    for line in whole:
        if (text := shown_last(line.decode(errors="replace"))) is not None:
            yield text


def _kept(whole: list[bytes], rest: bytes) -> bytes:
    """The bytes to keep until more is read: the unfinished line `rest`.

    If a DETOUR may begin at the end of the last line of `whole`, that line is kept too, and removed from `whole`. If
    `rest` is too long, it is added to `whole` instead.
    """
    if whole and b"\r" in whole[-1].removesuffix(b"\r") and PART_OF_DETOUR.fullmatch(rest):
        return whole.pop() + b"\n" + rest
    # A carriage return at the end does not count yet: until more arrives, the text before it is still shown.
    rest = rest[max(0, rest.rfind(b"\r", 0, len(rest) - 1)) :]
    if len(rest) > LONGEST_LINE:  # Bound the memory of an endless line by splitting it.
        whole.append(rest)
        return b""
    return rest
