"""What is demanded of every life: the end and the objects of an undisturbed one, and what never may be."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from .calls import Call, Place, phase_of
from .faults import Answer, Hang
from .plan import Differs
from .proxy import Record
from .witness import Change, Manifest, Witness

WINDOW_SECONDS = 5.0
MOST_PER_WINDOW = 10
"""Requests for the same thing of one object. What fails is tried again after 0.2, 0.4, 0.8 s and so on, so five times
in five seconds; lists are asked for by kopf and by us."""
MOST_STATUSES = 40
"""A whole life, which may take no longer, writes the status 18 times, and a job that is made anew has two."""

PASSING = frozenset(
    {"startTime", "completionTime", "firstRunTime", "lastTransitionTime", "time", "until", "selector", "node"}
)
"""What no two lives have in common: moments, uids, and where pods are put."""
OF_PODS = re.compile(r"\b(life-\d+)-[a-z0-9]{5}\b")


@dataclass
class Account:
    """What a life came to."""

    ends: dict[str, Manifest] = field(default_factory=dict)
    """The status at the end of each stage, without what no two lives have in common."""
    made: Counter[str] = field(default_factory=Counter)
    gone: Counter[str] = field(default_factory=Counter)


def end_of(there: Witness) -> Manifest:
    """How a stage has ended: what the status says, and what pods there are."""
    pods = Counter(
        f"{_named(Change(0.0, 'pods', '', pod))} {phase_of(pod)}" for pod in there.pods() if phase_of(pod) != "ending"
    )
    status = _lasting(there.status())
    conditions = {f"conditions.{one['type']}": one for one in status.pop("conditions", ())}
    return {**status, **conditions, "pods": dict(sorted(pods.items()))}


def objects(history: Iterable[Change], job: str) -> tuple[Counter[str], Counter[str]]:
    """What belonged to a job and was made, and what of it is gone."""
    made: Counter[str] = Counter()
    gone: Counter[str] = Counter()
    for change in history:
        if job in {change.uid, change.owner}:
            made[_named(change)] += change.what == "ADDED"
            gone[_named(change)] += change.what == "DELETED"
    return +made, +gone


def differences(mine: Account, undisturbed: Account, differs: Differs) -> Iterator[str]:
    """In what a life differs from an undisturbed one and may not, in sentences."""
    for stage, end in mine.ends.items():
        usual = undisturbed.ends[stage]
        for key in sorted(end.keys() | usual.keys()):
            if end.get(key) != usual.get(key) and key not in differs.ends:
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
    living: defaultdict[tuple[str, int], dict[str, Place]] = defaultdict(dict)
    for change in history:
        if change.place is None:
            continue
        of_rank = living[change.owner, change.place[0]]
        if change.what == "DELETED" or change.manifest["status"].get("phase") in {"Succeeded", "Failed"}:
            of_rank.pop(change.uid, None)
        else:
            of_rank[change.uid] = change.place
        if len(of_rank) > 1:
            yield f"two live pods of one rank: {sorted(of_rank.values())} at {change.time:.3f}"


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
        if call.subresource == "status":
            safe = isinstance(said, list) and any(one["path"] == "/metadata/resourceVersion" for one in said)
        else:
            safe = bool(call.uid)
        if not safe:
            yield f"{record}: says neither a uid nor a version: {record.body[:200]!r}"


def hot_loops(log: Iterable[Record]) -> Iterator[str]:
    """Nothing is asked again and again."""
    times: defaultdict[str, list[float]] = defaultdict(list)
    for record in log:
        # A question about rights is asked once per right.
        if record.call.resource != "selfsubjectaccessreviews":
            times[_asked(record.call)].append(record.began)
    for what, moments in times.items():
        first = 0
        for last, moment in enumerate(moments):
            while moment - moments[first] > WINDOW_SECONDS:
                first += 1
            if last - first + 1 > (MOST_STATUSES if "/status" in what else MOST_PER_WINDOW):
                yield f"{what}: {last - first + 1} times within {WINDOW_SECONDS:.0f} s"
                break


def impatient(log: Iterable[Record]) -> Iterator[str]:
    """Whom the server asks to wait waits; a list may be asked for by two who do not know of each other."""
    until: dict[tuple[int, str], float] = {}
    for record in log:
        key = (record.process, _asked(record.call))
        if record.began < until.get(key, 0.0):
            yield f"{record}: the server wanted to be left alone until {until[key]:.3f}"
        answer = record.injected
        if isinstance(answer, Answer) and answer.retry_after and record.call.verb != "list":
            until[key] = record.began + answer.retry_after


def _asked(call: Call) -> str:
    """What two requests have in common of which the second one asks again."""
    return f"{call.verb} {call.resource}/{call.subresource} {call.name}"


def _named(change: Change) -> str:
    return change.kind if change.place is None else "{} {}/{}".format(change.kind, *change.place)


def _lasting(said: Any) -> Any:
    if isinstance(said, dict):
        return {key: _lasting(value) for key, value in said.items() if key not in PASSING}
    if isinstance(said, list):
        return [_lasting(one) for one in said]
    return OF_PODS.sub(r"\1", said) if isinstance(said, str) else said
