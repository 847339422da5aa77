"""The history of one job: the log and the events of each node, read one segment at a time."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Any, TypeGuard

from ddpjob_operator.api import BadInputError
from ddpjob_operator.api.contract import MAX_PROCS_PER_NODE
from ddpjob_operator.api.words import listed
from ddpjob_operator.text.foreign_json import parsed_or_none

from .job_index import MOST_JOBS, KeptJob, Unreadable, kept_jobs, left_out_if_unreadable, namespaces_of
from .places import HistoryPlace, PlaceError
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
class KeptLine:
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
    others: tuple[KeptJob, ...] = ()
    """The other jobs of the same name, the newest first."""
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

    def log(self, segments: list[SegmentName], *, since: float = 0.0, tail: int | None = None) -> Iterator[KeptLine]:
        """The lines of segments, from `since` on, or only the last ones. Reads no segment in vain."""
        # A segment ends where the next one of the same process begins.
        later = [
            segment
            for segment, after in zip(segments, [*segments, None][1:], strict=True)
            if after is None or after.folder != segment.folder or after.time >= since * 1000
        ]
        if tail is None:
            return (line for line in self._lines(later) if line.time >= since)
        kept: deque[KeptLine] = deque()
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

    def _lines(self, segments: Iterable[SegmentName]) -> Iterator[KeptLine]:
        before: SegmentName | None = None
        begun = ""
        for segment in segments:
            if before is not None and before.folder == segment.folder and segment.number > before.number + 1:
                gone = segment.number - before.number - 1
                self._say(f"{gone} segments before {segment.path} were removed, because the log is limited in size")
            if before is not None and before.folder != segment.folder and begun:
                yield KeptLine(before.time / 1000, before.attempt, begun)  # Its process was killed.
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
                    yield KeptLine(float(time), segment.attempt, text)
        if begun and before is not None:
            yield KeptLine(before.time / 1000, before.attempt, begun)

    def _records(self, segment: SegmentName) -> Iterator[dict[str, Any]]:
        """The records of a segment. A line that is no record, such as a torn last one, is left out."""
        content = self.place.read(_join(self.folder, segment.path), SEGMENT_BYTES)
        if content is None:  # It was removed a moment ago.
            return
        head, *lines = content.split(b"\n")[:-1] or [b""]
        if not self._is_ours(parsed_or_none(head), segment):
            return
        for line in lines:
            if isinstance(record := parsed_or_none(line), dict):
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


class ManyJobsError(BadInputError):
    """The name of a job is needed, because a place has several."""


def is_of_one_job(place: HistoryPlace) -> bool:
    """Whether a place is itself the folder of a job."""
    return any(NODE.fullmatch(folder) for folder in place.folders(""))


def find_history(
    place: HistoryPlace,
    namespace: str | None,
    name: str | None,
    uid: str | None,
    unreadable: Unreadable | None = None,
) -> JobHistory:
    """The history of a job. Of several jobs of one name it is the newest one's, unless `uid` is given.

    `place` may also be the folder of one job. The beginning of a uid suffices if no other one begins so. Without
    `namespace`, all are searched, except those that cannot be read if `unreadable` gets these.

    Raises:
        ManyJobsError: There are several jobs.
        BadInputError: There is no such job.
        PlaceError: The place cannot be read.
    """
    if is_of_one_job(place):
        return _known(place, "", name, uid)
    if namespace:
        jobs = _jobs(place, [namespace], name, None)
    else:
        jobs = _jobs(place, namespaces_of(place), name, unreadable)
    if len(jobs) != 1:
        wanted = f" of a job named {name}" if name else ""
        where = f" in namespace {namespace}" if namespace else ""
        if not jobs:
            raise BadInputError(f"{place} holds no history{wanted}{where}")
        raise ManyJobsError(f"which job? {listed(['/'.join(job) for job in jobs])}")
    space, found = jobs[0]
    runs = _runs(place, space, found)
    chosen = [run for run in runs if run.uid == uid] or [run for run in runs if run.uid.startswith(uid or "")]
    if not chosen or (uid and len(chosen) > 1):
        several = f": several uids begin with {uid}" if chosen else f" with the uid {uid}" if uid else ""
        raise BadInputError(f"{place} holds no history of {found}{several}")
    others = tuple(run for run in runs if run != chosen[0])
    try:
        history = _known(place, f"{space}/{found}/{chosen[0].uid}", found, chosen[0].uid)
    except PlaceError as error:
        if uid or not others:
            raise
        uids = listed([run.uid for run in others])
        raise PlaceError(f"{error}. Choose another job with --uid: {uids}") from None
    history.others = others
    return history


def _jobs(
    place: HistoryPlace, namespaces: list[str], name: str | None, unreadable: Unreadable | None
) -> list[tuple[str, str]]:
    """The namespaces and the names of the jobs that have a history; if there are many, some of them."""
    found = list[tuple[str, str]]()
    if name is not None:
        for space in namespaces:
            with left_out_if_unreadable(space, unreadable):
                found += [(space, name)] if place.folders(f"{space}/{name}") else []
        return found
    listed = dict[tuple[str, str], None]()
    for job in islice(kept_jobs(place, namespaces, unreadable), MOST_JOBS):
        listed[job.namespace, job.name] = None
        if len(listed) > NAMED:
            break
    if len(listed) > 1:
        return [*listed]
    # The index has no jobs of folders that were copied without it.
    for space in namespaces:
        with left_out_if_unreadable(space, unreadable):
            found += [(space, job) for job in place.folders(space) if OBJECT.fullmatch(job)]
    return found


def _runs(place: HistoryPlace, namespace: str, name: str) -> list[KeptJob]:
    """The jobs of a name, the newest first."""
    uids = {uid for uid in place.folders(f"{namespace}/{name}") if OBJECT.fullmatch(uid)}
    if len(uids) == 1:
        return [KeptJob(namespace, name, uids.pop(), 0.0)]
    listed = (job for job in islice(kept_jobs(place, [namespace]), MOST_JOBS) if job.name == name)
    known = {job.uid: job for job in listed if job.uid in uids}
    for uid in uids - known.keys():
        began = _began(place, f"{namespace}/{name}/{uid}") / 1000
        known[uid] = KeptJob(namespace, name, uid, began)
    return sorted(known.values(), key=lambda job: (job.began, job.uid), reverse=True)


def _known(place: HistoryPlace, folder: str, name: str | None, uid: str | None) -> JobHistory:
    """The history in a job's folder. The first readable segment says whose it is.

    Raises:
        BadInputError: It is another job's, or nothing can be read.
    """
    history = JobHistory(place, folder, JobIdentity("", "", ""))
    for node in history.nodes():
        for segment in history.segments(node, EVENTS) + history.segments(node, LOG):
            head = head_of(place, _join(folder, segment.path))
            if not isinstance(head, dict) or not all(_is_name(head.get(key)) for key in JobIdentity.__slots__):
                continue
            identity = JobIdentity(head["namespace"], head["name"], head["uid"])
            same = identity.uid == uid if folder else identity.uid.startswith(uid or "")
            if (name or identity.name) != identity.name or not same:
                continue
            ranks = head.get("ranks")
            if _is_count(ranks, MAX_PROCS_PER_NODE):
                return JobHistory(place, folder, identity, ranks)
    raise BadInputError(
        f"{_join(str(place), folder)} holds no history{f' of {name}' if name else ''} that can be read"
    )


def head_of(place: HistoryPlace, path: str) -> Any:
    """The first line of a segment; None if it has none that is complete.

    Raises:
        PlaceError: It cannot be read.
    """
    line, end, _ = (place.read(path, HEAD_BYTES) or b"").partition(b"\n")
    return parsed_or_none(line) if end else None


def is_written_by(head: Any, writer: Mapping[str, Any]) -> bool:
    """Whether the first line of a segment has all these values, in a version that this program knows."""
    return isinstance(head, dict) and head | {"v": VERSION, **writer} == head


def _began(place: HistoryPlace, folder: str) -> int:
    """When the first process of a job began to write; 0 if that is unknown."""
    try:
        nodes = [name for name in place.folders(folder) if NODE.fullmatch(name)]
        writers = [WRITER.fullmatch(name) for node in nodes[:1] for name in place.folders(f"{folder}/{node}")]
    except PlaceError:  # It is another user's.
        return 0
    return min((int(match[1]) for match in writers if match), default=0)


def _is_name(value: Any) -> bool:
    """Whether it can be an object's name. Otherwise it may lead elsewhere, as a part of a file's name."""
    return isinstance(value, str) and OBJECT.fullmatch(value) is not None


def _is_count(value: Any, most: int) -> TypeGuard[int]:
    """Whether a value from JSON is a whole number from 1 to `most`."""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
