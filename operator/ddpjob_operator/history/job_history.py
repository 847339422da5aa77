"""The history of one job: the log and the events of each node, read one segment at a time."""

import json
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeGuard

from ddpjob_operator.api import BadInputError
from ddpjob_operator.api.contract import MAX_PROCS_PER_NODE

from .places import HistoryPlace
from .segment_names import EVENTS, LOG, NODE, OBJECT, WRITER, SegmentName, segment_name

VERSION = 1
SEGMENT_BYTES = 1 << 20
"""How much of a segment is read. Its writer begins another one after a quarter of that."""
HEAD_BYTES = 1 << 12
LONGEST_LINE = 1 << 18
"""The longest line that is put together from several records."""
LATEST = 253402300799.0
"""The last moment that datetime knows, in seconds since the epoch."""
LARGEST = 10**15
"""No number in a history is larger."""
NAMED = 10


@dataclass(frozen=True, slots=True)
class JobIdentity:
    """Whose history it is."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line that a node has printed."""

    time: float
    """When it was printed, in seconds since the epoch."""
    attempt: int
    text: str

    @property
    def moment(self) -> str:
        """The time as in the log of a pod."""
        return datetime.fromtimestamp(self.time, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass
class JobHistory:
    """What is kept of one job. `problems` says what could not be read, and is filled while reading."""

    place: HistoryPlace
    folder: str
    """The job's folder in the place; empty if the place itself is one."""
    identity: JobIdentity
    ranks: int = 1
    """The number of processes of each node."""
    others: int = 0
    """How many other jobs of the same name are there."""
    problems: dict[str, None] = field(default_factory=dict)
    """Sentences, in the order in which they were found, each once."""
    _segments: dict[int, list[SegmentName]] = field(default_factory=dict)

    def nodes(self) -> list[int]:
        """The numbers of the nodes that have written something."""
        found = (NODE.fullmatch(name) for name in self.place.folders(self.folder))
        return sorted({int(match[1]) for match in found if match})

    def attempts(self, nodes: Iterable[int]) -> list[int]:
        """The attempts of which there is a log."""
        return sorted({segment.attempt for node in nodes for segment in self.segments(node, LOG)})

    def segments(self, node: int, kind: str) -> list[SegmentName]:
        """The names of a node's segments, in the order in which they were written."""
        if node not in self._segments:
            name = f"node-{node:05}"
            path = _join(self.folder, name)
            found = (
                segment_name(name, folder, file)
                for folder in self.place.folders(path)
                if WRITER.fullmatch(folder)
                for file in self.place.files(f"{path}/{folder}")
            )
            self._segments[node] = sorted(segment for segment in found if segment)
        return [segment for segment in self._segments[node] if segment.kind == kind]

    def log(self, segments: list[SegmentName], *, since: float = 0.0, tail: int | None = None) -> Iterator[LogLine]:
        """The lines of segments, from `since` on, or only the last ones. Reads no segment in vain."""
        # A segment ends where the next one of the same process begins.
        later = [
            segment
            for segment, after in zip(segments, [*segments, None][1:], strict=True)
            if after is None or after.folder != segment.folder or after.time >= since * 1000
        ]
        if tail is None:
            return (line for line in self._lines(later) if line.time >= since)
        kept: deque[LogLine] = deque()
        for segment in reversed(later):
            if len(kept) >= tail:
                break
            fresh = [line for line in self._lines([segment]) if line.time >= since]
            kept.extendleft(reversed(fresh[max(0, len(fresh) + len(kept) - tail) :]))
        return iter(kept)

    def events(self, node: int) -> Iterator[dict[str, Any]]:
        """The events of a node, in the order in which they were written."""
        return (record for segment in self.segments(node, EVENTS) for record in self._records(segment))

    def last_events(self, node: int, most: int) -> Iterator[dict[str, Any]]:
        """The events in the last segments of a node, the newest first."""
        for segment in self.segments(node, EVENTS)[-most:][::-1]:
            yield from [*self._records(segment)][::-1]

    def _lines(self, segments: Iterable[SegmentName]) -> Iterator[LogLine]:
        before: SegmentName | None = None
        begun = ""
        for segment in segments:
            if before is not None and before.folder == segment.folder and segment.number > before.number + 1:
                gone = segment.number - before.number - 1
                self._say(f"{gone} segments before {segment.path} were removed, because the log is limited in size")
            if before is not None and before.folder != segment.folder and begun:
                yield LogLine(before.time / 1000, before.attempt, begun)  # Its process was killed.
                begun = ""
            before = segment
            for record in self._records(segment):
                time, text = record.get("t"), record.get("x")
                if isinstance(time, bool) or not isinstance(time, int | float) or not 0 <= time <= LATEST:
                    continue
                if _is_count(lost := record.get("lost"), LARGEST):
                    text = f"[{lost} lines are missing here: they came faster than they could be written]"
                if not isinstance(text, str):
                    continue
                text = begun + text.encode(errors="replace").decode()
                begun = ""
                if record.get("c") == 1 and len(text) < LONGEST_LINE:
                    begun = text
                else:
                    yield LogLine(float(time), segment.attempt, text)
        if begun and before is not None:
            yield LogLine(before.time / 1000, before.attempt, begun)

    def _records(self, segment: SegmentName) -> Iterator[dict[str, Any]]:
        """The records of a segment. A line that is no record, such as a torn last one, is left out."""
        content = self.place.read(_join(self.folder, segment.path), SEGMENT_BYTES)
        if content is None:  # It was removed a moment ago.
            return
        head, *lines = content.split(b"\n")[:-1] or [b""]
        if not self._is_ours(_parsed(head), segment):
            return
        for line in lines:
            if isinstance(record := _parsed(line), dict):
                yield record

    def _is_ours(self, head: Any, segment: SegmentName) -> bool:
        if not isinstance(head, dict) or not _is_count(head.get("v"), LARGEST):
            self._say(f"{segment.path} is left out: it does not begin as a segment does")
        elif head["v"] > VERSION:
            self._say(f"{segment.path} is left out: a newer version of DDPJob has written it")
        elif head.get("uid") != self.identity.uid:
            self._say(f"{segment.path} is left out: it is another job's")
        else:
            return True
        return False

    def _say(self, problem: str) -> None:
        if len(self.problems) < NAMED:
            self.problems[problem] = None


def find_history(place: HistoryPlace, namespace: str | None, name: str | None, uid: str | None) -> JobHistory:
    """The history of a job. Of several jobs of one name it is the newest one's, unless `uid` is given.

    `place` may also be the folder of one job.

    Raises:
        BadInputError: There is no such job, or several of them.
        PlaceError: The place cannot be read.
    """
    if any(NODE.fullmatch(folder) for folder in place.folders("")):
        return _known(place, "", name, uid)
    spaces = [namespace] if namespace else place.folders("")
    jobs = [(space, job) for space in spaces for job in _named(place, space, name)]
    if len(jobs) != 1:
        listed = ", ".join(f"{space}/{job}" for space, job in jobs[:NAMED]) + ", …" * (len(jobs) > NAMED)
        wanted = f" of a job named {name}" if name else ""
        where = f" in namespace {namespace}" if namespace else ""
        if not jobs:
            raise BadInputError(f"{place} holds no history{wanted}{where}")
        raise BadInputError(f"which job? {listed}")
    folder = "/".join(jobs[0])
    uids = place.folders(folder)
    if uid not in uids if uid else not uids:
        raise BadInputError(f"{place} holds no history of {jobs[0][1]}{f' with the uid {uid}' if uid else ''}")
    newest = uid or max(uids, key=lambda each: _began(place, f"{folder}/{each}"))
    history = _known(place, f"{folder}/{newest}", jobs[0][1], newest)
    history.others = len(uids) - 1
    return history


def _named(place: HistoryPlace, namespace: str, name: str | None) -> list[str]:
    """The jobs of a namespace that have a history and, if `name` is given, this name."""
    if name is None:
        return place.folders(namespace)
    return [name] if place.folders(f"{namespace}/{name}") else []


def _known(place: HistoryPlace, folder: str, name: str | None, uid: str | None) -> JobHistory:
    """The history in a job's folder. The first readable segment says whose it is.

    Raises:
        BadInputError: It is another job's, or nothing can be read.
    """
    history = JobHistory(place, folder, JobIdentity("", "", ""))
    for node in history.nodes():
        for segment in history.segments(node, EVENTS) + history.segments(node, LOG):
            content = place.read(_join(folder, segment.path), HEAD_BYTES) or b""
            head = _parsed(content.split(b"\n", 1)[0])
            if not isinstance(head, dict) or not all(_is_name(head.get(key)) for key in JobIdentity.__slots__):
                continue
            identity = JobIdentity(head["namespace"], head["name"], head["uid"])
            if (name or identity.name) != identity.name or (uid or identity.uid) != identity.uid:
                continue
            ranks = head.get("ranks")
            if _is_count(ranks, MAX_PROCS_PER_NODE):
                return JobHistory(place, folder, identity, ranks)
    raise BadInputError(
        f"{_join(str(place), folder)} holds no history{f' of {name}' if name else ''} that can be read"
    )


def _began(place: HistoryPlace, folder: str) -> int:
    """When the first process of a job began to write; 0 if that is unknown."""
    first = next((name for name in place.folders(folder) if NODE.fullmatch(name)), None)
    writers = [] if first is None else [WRITER.fullmatch(name) for name in place.folders(f"{folder}/{first}")]
    return max((int(match[1]) for match in writers if match), default=0)


def _is_name(value: Any) -> bool:
    """Whether it can be an object's name. Otherwise it may lead elsewhere, as a part of a file's name."""
    return isinstance(value, str) and OBJECT.fullmatch(value) is not None


def _is_count(value: Any, most: int) -> TypeGuard[int]:
    """Whether a value from JSON is a whole number from 1 to `most`."""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _parsed(line: bytes) -> Any:
    """The JSON in a line; None if there is none."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
