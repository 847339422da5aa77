"""The logs of a run as they grow: whole lines, each with the rank and the attempt that wrote it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

LOG = re.compile(r"attempt-(\d+)/rank-(\d+)\.log$")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a pod's output."""

    rank: int
    """The node's rank."""
    attempt: int
    text: str
    writer: str = "rank"
    """What wrote it: a rank, or a node where several ranks write into one log."""

    def __str__(self) -> str:
        return f"[{self.writer} {self.rank}] {self.text}"


class Source(Protocol):
    """Where lines come from."""

    def skip(self) -> None:
        """Passes over what has been written so far."""

    def lines(self, *, last: bool = False) -> Iterator[Line]:
        """What has been written since the last call; nothing is held back in the last call."""
        ...


@dataclass
class Follower:
    """Reads a run's logs on where it stopped the last time."""

    logs: Path
    from_attempt: int = 0
    ranks: frozenset[int] | None = None
    """Only these; None for all."""
    to_attempt: int | None = None
    """The last one to read; None for all that come."""
    writer: str = "rank"
    first: int | None = None
    """The rank whose lines come before those of the others, where several have some."""
    _read: dict[Path, int] = field(default_factory=dict)

    def skip(self) -> None:
        """Passes over what has been written so far."""
        self._read = {file: file.stat().st_size for file, _, _ in self._files()}

    def lines(self, *, last: bool = False) -> Iterator[Line]:
        """What has been written since the last call; the last call also gives a line that has no end yet."""
        for file, rank, attempt in self._files():
            for text in self._new(file, last=last):
                yield Line(rank, attempt, text, self.writer)

    def _files(self) -> list[tuple[Path, int, int]]:
        found = []
        for file in self.logs.glob("attempt-*/rank-*.log"):
            match = LOG.search(file.as_posix())
            attempt, rank = (int(match[1]), int(match[2])) if match else (0, -1)
            wanted = self.from_attempt <= attempt and (self.to_attempt is None or attempt <= self.to_attempt)
            if wanted and (self.ranks is None or rank in self.ranks):
                found.append((file, rank, attempt))
        return sorted(found, key=lambda one: (one[2], one[1] != self.first, one[1]))

    def _new(self, file: Path, *, last: bool) -> list[str]:
        start = self._read.get(file, 0)
        with file.open("rb") as content:
            content.seek(start)
            data = content.read()
        end = len(data) if last else data.rfind(b"\n") + 1
        self._read[file] = start + end
        return data[:end].decode(errors="replace").splitlines()
