"""The format of a job's history: folders, names and lines of segments. Pure.

    <namespace>/<name>/<uid>/node-00003/<time>-<incarnation>-<random>/log-000001-00001-1796009007123.jsonl
    <namespace>/_jobs/8203990992876_<uid>_<name>
    <namespace>/_jobs/8203990992876_<uid>_<name>_succeeded

A segment's name has its kind, its number among those of its kind, the attempt to which all its records belong, and
the time of its first record in milliseconds. So a listing of names is the index. The first line describes the writer;
each further line is a record. Each process writes a folder of its own.

The files in `_jobs` are the index of jobs. Their names begin with what is left of LAST_MOMENT when the job begins, so
that a listing begins with the newest. The second file exists once node 0 has ended, until it begins again.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ddpjob_rank.bounded_json import parsed
from ddpjob_rank.errors import ConfigError

VERSION = 1
SEGMENT_BYTES = 256 * 1024
"""How large a segment may grow. In an object store, a segment that grows is written again as a whole."""
HEAD_BYTES = 4096
"""No first line of a segment is longer."""
LONGEST_LINE = 16 * 1024
"""The longest text of a record in characters. A longer line of the log is divided among several records."""
NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
"""Matches the names and uids of Kubernetes' objects, which become names of folders."""
FOLDER = re.compile(r"\d{13}-(\d{5,9})-[0-9a-f]{8}", re.ASCII)
"""Matches the names of processes' folders."""
SEGMENT = re.compile(r"(?:log|events|result)-\d{6,9}-(\d{5,9})-\d{13,15}\.jsonl", re.ASCII)


JOBS = "_jobs"
"""The folder of a namespace's index. It cannot be a job's name."""
LAST_MOMENT = 10**13 - 1
"""In milliseconds since the epoch."""
_ENCODER = json.JSONEncoder(default=str, ensure_ascii=False, separators=(",", ":"))
RESULT = "result"
"""The kind of the segment that holds the job's result."""
SUCCEEDED, STOPPED, FAILED = "succeeded", "stopped", "failed"


@dataclass(frozen=True, slots=True)
class HistoryWriter:
    """The process that writes: which node of which job it supervises."""

    namespace: str
    name: str
    uid: str
    node: int
    incarnation: int
    ranks: int
    """The number of processes of the node."""

    def __post_init__(self) -> None:
        """Checks the names that become folders.

        Raises:
            ConfigError: One of them is no name of Kubernetes.
        """
        for what, value in (("namespace", self.namespace), ("name", self.name), ("uid", self.uid)):
            if not NAME.fullmatch(value):
                raise ConfigError(f"the job's {what} {value[:64]!a} is not a name in Kubernetes")

    @property
    def node_folder(self) -> str:
        """The folder of this node, where each of its processes has a folder."""
        return f"{self.namespace}/{self.name}/{self.uid}/node-{self.node:05}"

    def folder(self, began: float, word: str) -> str:
        """The folder of this process in the node's folder. `word` is random."""
        return f"{_milliseconds(began):013}-{self.incarnation:05}-{word}"

    def entry(self, first: str) -> str:
        """The name of the job's file in the index. `first` is the folder of the node's first process."""
        return f"{LAST_MOMENT - int(first.partition('-')[0]):013}_{self.uid}_{self.name}"

    def head(self, attempt: int) -> dict[str, Any]:
        """The first line of each segment."""
        known = {"namespace": self.namespace, "name": self.name, "uid": self.uid}
        return {"v": VERSION, **known, "node": self.node, "incarnation": self.incarnation, "ranks": self.ranks} | {
            "attempt": attempt
        }

    def has_written(self, folder: str, name: str, start: Callable[[], bytes]) -> bool:
        """Whether a file is certainly a segment of this node. `start` reads its first HEAD_BYTES."""
        process, segment = FOLDER.fullmatch(folder), SEGMENT.fullmatch(name)
        if process is None or segment is None:
            return False
        former = replace(self, incarnation=int(process[1]))
        try:
            head = parsed(start().split(b"\n", 1)[0])
        except ValueError:
            return False
        return isinstance(head, dict) and head | {"ranks": self.ranks} == former.head(int(segment[1]))


@dataclass(slots=True)
class Segment:
    """The content of a segment, and how much of it has been saved."""

    name: str
    content: bytearray
    saved: int = 0


@dataclass(slots=True)
class Series:
    """The segments of one kind that a process writes. Keeps the first and the newest, up to a size."""

    kind: str
    writer: HistoryWriter
    most_bytes: int
    unsaved: list[Segment] = field(default_factory=list)
    """Segments that are to be saved, the oldest first. The last of them may still grow."""
    _attempt: int = 0
    _number: int = 0
    _open: Segment | None = None
    _sizes: dict[str, int] = field(default_factory=dict)
    """The sizes of all segments that exist, by name, in their order."""

    def add(self, attempt: int, time: float, record: Mapping[str, Any]) -> None:
        """Appends a record."""
        line = line_of(record)
        current = self._open
        if current is None or attempt != self._attempt or len(current.content) + len(line) > SEGMENT_BYTES:
            current = self._begin(attempt, time)
        current.content += line
        self._sizes[current.name] = len(current.content)
        if not self.unsaved or self.unsaved[-1] is not current:
            self.unsaved.append(current)

    def surplus(self) -> Iterator[str]:
        """The names of segments to remove, so that the rest is not larger than `most_bytes`. Forgets them."""
        while sum(self._sizes.values()) > self.most_bytes and len(self._sizes) > 2:  # noqa: PLR2004  (first and last)
            name = list(self._sizes)[1]
            del self._sizes[name]
            self.unsaved = [segment for segment in self.unsaved if segment.name != name]
            yield name

    def _begin(self, attempt: int, time: float) -> Segment:
        self._number += 1
        self._attempt = attempt
        name = f"{self.kind}-{self._number:06}-{attempt:05}-{_milliseconds(time):013}.jsonl"
        self._open = Segment(name, bytearray(line_of(self.writer.head(attempt))))
        return self._open


def line_of(record: Mapping[str, Any]) -> bytes:
    """A line of a segment."""
    return f"{_ENCODER.encode(record)}\n".encode(errors="replace")


def _milliseconds(moment: float) -> int:
    return max(0, int(moment * 1000))
