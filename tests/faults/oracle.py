"""The demands on every life: the end and objects of an undisturbed life, and things that must never happen."""

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
"""How many requests for the same thing and object are allowed. A failure is retried after 0.2, 0.4, 0.8 s and so on,
so five times in five seconds. Lists are requested by kopf and by us."""
MOST_STATUSES = 40
"""How many statuses are allowed in all. A whole life writes the status 18 times, and a job that is recreated has
two."""
MOST_EVENTS = 40
"""How many events are allowed, whatever they say."""
CREATES_EVENT = ("create", "events")
BY_TWO = {"ddpjobs", "pods"}
"""The resources that kopf lists as well as we do, or that we also list for a single job."""
REFUSED = {HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND}
AT_ONCE_SECONDS = 1.0
"""How soon a request follows that another request causes."""

PASSING = frozenset(
    {
        "backoffUntil",
        "completionTime",
        "firstRunTime",
        "lastCompletedTime",
        "lastTransitionTime",
        "nodeName",
        "operator",
        "podGroup",
        "selector",
        "service",
        "startTime",
        "suspendTime",
        "time",
        "until",
    }
)
"""Fields that differ between any two lives: times, uids, and the nodes of pods. Only their presence is compared."""
WAITS = re.compile(r"\bin \d+\.\d s\b")
"""The text for how long the next attempt waits, which has jitter."""
GIVEN_BACK = re.compile(r'"(Waiting in the queue: )?(Preempted|Pending)"')
"""The reasons of an eviction, and those that follow as soon as the queue has its quota back: a status that can wait
reports the latter up to ten seconds later."""
CREATED = re.compile(r"^Created: (\d+ nodes?) created$")
OF_PODS = re.compile(r"\b(life-\d+)-[a-z0-9]{5}\b")


@dataclass
class Account:
    """The results of a life."""

    said: set[str] = field(default_factory=set)
    """The life's Kubernetes events, without the parts that differ between any two lives."""
    ends: dict[str, Manifest] = field(default_factory=dict)
    """The status at the end of each stage, without the parts that differ between any two lives."""
    made: Counter[str] = field(default_factory=Counter)
    gone: Counter[str] = field(default_factory=Counter)


def events_of(log: Iterable[Record]) -> set[str]:
    """The Kubernetes events that were written, with their reasons and texts."""
    made = (json.loads(one.body) for one in log if one.done and (one.call.verb, one.call.resource) == CREATES_EVENT)
    return {"{reason}: {message}".format(**lasting(body)) for body in made}


def end_of(there: Witness) -> Manifest:
    """The end of a stage: the job's status, and which pods exist."""
    pods = Counter(
        f"{_named(Change(0.0, 'pods', '', pod))} {phase_of(pod)}" for pod in there.pods() if phase_of(pod) != "ending"
    )
    said = json.dumps(lasting(there.status()))
    status = json.loads(GIVEN_BACK.sub(r'"\1Evicted"', said) if there.queued() else said)
    conditions = {f"conditions.{one['type']}": one for one in status.pop("conditions", ())}
    return {**status, **conditions, "pods": dict(sorted(pods.items()))}


def objects(history: Sequence[Change], job: str) -> tuple[Counter[str], Counter[str]]:
    """The objects that belonged to a job when they were created, and those of them that are gone."""
    own = {change.uid for change in history if change.what == "ADDED" and job in {change.uid, change.owner}}
    made: Counter[str] = Counter()
    gone: Counter[str] = Counter()
    for change in history:
        if change.uid in own:
            made[_named(change)] += change.what == "ADDED"
            gone[_named(change)] += change.what == "DELETED"
    return +made, +gone


def differences(mine: Account, undisturbed: Account, differs: Differs) -> Iterator[str]:
    """Sentences about the differences from an undisturbed life that are not allowed."""
    for stage, end in mine.ends.items():
        usual = undisturbed.ends[stage]
        for key in sorted(end.keys() | usual.keys()):
            if end.get(key) != usual.get(key) and not (key in differs.ends and _is_over(key, end.get(key))):
                yield f"after {stage}: {key} is {end.get(key)}, undisturbed {usual.get(key)}"
    if not mine.made:  # The life did not get this far.
        return
    for what, counts, usual_counts in (
        ("made", mine.made, undisturbed.made),
        ("gone", mine.gone, undisturbed.gone),
    ):
        for name in sorted(counts.keys() | usual_counts.keys()):
            least, most = sorted((usual_counts[name], usual_counts[name] + differs.more.get(name, 0)))
            if not least <= counts[name] <= most:
                yield f"{what}: {name} {counts[name]} times, undisturbed {usual_counts[name]}"


def two_of_one_rank(history: Iterable[Change]) -> Iterator[str]:
    """No two pods of a job have the same rank and incarnation, or one rank while both live."""
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
    """Nothing is created or changed for an object that was gone before the request was made.

    Requests that hung on their way are not the operator's fault. Events describe the past, and may come late.
    """
    gone = {change.uid: change.time for change in history if change.what == "DELETED"}
    for record in log:
        call = record.call
        late = isinstance(record.injected, Hang) or call.resource == "events"
        if call.writes and record.done and not late and gone.get(call.uid, record.began) < record.began:
            yield f"{record}: its object or owner {call.uid} was gone at {gone[call.uid]:.3f}"


def unconditional(log: Iterable[Record]) -> Iterator[str]:
    """No write can hit another object that has taken the intended object's name, or undo a newer change."""
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
    """If a Lease decides who leads, no process changes anything after a later one has. (Events describe the past.)"""
    leader = 0
    for record in log:
        if record.call.writes and record.done and record.call.resource != "events":
            if record.process < leader:
                yield f"{record}: process {leader} leads by then"
            leader = max(leader, record.process)


def hot_loops(log: Iterable[Record], at_once: float = AT_ONCE_SECONDS) -> Iterator[str]:
    """No request is repeated too often, by all processes together.

    at_once  how soon a request follows that another request causes, which takes longer on a busy machine
    """
    asked: defaultdict[str, list[Record]] = defaultdict(list)
    for record in _by_itself(log, at_once):
        # Each query about rights is about a different right. Statuses that the server itself has answered are not
        # counted here: `quarrels` limits their total.
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
    """All requests except those that are an immediate consequence of another, counted request.

    Such consequences are a repetition of a request whose connection was reset and, after a status was refused, a read
    of the job and its pods.
    """
    brought: defaultdict[tuple[int, str], list[float]] = defaultdict(list)
    """Until when each of the expected requests may follow."""
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
    """Checks that no process is refused statuses, or writes them, without a reason.

    A status is refused only because somebody else has changed the job, so refusals must not outnumber such changes,
    and statuses must not be written endlessly.
    """
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
    """The writes of a process that found nothing to do, until it deletes the job because its time is over.

    After a user has changed the job, the operator may write a status with the new generation.
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
    """No process ends without being told to."""
    for words in said:
        yield f"the operator ended by itself: {words}"


def unsaid(mine: Account, undisturbed: Account) -> Iterator[str]:
    """Every event of an undisturbed life is written, even if an answer was lost.

    The event that all pods run includes that they were created. It suffices if they run before the operator looks
    again.
    """
    for words in sorted(undisturbed.said - mine.said):
        if CREATED.sub(r"Running: \1 running", words) not in mine.said:
            yield f"no event says {words}"


def impatient(log: Iterable[Record]) -> Iterator[str]:
    """If the server asks a client to wait, it waits.

    (Some lists are requested by two clients that ignore each other.)
    """
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
    """A key that a request shares with its repetition."""
    name = "" if call.resource == "events" else call.name
    return f"{call.verb} {call.resource}/{call.subresource} {name}"


def _is_over(key: str, end: Any) -> bool:
    """Whether a difference that is allowed is also right: a job that was blocked is no longer blocked."""
    return key != "conditions.Blocked" or end is None or end["status"] == "False"


def _named(change: Change) -> str:
    return change.kind if change.place is None else "{} {}/{}".format(change.kind, *change.place)


def lasting(said: Any) -> Any:
    """The parts of a text or document that do not differ between any two lives."""
    if isinstance(said, dict):
        return {key: "some" if key in PASSING else lasting(value) for key, value in said.items()}
    if isinstance(said, list):
        return [lasting(one) for one in said]
    return WAITS.sub("in a while", OF_PODS.sub(r"\1", said)) if isinstance(said, str) else said
