"""The logs of a run as they grow: whole lines, each with the node and the attempt that wrote it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

LOG = re.compile(r"attempt-(\d+)/node-(\d+)\.log$")

PIECE = 1 << 20
"""Bytes that are read at once."""
LONGEST_LINE = 1 << 18
"""Bytes of a line without an end that are held; a kubelet's are of 16 KiB."""

DETOUR = re.compile(rb"(?<!\n)\n++\r[^\r\n]*(?:\x1b\[A)+")
"""Down, a line there, and up again: how bars below another bar are written."""
PART_OF_DETOUR = re.compile(rb"(?:\r[^\r\n]*)?")
SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
"""What a terminal takes as a colour or a cursor movement."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a pod's output."""

    node: int
    """The node's number."""
    attempt: int
    text: str
    writer: str = "rank"
    """What wrote it: a rank, or a node if several ranks write into one log."""

    def __str__(self) -> str:
        return f"[{self.writer} {self.node}] {self.text}"


class LineSource(Protocol):
    """Where lines come from."""

    def skip(self) -> None:
        """Passes over what has been written so far."""

    def lines(self, *, last: bool = False) -> Iterator[Line]:
        """What has been written up to this call and was not taken before; the last call holds nothing back.

        It is read while it is taken. Take the results of several calls in their order.
        """
        ...

    def unfinished(self) -> Iterator[Line]:
        """The lines that are being overwritten, as they are now."""
        ...


def shown_last(text: str) -> str | None:
    """What a line that overwrites itself finally shows on a terminal; None if it has erased itself."""
    *former, last = text.removesuffix("\r").split("\r")
    return None if former and not last.strip() else last


@dataclass
class RunLogs:
    """Reads a run's logs from where it stopped the last time."""

    logs: Path
    from_attempt: int = 0
    nodes: frozenset[int] | None = None
    """Only these; None for all."""
    to_attempt: int | None = None
    """The last one to read; None for all to come."""
    writer: str = "rank"
    first: int | None = None
    """The node whose lines come before those of the others, if several have some."""
    _read: dict[Path, int] = field(default_factory=dict)
    _open: dict[Path, bytes] = field(default_factory=dict)
    """What has been read and is not a whole line yet; of a line that overwrites itself only the last part."""

    def skip(self) -> None:
        """Passes over what has been written so far."""
        self._read = {file: file.stat().st_size for file, _, _ in self._files()}
        self._open = {}

    def lines(self, *, last: bool = False) -> Iterator[Line]:
        """What has been written up to now and was not taken; the last call also gives an unfinished line."""
        return self._lines([(*one, one[0].stat().st_size) for one in self._files()], last=last)

    def _lines(self, ends: list[tuple[Path, int, int, int]], *, last: bool) -> Iterator[Line]:
        present = max((attempt for _, _, attempt, _ in ends), default=0)
        for file, node, attempt, end in ends:
            for text in self._new(file, end, last=last or attempt < present):
                yield Line(node, attempt, text, self.writer)

    def unfinished(self) -> Iterator[Line]:
        """The lines that are being overwritten, as they are now."""
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
        return sorted(found, key=lambda one: (one[2], one[1] != self.first, one[1]))

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
    """What a terminal shows of whole lines."""
    for line in whole:
        if (text := shown_last(line.decode(errors="replace"))) is not None:
            yield text


def _kept(whole: list[bytes], rest: bytes) -> bytes:
    """What to keep for the next data: what has no end, and an end that may be the way down of a detour."""
    if whole and b"\r" in whole[-1].removesuffix(b"\r") and PART_OF_DETOUR.fullmatch(rest):
        return whole.pop() + b"\n" + rest
    # The last character may be the one that begins to overwrite what is still shown.
    rest = rest[max(0, rest.rfind(b"\r", 0, len(rest) - 1)) :]
    if len(rest) > LONGEST_LINE:  # What has no end is given out in pieces, and never held as a whole.
        whole.append(rest)
        return b""
    return rest
