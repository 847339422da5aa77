"""`ddpjob logs`, `status`, `report` and `ls` with --history: what is kept of a job when its pods or the job are gone.

Neither a run directory is needed nor, unless the history is on a volume claim, a cluster.
"""

import argparse
import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from ddpjob_operator.api import BadInputError, DDPJob, Incident, State
from ddpjob_operator.api.git_state import BRANCH, COMMIT, DIRTY, GitState
from ddpjob_operator.api.words import age, listed, world
from ddpjob_operator.history import HistoryPlace, JobHistory, ManyJobsError, Unreadable, find_history, open_place
from ddpjob_operator.text import one_line
from ddpjob_operator.view_model import (
    Curve,
    JobDetail,
    JobRow,
    TimeAxis,
    clock_of,
    collected,
    curves_of,
    interruptions_of,
    without_secrets,
)

from .kept_jobs import list_jobs
from .last_lines import MOST_LINES, last_lines
from .logs import which_of
from .phrases import say, span_of_attempts, writer
from .printed_records import records_of
from .report import COMPARISON, write_page
from .run_logs import Line, Which
from .screen import Screen

if TYPE_CHECKING:
    from ddpjob_operator.report import LastLines, ProgramRun, RunData

CLAIM = "pvc://"
"""How the address of a directory on a volume claim begins."""
OF_A_CLAIM = ("cluster", "context", "kubeconfig", "reader_image")
"""Arguments that concern the cluster of a volume claim."""
ELSEWHERE = (
    *("local", "run_dir", "all_namespaces"),
    *("follow", "watch", "stacks", "state"),
)
"""Arguments that concern what is running, or another place."""
PROGRAMS = 100
"""How many of the programs of a held job are shown, the newest."""
INCIDENTS = 16
"""How many incidents are shown: the last ones."""
RANKS = 8
"""How many failed ranks are named."""
OTHERS = 5
"""How many other jobs of the same name are listed."""
FEW = 4
NODES = 64
"""In a larger job, only the events of node 0 are read, which has the incidents of all."""
LONGEST = 1000
"""A value is cut off after this many characters."""
LONGEST_MESSAGE = 512
"""As a job's status has it."""
RECENT = 4
"""In how many of the last segments of events an incident is searched for."""


def call(arguments: argparse.Namespace) -> int:
    """Runs a command on the history that `--history` names.

    Raises:
        BadInputError: There is no such job, node or attempt, or an argument does not fit.
    """
    check_flags(arguments)
    space, _, name = (arguments.name or "").rpartition("/")
    namespace = getattr(arguments, "namespace", None) or space or None
    unreadable: Unreadable = {}
    with opened(arguments, namespace, name or None) as place:
        try:
            return _call(place, namespace, name or None, arguments, unreadable)
        finally:
            for left_out in unreadable.values():
                say(left_out)


def check_flags(arguments: argparse.Namespace) -> None:
    """Checks that no flag is given that concerns what is running, or another place.

    Raises:
        BadInputError: There is one.
    """
    on_claim = arguments.history.startswith(CLAIM)
    for name in ELSEWHERE if on_claim else (*ELSEWHERE, *OF_A_CLAIM):
        if getattr(arguments, name, None):
            flag = name.replace("_", "-")
            raise BadInputError(f"--{flag} does not go with --history, which reads what was kept, without a cluster")


@contextlib.contextmanager
def opened(arguments: argparse.Namespace, namespace: str | None, name: str | None) -> Iterator[HistoryPlace]:
    """Opens the place that `--history` names, for as long as the block runs.

    Raises:
        PlaceError: It cannot be opened.
    """
    if not arguments.history.startswith(CLAIM):
        yield open_place(arguments.history)
        return
    from .cluster.claim_place import opened_claim  # noqa: PLC0415  Importing the client is slow.

    with opened_claim(arguments, namespace, name) as place:
        yield place


def _call(
    place: HistoryPlace,
    namespace: str | None,
    name: str | None,
    arguments: argparse.Namespace,
    unreadable: Unreadable,
) -> int:
    if arguments.command == "ls":
        return list_jobs(place, namespace, name, arguments.output, unreadable)
    try:
        history = find_history(place, namespace, name, arguments.uid, unreadable)
    except ManyJobsError:
        if arguments.command != "status" or arguments.name:
            raise
        return list_jobs(place, namespace, None, arguments.output, unreadable)
    if history.others and arguments.uid is None:
        _tell_others(history)
    try:
        return COMMANDS[arguments.command](history, arguments)
    finally:
        for problem in history.problems:
            say(problem)


def _tell_others(history: JobHistory) -> None:
    name, others = history.identity.name, history.others
    say(f"this is the newest of {len(others) + 1} jobs named {name}. Choose another one with --uid:")
    for job in others[:OTHERS]:
        say(f"  --uid {job.uid}  began {job.moment if job.began else 'at an unknown time'}  {job.result}".rstrip())
    if len(others) > OTHERS:
        say(f"  and {len(others) - OTHERS} more, which ddpjob ls {name} --history {history.place} lists")


def _logs(history: JobHistory, arguments: argparse.Namespace) -> int:
    return print_logs(history, which_of(arguments))


def print_logs(history: JobHistory, which: Which) -> int:
    """Prints the logs that a job's history has.

    Raises:
        BadInputError: As `kept_lines` does.
    """
    for line in kept_lines(history, which):
        print(replace(line, text=which.shown(line.moment, line.text)))
    return 0


def kept_lines(history: JobHistory, which: Which) -> Iterator[Line]:
    """The lines that a job's history has; those of the last pods, if no attempt is requested.

    Raises:
        BadInputError: There is no log of the requested node or attempt, or the place cannot be read.
    """
    nodes = history.nodes()
    which = which.in_a_gang(history.identity.name, max(nodes, default=0) + 1, history.ranks)
    if which.node is not None and which.node not in nodes:
        raise BadInputError(f"there is no log of node {which.node}; there is one of node {listed(nodes)}")
    attempt = _attempt(history, nodes if which.node is None else [which.node], which)
    since = 0.0
    if which.since_seconds is not None:
        since = (datetime.now(UTC) - timedelta(seconds=which.since_seconds)).timestamp()
    noun, first = writer(history.ranks), _failed_first(history, attempt)
    for node in sorted(nodes if which.node is None else [which.node], key=lambda node: (node != first, node)):
        segments = history.segments(node, "log")
        if which.past:
            segments = [segment for segment in segments if segment.attempt == attempt]
        else:  # The process that took part in the last attempt, with its earlier attempts.
            last = {segment.folder for segment in segments if segment.attempt == attempt}
            segments = [segment for segment in segments if segment.folder in last]
        for line in history.log(segments, since=since, tail=which.tail):
            yield Line(node, line.attempt, line.text, noun, line.moment)


def _attempt(history: JobHistory, nodes: list[int], which: Which) -> int:
    """The requested attempt, or the last one.

    Raises:
        BadInputError: There is no log of it.
    """
    # All nodes take part in an attempt, so a few of them tell which there were, unless they have printed nothing.
    found = history.attempts(nodes[:FEW]) or history.attempts(nodes)
    if not found:
        raise BadInputError(
            f"the history of {history.identity.name} has no log: none of its ranks has printed anything"
        )
    wanted = found[-1] if which.attempt is None else which.attempt
    if which.previous:
        if len(found) == 1:
            raise BadInputError("there is no previous attempt; leave out --previous")
        wanted = found[-2]
    if wanted not in found:
        raise BadInputError(f"no log of attempt {wanted} is kept; there is {listed(found)}")
    return wanted


def _failed_first(history: JobHistory, attempt: int) -> int | None:
    """The node that failed first in an attempt; None if that is not known."""
    for event in history.last_events(0, RECENT):
        incident = event.get("incident")
        if event.get("attempt") == attempt and isinstance(incident, dict) and isinstance(incident.get("node"), int):
            node: int = incident["node"]
            return node
    return None


@dataclass
class _Seen:
    """What the events of a job say."""

    first: str = ""
    last: str = ""
    """The times of the first and the last event."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    progress: Mapping[str, Any] = field(default_factory=dict)
    reached: int = 0
    """The last attempt."""
    finished: bool = False
    result: str = ""
    """How node 0's supervisor ended; empty if an attempt has begun since."""
    stopped: str = ""
    """The signal that told the node to stop; empty if an attempt has begun since."""
    replaced: Mapping[str, Any] = field(default_factory=dict)
    failed_code: Mapping[str, Any] = field(default_factory=dict)
    """The last new code that failed before its first step."""
    """The last change of the code in place."""
    incidents: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    """The last incidents, by the attempt that each ended."""
    programs: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    """The last programs that were run on a held job, by their attempts."""
    programs_ended: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    """How they have ended."""
    hold_ended: bool = False
    """Whether the job was held, and nothing had run for its idle time."""
    ended: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    """How each rank ended in the last attempt in which it did."""

    def take(self, event: Mapping[str, Any]) -> None:
        """Takes an event of node 0."""
        time = event.get("time")
        if isinstance(time, str):
            self.first, self.last = self.first or time, max(self.last, time)
        if isinstance(attempt := event.get("attempt"), int):
            self.reached = max(self.reached, attempt)
        match event:
            case {"event": "facts"}:
                self.facts = event
            case {"event": "begun"}:
                self.stopped = self.result = ""
            case {"event": "ended", "result": str(result)}:
                self.result = result
            case {"event": "stopping", "signal": str(signal)}:
                self.stopped = signal
            case {"event": "progress"}:
                self.progress, self.finished = event, False
            case {"event": "finished"}:
                self.finished = True
            case {"event": "code_replaced"}:
                self.replaced = event
            case {"event": "code_failed"}:
                self.failed_code = event
            case {"event": "incident", "incident": dict() as incident}:
                self._take_incident(incident)
                self.finished = False
        self.take_end(event)
        self._take_program(event)

    def passing(self, events: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Takes events of node 0, and yields them."""
        for event in events:
            self.take(event)
            yield event

    @property
    def git(self) -> GitState | None:
        """The git commit that the job was submitted from, if the events have one that is valid."""
        found = self.facts.get("git")
        if not isinstance(found, dict):
            return None
        dirty = str(found.get("dirty") is True).lower()
        return GitState.of({COMMIT: found.get("commit"), BRANCH: found.get("branch", ""), DIRTY: dirty})

    def take_end(self, event: Mapping[str, Any]) -> None:
        """Takes an event of any node, for how ranks have ended."""
        if event.get("event") == "rank_ended" and isinstance(event.get("rank"), int):
            self.ended[event["rank"]] = event

    def _take_program(self, event: Mapping[str, Any]) -> None:
        match event:
            case {"event": "program", "attempt": int(attempt)}:
                self.programs[attempt] = event
                if len(self.programs) > PROGRAMS:
                    oldest = min(self.programs)
                    del self.programs[oldest]
                    self.programs_ended.pop(oldest, None)
            case {"event": "program_ended", "attempt": int(attempt)} if attempt in self.programs:
                self.programs_ended[attempt] = event
            case {"event": "hold_ended"}:
                self.hold_ended = True

    def _take_incident(self, incident: Mapping[str, Any]) -> None:
        # The operator may know more of an incident than the supervisors: that a node was lost, and why. What it knows
        # is written later, when a new pod joins.
        if isinstance(attempt := incident.get("attempt"), int):
            self.incidents[attempt] = incident
        if len(self.incidents) > INCIDENTS:
            del self.incidents[min(self.incidents)]

    @property
    def last_incident(self) -> Mapping[str, Any]:
        """The incident that ended the latest attempt; empty if there was none."""
        return self.incidents[max(self.incidents)] if self.incidents else {}

    def document(self, history: JobHistory, attempts: list[int]) -> dict[str, Any]:
        """All of it as JSON."""
        known = {key: getattr(history.identity, key) for key in ("namespace", "name", "uid")}
        return {
            **known,
            "attempts": attempts,
            "first": self.first,
            "last": self.last,
            "finished": self.finished,
            "stopped": self.stopped,
            "facts": self.facts,
            "progress": self.progress,
            "programs": [{**event, **self.programs_ended.get(at, {})} for at, event in sorted(self.programs.items())],
            "incidents": [self.incidents[attempt] for attempt in sorted(self.incidents)],
            "ranks": [self.ended[rank] for rank in sorted(self.ended)],
        }


def _status(history: JobHistory, arguments: argparse.Namespace) -> int:
    nodes, seen = history.nodes(), _Seen()
    for event in history.events(0):
        seen.take(event)
    for node in nodes[1:] if len(nodes) <= NODES else ():
        for event in [*history.last_events(node, 1)][::-1]:
            seen.take_end(event)
    attempts = history.attempts(nodes[:FEW])
    if arguments.output == "json":
        print(json.dumps(seen.document(history, attempts), indent=2))
        return 0
    screen = Screen()
    for name, value in _described(history, nodes, attempts, seen):
        screen.entry(f"{name + ':':<14}", _line(value))
    for index, attempt in enumerate(sorted(seen.incidents, reverse=True)):
        incident = seen.incidents[attempt]
        who = "node {node}" if incident.get("rank") is None else "rank {rank} on node {node}"
        row = f"attempt {{attempt}}, {who}: {{cause}}: ".format_map(_Shown(incident)) + _message(incident)
        screen.entry(f"{'Incidents:' if index == 0 else '':<14}", _line(row))
    for index, attempt in enumerate(sorted(seen.programs, reverse=True)):
        begun, ended = _Shown(seen.programs[attempt]), seen.programs_ended.get(attempt)
        told = "attempt {attempt}, {program} (code {code}, run by {by})".format_map(begun)
        row = f"{told}: {_program_end(ended)}"
        screen.entry(f"{'Programs:' if index == 0 else '':<14}", _line(row))
    return 0


def _line(text: str) -> str:
    """A text of others as one line of bounded length, without secrets."""
    return one_line(without_secrets(text[:LONGEST]))


def _program_end(ended: Mapping[str, Any] | None) -> str:
    """How a program on a held job has ended, in words."""
    return "no end was recorded" if ended is None else str(ended.get("message") or "done")


class _Shown(dict[str, Any]):
    """Fields of somebody else's document, of which some may be missing."""

    def __missing__(self, key: str) -> str:
        return "?"


def _described(history: JobHistory, nodes: list[int], attempts: list[int], seen: _Seen) -> Iterator[tuple[str, str]]:
    identity, now = history.identity, datetime.now(UTC)
    done = [
        end
        for end in seen.ended.values()
        if end.get("exitCode") == 0 and end.get("attempt") == max(attempts, default=0)
    ]
    # Not every program reports its steps.
    finished = seen.finished or seen.result == "succeeded" or len(done) == len(nodes) * history.ranks
    yield "Name", identity.name
    if state := seen.result.capitalize() or (State.SUCCEEDED.value if finished else ""):
        yield "State", state
    yield "Namespace", identity.namespace
    yield "Uid", identity.uid
    yield "History", str(history.place)
    yield "World", world(len(nodes), history.ranks)
    if git := seen.git:
        yield "Code", str(git)
    if seen.replaced:
        words = "revision {revision} ({digest:.12}), sent by {by}; in place since attempt {attempt}"
        yield "New code", words.format_map(_Shown({name: str(value) for name, value in seen.replaced.items()}))
    if seen.failed_code:
        words = "revision {revision} ({digest:.12}), sent by {by}; {story}, so the former code ran again"
        yield "Failed code", words.format_map(_Shown({name: str(value) for name, value in seen.failed_code.items()}))
    held = "the hold ended, because no program had run for its idle time"
    yield "End", held if seen.hold_ended else "the program finished" if finished else _end(seen)
    if attempts := attempts or [1, seen.reached] * bool(seen.reached):  # Not every program prints something.
        yield "Attempts", span_of_attempts(attempts[0], attempts[-1])
    if seen.first:
        yield "Recorded", f"{seen.first} to {seen.last}{_ago(seen.last, now)}"
    if seen.progress:
        total = seen.progress.get("total_steps")
        yield "Progress", f"step {seen.progress.get('step')}{f' of {total}' if isinstance(total, int) else ''}"
    if isinstance(loss := seen.progress.get("loss"), int | float | str):
        yield "Loss", f"{loss:.4g}" if isinstance(loss, float) else str(loss)
    if failed := [end for end in seen.ended.values() if end.get("cause")]:
        yield "Failed", f"rank {listed([end['rank'] for end in failed], RANKS)}"


def _end(seen: _Seen) -> str:
    last = seen.last_incident
    ended = last.get("attempt")
    if not last or (isinstance(ended, int) and seen.reached > ended):
        if seen.stopped:
            return f"the program was told to stop ({seen.stopped})"
        since = " since the last incident" if last else ""
        return f"none was recorded{since}: it still runs, or was lost with its node"
    return f"{last.get('cause', '?')}: {_message(last)}"


def _ago(moment: str, now: datetime) -> str:
    known = _moment(moment)
    return f", {age(known, now)} ago" if known else ""


def _report(history: JobHistory, arguments: argparse.Namespace) -> int:
    whole, name = arguments.output is None, history.identity.name
    if not arguments.others:
        output = arguments.output or Path(f"{name}-report.html")
        return write_page(output, lambda now: run_data(history, now), whole=whole)
    jobs = [history, *(_other(history, arguments, other) for other in arguments.others)]
    return write_page(arguments.output or COMPARISON, lambda now: [run_data(one, now) for one in jobs], whole=whole)


def _other(history: JobHistory, arguments: argparse.Namespace, name: str) -> JobHistory:
    """The history of another job in the place of this one.

    Raises:
        BadInputError: There is no such job, or there are several.
    """
    space, _, alone = name.rpartition("/")
    return find_history(history.place, getattr(arguments, "namespace", None) or space or None, alone, None, {})


def run_data(history: JobHistory, now: datetime, job: DDPJob | None = None) -> "RunData":
    """The data of a job's page: what its history has and, if it is known, the job."""
    from ddpjob_operator.report import Kept, RunData  # noqa: PLC0415  Its libraries may be missing.

    seen = _Seen()
    recorded = collected(seen.passing(history.events(0)))
    said = records_of(history.log(history.segments(0, "log")), now)
    known = Kept(
        began=_moment(seen.first),
        ended=_moment(seen.last),
        world=world(len(history.nodes()), history.ranks),
        result=seen.result,
        incidents=[*_incidents(seen)],
        git=seen.git,
        programs=[*_programs(seen)],
    )
    found = RunData(history.identity.name, job, recorded, printed=said, kept=known)
    return replace(found, last_lines=_last_lines(history, found.last_incident))


def _last_lines(history: JobHistory, incident: Incident | None) -> "LastLines | None":
    """What the rank that failed first in the last incident printed last; None if that is not known."""
    if incident is None or incident.node not in history.nodes():
        return None
    segments = [one for one in history.segments(incident.node, "log") if one.attempt == incident.attempt]
    return last_lines(history.log(segments, tail=MOST_LINES), incident, writer(history.ranks))


def kept_detail(history: JobHistory, row: JobRow, now: datetime) -> JobDetail:
    """What a screen of one job shows of its history; `row` is its line in a table.

    Raises:
        PlaceError: It cannot be read.
    """
    seen, nodes = _Seen(), history.nodes()
    recorded = collected(seen.passing(history.events(0)))
    began, ended = _moment(seen.first), _moment(seen.last)
    told = _described(history, nodes, history.attempts(nodes[:FEW]), seen)
    printed = None if recorded.has("loss") else records_of(history.log(history.segments(0, "log")), now)
    axis = TimeAxis.of(began, ended or now, interruptions_of([*_incidents(seen)], recorded)) if began else None
    return JobDetail(
        row,
        {label: _line(text) for label, text in told},
        axis=axis,
        curves=curves_of(recorded, printed),
        clock=clock_of(recorded, began) if began else Curve(),
    )


def _programs(seen: _Seen) -> Iterator["ProgramRun"]:
    from ddpjob_operator.report import ProgramRun  # noqa: PLC0415  Its libraries may be missing.

    for attempt, begun in sorted(seen.programs.items()):
        name, code, by = (str(begun.get(key, ""))[:LONGEST] for key in ("program", "code", "by"))
        ended = seen.programs_ended.get(attempt)
        times = _moment(begun.get("time")), _moment((ended or {}).get("time"))
        yield ProgramRun(attempt, *times, name, code, by, _program_end(ended)[:LONGEST])


def _incidents(seen: _Seen) -> Iterator[Incident]:
    """The incidents that can be read."""
    for incident in seen.incidents.values():
        with contextlib.suppress(ValidationError):
            known = {"time": _moment(incident.get("time")), "message": _message(incident)[:LONGEST_MESSAGE]}
            yield Incident.model_validate({"pod": "", **incident, **known})


def _message(incident: Mapping[str, Any]) -> str:
    """What an incident's program said last, with the type of its exception."""
    exception, message = incident.get("exception"), str(incident.get("message", ""))
    return f"{exception}: {message}" if exception and not message.startswith(str(exception)) else message


def _moment(time: Any) -> datetime | None:
    """A time that somebody else has written; None if it is none, or has no time zone."""
    try:
        found = datetime.fromisoformat(time)
        return found.astimezone(UTC) if found.tzinfo else None
    except (ValueError, TypeError, OverflowError):
        return None


COMMANDS = {"logs": _logs, "status": _status, "report": _report}
"""What the commands do with the history of one job."""
