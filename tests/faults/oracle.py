"""What is demanded of every life: the end and the objects of an undisturbed one, and what never may be."""

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from .calls import REVIEWS, Call, Place, phase_of
from .faults import ASKED_ONCE_MORE, Answer, Hang, Reset
from .plan import Differs
from .proxy import Record
from .witness import Change, Manifest, Witness

WINDOW_SECONDS = 5.0
MOST_PER_WINDOW = 10
"""Requests for the same thing of one object. What fails is tried again after 0.2, 0.4, 0.8 s and so on, so five times
in five seconds; lists are asked for by kopf and by us."""
MOST_STATUSES = 40
"""In all. A whole life writes the status 18 times, and a job that is recreated has two."""
MOST_EVENTS = 40
"""Whatever they say."""
CREATES_EVENT = ("create", "events")
BY_TWO = {"ddpjobs", "pods"}
"""What kopf lists beside us, and what we list for a single job beside a whole list."""
REFUSED = {HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND}
AT_ONCE_SECONDS = 1.0
"""What a request brings with it follows so soon."""

PASSING = frozenset(
    {
        "backoffUntil",
        "completionTime",
        "firstRunTime",
        "lastCompletedTime",
        "lastTransitionTime",
        "nodeName",
        "podGroup",
        "selector",
        "service",
        "startTime",
        "suspendTime",
        "time",
        "until",
    }
)
"""What no two lives have in common: moments, uids, and where pods are put. That there is one, they have."""
WAITS = re.compile(r"\bin \d+\.\d s\b")
"""How long the next attempt waits is told, and has jitter."""
GIVEN_BACK = re.compile(r'"(Waiting in the queue: )?(Preempted|Pending)"')
"""What the queue says of an eviction, and what it says as soon as it has its quota back: a status that can wait tells
that, up to ten seconds later."""
CREATED = re.compile(r"^Created: (\d+ nodes?) created$")
OF_PODS = re.compile(r"\b(life-\d+)-[a-z0-9]{5}\b")


@dataclass
class Account:
    """What a life came to."""

    said: set[str] = field(default_factory=set)
    """Its Kubernetes events, in what two lives have in common."""
    ends: dict[str, Manifest] = field(default_factory=dict)
    """The status at the end of each stage, in what two lives have in common."""
    made: Counter[str] = field(default_factory=Counter)
    gone: Counter[str] = field(default_factory=Counter)


def events_of(log: Iterable[Record]) -> set[str]:
    """The Kubernetes events that were written, by their reasons and words."""
    made = (json.loads(one.body) for one in log if one.done and (one.call.verb, one.call.resource) == CREATES_EVENT)
    return {"{reason}: {message}".format(**lasting(body)) for body in made}


def end_of(there: Witness) -> Manifest:
    """How a stage has ended: what the status says, and what pods there are."""
    pods = Counter(
        f"{_named(Change(0.0, 'pods', '', pod))} {phase_of(pod)}" for pod in there.pods() if phase_of(pod) != "ending"
    )
    said = json.dumps(lasting(there.status()))
    status = json.loads(GIVEN_BACK.sub(r'"\1Evicted"', said) if there.queued() else said)
    conditions = {f"conditions.{one['type']}": one for one in status.pop("conditions", ())}
    return {**status, **conditions, "pods": dict(sorted(pods.items()))}


def objects(history: Sequence[Change], job: str) -> tuple[Counter[str], Counter[str]]:
    """What belonged to a job when it was made, and what of it is gone."""
    own = {change.uid for change in history if change.what == "ADDED" and job in {change.uid, change.owner}}
    made: Counter[str] = Counter()
    gone: Counter[str] = Counter()
    for change in history:
        if change.uid in own:
            made[_named(change)] += change.what == "ADDED"
            gone[_named(change)] += change.what == "DELETED"
    return +made, +gone


def differences(mine: Account, undisturbed: Account, differs: Differs) -> Iterator[str]:
    """In what a life differs from an undisturbed one and may not, in sentences."""
    for stage, end in mine.ends.items():
        usual = undisturbed.ends[stage]
        for key in sorted(end.keys() | usual.keys()):
            if end.get(key) != usual.get(key) and not (key in differs.ends and _is_over(key, end.get(key))):
                yield f"after {stage}: {key} is {end.get(key)}, undisturbed {usual.get(key)}"
    if not mine.made:  # It did not come so far.
        return
    for what, counts, usual_counts in (
        ("made", mine.made, undisturbed.made),
        ("gone", mine.gone, undisturbed.gone),
    ):
        for name in sorted(counts.keys() | usual_counts.keys()):
            most = usual_counts[name] + differs.more.get(name, 0)
            if not usual_counts[name] <= counts[name] <= most:
                yield f"{what}: {name} {counts[name]} times, undisturbed {usual_counts[name]}"


def two_of_one_rank(history: Iterable[Change]) -> Iterator[str]:
    """Never do two pods of one job have the same rank and incarnation, nor do two of one rank live."""
    living: dict[str, tuple[str, Place]] = {}
    for change in history:
        if change.place is None:
            continue
        if change.what == "DELETED" or change.manifest["status"].get("phase") in {"Succeeded", "Failed"}:
            living.pop(change.uid, None)
        else:
            living[change.uid] = (change.owner, change.place)
        rank = (change.owner, change.place[0])
        of_rank = sorted(place for owner, place in living.values() if (owner, place[0]) == rank)
        if len(of_rank) > 1:
            yield f"two live pods of one rank: {of_rank} at {change.time:.3f}"


def former_uids(history: Iterable[Change], log: Iterable[Record]) -> Iterator[str]:
    """Nothing is made or changed in the name of what was gone before the request was made.

    What hung on its way is no fault of the operator's. Events tell of what was, and may tell late.
    """
    gone = {change.uid: change.time for change in history if change.what == "DELETED"}
    for record in log:
        call = record.call
        late = isinstance(record.injected, Hang) or call.resource == "events"
        if call.writes and record.done and not late and gone.get(call.uid, record.began) < record.began:
            yield f"{record}: its object or owner {call.uid} was gone at {gone[call.uid]:.3f}"


def unconditional(log: Iterable[Record]) -> Iterator[str]:
    """No write can hit another object that has taken the name of the one that is meant, nor undo what is newer."""
    for record in log:
        call = record.call
        if not call.writes or call.verb == "create" or call.resource == "events":
            continue
        said = json.loads(record.body)
        if call.subresource == "status" or isinstance(said, list):
            safe = isinstance(said, list) and any(one["path"] == "/metadata/resourceVersion" for one in said)
        else:
            safe = bool(call.uid)
        if not safe:
            yield f"{record}: says neither a uid nor a version: {record.body[:200]!r}"


def two_leaders(log: Iterable[Record]) -> Iterator[str]:
    """Where a Lease says who leads, no process changes anything once a later one has. Events tell of what was."""
    leader = 0
    for record in log:
        if record.call.writes and record.done and record.call.resource != "events":
            if record.process < leader:
                yield f"{record}: process {leader} leads by then"
            leader = max(leader, record.process)


def hot_loops(log: Iterable[Record], at_once: float = AT_ONCE_SECONDS) -> Iterator[str]:
    """Nothing is asked again and again, by all processes together.

    at_once  how soon what a request brings with it follows, by the patience that a busy machine needs
    """
    asked: defaultdict[str, list[Record]] = defaultdict(list)
    for record in _by_itself(log, at_once):
        # A question about rights is asked once per right; statuses that the server itself answers, as a whole.
        own = record.call.subresource == "status" and record.injected is None
        if record.call.resource not in REVIEWS and not own:
            asked[_asked(record.call)].append(record)
    for what, records in asked.items():
        most = MOST_EVENTS if records[0].call.resource == "events" else MOST_PER_WINDOW
        first = 0
        for last, record in enumerate(records):
            while record.began - records[first].began > WINDOW_SECONDS:
                first += 1
            if last - first + 1 > most:
                these = "; ".join(map(str, records[first : last + 1]))
                yield f"{what}: {last - first + 1} times within {WINDOW_SECONDS:.0f} s: {these}"
                break


def _by_itself(log: Iterable[Record], at_once: float) -> Iterator[Record]:
    """All but what another request, which is counted, brings with it at once: one that is reset itself, once more; a
    status that was refused, a look at the job and its pods."""
    brought: defaultdict[tuple[int, str], list[float]] = defaultdict(list)
    """Until when each of those that are to follow does."""
    for record in log:
        call, process = record.call, record.process
        due = [until for until in brought.pop((process, _asked(call)), ()) if until >= record.began]
        if due:
            brought[process, _asked(call)] = due[1:]
            continue
        yield record
        soon = max(record.began, record.answered) + at_once
        if isinstance(record.injected, Reset) and call.verb in ASKED_ONCE_MORE:
            brought[process, _asked(call)].append(soon)
        if call.subresource == "status" and record.status in REFUSED:
            brought[process, _asked(Call("get", call.resource, name=call.name))].append(soon)
            brought[process, _asked(Call("list", "pods"))].append(soon)


def quarrels(history: Iterable[Change], log: Iterable[Record]) -> Iterator[str]:
    """A status is refused because somebody else has changed the job: no more often than that; nor is it written for
    ever."""
    statuses = [one for one in log if (one.call.resource, one.call.subresource) == ("ddpjobs", "status")]
    written = Counter(record.process for record in statuses if record.done)
    refused = Counter(record.process for record in statuses if record.status in REFUSED and record.injected is None)
    changes = sum(change.kind == "ddpjobs" for change in history)
    for process, times in refused.items():
        if times > changes - written[process]:
            others = changes - written[process]
            yield f"process {process}: {times} statuses were refused, and others changed the job {others} times"
    if written.total() > MOST_STATUSES:
        yield f"the status was written {written.total()} times"


def needless(log: Iterable[Record], process: int, changed: float = math.inf) -> Iterator[str]:
    """What a process has written so far that found nothing to do, until it deletes the job because its time is over.

    Once a user has changed the job, its status says that this is known.
    """
    for record in log:
        call = record.call
        if record.process == process and call.writes:
            if (call.verb, call.resource) == ("delete", "ddpjobs"):
                return
            if call.subresource == "status" and record.began > changed:
                continue
            yield f"a new process on a job that needs nothing writes: {record}"


def ended(said: Iterable[str]) -> Iterator[str]:
    """No process ends by itself."""
    for words in said:
        yield f"the operator ended by itself: {words}"


def unsaid(mine: Account, undisturbed: Account) -> Iterator[str]:
    """Every event of an undisturbed life is told, though an answer was lost.

    That all pods run says that they were created, too: so it is told where they run before the operator looks again.
    """
    for words in sorted(undisturbed.said - mine.said):
        if CREATED.sub(r"Running: \1 running", words) not in mine.said:
            yield f"no event says {words}"


def impatient(log: Iterable[Record]) -> Iterator[str]:
    """Whom the server asks to wait waits; some lists are asked for by two who do not know of each other."""
    until: dict[tuple[int, str], float] = {}
    for record in log:
        key = (record.process, _asked(record.call))
        if record.began < until.get(key, 0.0):
            yield f"{record}: the server wanted to be left alone until {until[key]:.3f}"
        answer = record.injected
        if (
            isinstance(answer, Answer)
            and answer.retry_after
            and not (record.call.verb == "list" and record.call.resource in BY_TWO)
        ):
            until[key] = record.began + answer.retry_after


def _asked(call: Call) -> str:
    """What two requests have in common of which the second one asks again."""
    name = "" if call.resource == "events" else call.name
    return f"{call.verb} {call.resource}/{call.subresource} {name}"


def _is_over(key: str, end: Any) -> bool:
    """Whether what may be told otherwise is told well: that it was blocked, and no longer is."""
    return key != "conditions.Blocked" or end is None or end["status"] == "False"


def _named(change: Change) -> str:
    return change.kind if change.place is None else "{} {}/{}".format(change.kind, *change.place)


def lasting(said: Any) -> Any:
    """What is said, in what two lives have in common."""
    if isinstance(said, dict):
        return {key: "some" if key in PASSING else lasting(value) for key, value in said.items()}
    if isinstance(said, list):
        return [lasting(one) for one in said]
    return WAITS.sub("in a while", OF_PODS.sub(r"\1", said)) if isinstance(said, str) else said
