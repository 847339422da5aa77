"""All plans: what is broken where, in which way."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from zlib import crc32

from .calls import EVENT
from .ever_failed import EVER_FAILED
from .faults import Answer, Crash, Drop, Effect, Fault, Gone, HalfOpen, Hang, Lag, Lost, On, Reset, Truncate
from .hindered import HINDERED
from .life import BRIEF, EVENTS, LONG, Life, Row
from .plan import ALIKE, Differs, Family, Happening, Plan

STAGES = tuple(stage.name for stage in LONG.stages)
BRIEFLY = tuple(
    row
    for row in BRIEF.writes
    if row.on.resource == "networkpolicies" or (row.on.verb, row.on.resource) == ("patch", "pods")
)
"""Writes that no long life has."""

UNDISTURBED = {
    LONG.name: Plan("undisturbed", Family.NONE),
    BRIEF.name: Plan("undisturbed-brief-life", Family.NONE, life=BRIEF),
}

ANSWERS: Mapping[str, Effect] = {
    "409": Answer(409, "Conflict"),
    "422": Answer(422, "Invalid"),
    "429": Answer(429, "TooManyRequests", retry_after=1),
    "500": Answer(500, "InternalError"),
    "503": Answer(503, "ServiceUnavailable"),
    "reset": Reset(),
    "hang": Hang(),
}
AGAIN = frozenset({"429", "500", "503"})
"""What befalls three requests in a row: a server that is busy or broken is so for a while."""
OUTAGE_SECONDS = 6.0
"""For so long some plans break every request of a kind: long enough to tell who asks again and again."""

ERRORS_OF_READS = {name: effect for name, effect in ANSWERS.items() if name not in {"409", "422"}}
HALF_A_LIST = Answer(200, "", body='{"kind": "List", "items": [{"metadata": {"na')
EXPIRED = Answer(410, "Expired")

ARRIVES_LATE = Differs("what hung arrives when it has long been done again, and perhaps undone", {"pods 1/1": 1})
BLOCKED = Differs("a refusal is told, and that it is over", ends=frozenset({"conditions.Blocked"}))
FORMER_FIRST = Differs("what belonged to the former job must go first, which is told", ends=BLOCKED.ends)
KOPF_ENDS = Differs(
    "kopf, which watches jobs, gives up on such an answer: the process ends, and another one is started", exits=1
)
DELETED = Differs("a pod that may not be stopped is deleted, and its logs with it", ends=frozenset({"pods"}))
DIFFERS = {
    "hang-on-create-pod": ARRIVES_LATE,
    "hang-on-create-networkpolicy": replace(ARRIVES_LATE, more={"networkpolicies": 1}),
    "422-on-patch-pod-0-of-2": DELETED,
    "422-on-patch-pod-1-of-2": DELETED,
    "422-on-create-pod": BLOCKED,
    "422-on-create-service": BLOCKED,
    "422-on-create-networkpolicy": BLOCKED,
    "410-on-watch-of-ddpjobs": KOPF_ENDS,
    "truncated-line-of-ddpjobs": KOPF_ENDS,
}

KIND_OF_WRITE = {
    "create-service": On("create", "services"),
    "create-pod": On("create", "pods", place=(1, 1)),
    "status": On("patch", "ddpjobs", "status", word="attempt-2-Restarting"),
    "delete-pod": On("delete", "pods", place=(0, 2)),
    "delete-job": On("delete", "ddpjobs"),
    "create-event": On("create", "events"),
    "change-event": On("patch", "events"),
}
"""One of each kind of write, where it matters most."""

KINDS = ("ddpjobs", "pods", "services", "networkpolicies")
POD_RUNS = On(EVENT, "pods", place=(1, 2), word="runs")
"""An event of a watch in the middle of a life."""
POLICY_MADE = On(EVENT, "networkpolicies", word="changed-1")

UNSEEN = {
    **{f"job-{number}": On(EVENT, "ddpjobs", word=f"changed-{number}") for number in range(1, 6)},
    "job-gone": On(EVENT, "ddpjobs", word="gone"),
    "own-status": On(EVENT, "ddpjobs", word="seen"),
    "service": On(EVENT, "services", word="changed-1"),
    **{
        f"pod-{rank}-of-{incarnation}-{word}": On(EVENT, "pods", place=(rank, incarnation), word=word)
        for rank, incarnation, word in (
            (0, 1, "made"),
            (1, 1, "placed"),
            (1, 1, "runs"),
            (1, 1, "failed"),
            (0, 1, "ending"),
            (0, 1, "gone"),
            (0, 2, "runs"),
            (1, 2, "gone"),
            (0, 3, "gone"),
            (2, 4, "made"),
            (2, 4, "runs"),
            (0, 4, "succeeded"),
            (2, 4, "succeeded"),
        )
    },
}


def undisturbed(life: Life) -> Plan:
    """A life in which nothing goes wrong."""
    return UNDISTURBED[life.name]


def _writes() -> Iterator[tuple[Row, Life]]:
    """Each write, and a life that has it."""
    yield from ((row, LONG) for row in (*LONG.writes, *EVENTS))
    yield from ((row, BRIEF) for row in BRIEFLY)


def _crashes() -> Iterator[Plan]:
    """The operator dies with a write before it, and with it done."""
    for row, life in _writes():
        for side in ("before", "after"):
            fault = Fault(row.on, Crash(after=side == "after"))
            yield Plan(f"crash-{side}-{row.name}", Family.CRASH, _what(row), (fault,), life=life)


def _lost_answers() -> Iterator[Plan]:
    """The operator never hears that a write was done."""
    for row, life in _writes():
        yield Plan(f"lost-answer-{row.name}", Family.LOST, _what(row), (Fault(row.on, Lost()),), life=life)


def _lost_while_behind() -> Iterator[Plan]:
    """Nor does it see in time that the write was done: it does it again without knowing."""
    places = {(1, 1), (0, 2), (2, 4)}
    for row in LONG.writes:
        if row.on.resource == "services" or row.on.place in places:
            faults = (Fault(row.on, Lost()), *(Fault(On(EVENT, kind), Lag(10)) for kind in ("pods", "services")))
            yield Plan(f"lost-answer-while-behind-{row.name}", Family.LOST, _what(row), faults)


def _what(row: Row) -> str:
    """Kind of write, for the page."""
    return f"{row.on.verb} {row.on.resource}" + (f"/{row.on.subresource}" if row.on.subresource else "")


def _errors() -> Iterator[Plan]:
    for what, on in KIND_OF_WRITE.items():
        for name, effect in ANSWERS.items():
            yield _error(f"{name}-on-{what}", f"{on.verb} {on.resource}", on, name, effect)
    for row in BRIEFLY:
        for name, effect in ANSWERS.items():
            yield replace(_error(f"{name}-on-{row.name}", _what(row), row.on, name, effect), life=BRIEF)
    for kind in ("ddpjobs", "pods"):
        reads = ERRORS_OF_READS | {"half-an-answer": HALF_A_LIST, "410": EXPIRED}
        for name, effect in reads.items():
            yield _error(f"{name}-on-first-list-of-{kind}", f"list {kind}", On("list", kind), name, effect)
            later = On("list", kind, nth=3)
            yield _error(f"{name}-on-later-list-of-{kind}", f"list {kind}", later, name, effect)
    for kind in ("services", "networkpolicies"):
        for name, effect in (("503", ANSWERS["503"]), ("half-an-answer", HALF_A_LIST)):
            for when, nth in (("first", 1), ("later", 3)):
                on = On("list", kind, nth=nth)
                yield _error(f"{name}-on-{when}-list-of-{kind}", f"list {kind}", on, name, effect)
    for name, effect in ERRORS_OF_READS.items():
        path = "/apis/ddpjob.dev/v1alpha1"
        yield _error(f"{name}-on-discovery", "discovery", On("list", path), name, effect)
        stale = Fault(KIND_OF_WRITE["status"], ANSWERS["409"])
        read = Fault(On("get", "ddpjobs"), effect)
        yield Plan(f"{name}-on-get-after-conflict", Family.ERROR, "get ddpjobs", (stale, read))


def _outages() -> Iterator[Plan]:
    """A kind of request does not work for a while."""
    reads = {f"{verb}-of-{kind}": On(verb, kind) for kind in ("ddpjobs", "pods") for verb in ("list", "watch")}
    for what, on in (KIND_OF_WRITE | reads).items():
        where = replace(on, place=None, seconds=OUTAGE_SECONDS)
        for name in ("503", "reset"):
            fault = Fault(where, ANSWERS[name])
            yield Plan(f"{name}-for-a-while-on-{what}", Family.ERROR, f"{on.verb} {on.resource}", (fault,))


def _error(name: str, place: str, on: On, kind: str, effect: Effect) -> Plan:
    times = 3 if kind in AGAIN else 1
    return Plan(
        name, Family.ERROR, place, (Fault(replace(on, times=times), effect),), differs=DIFFERS.get(name, ALIKE)
    )


def _watches() -> Iterator[Plan]:
    """A watch is refused at its begin; one ends in the middle of a life, and the next one is refused."""
    refusals = ERRORS_OF_READS | {"410": EXPIRED}
    for kind in KINDS:
        for name, effect in refusals.items():
            yield _watch(f"{name}-on-watch-of-{kind}", kind, (Fault(On("watch", kind), effect),))
    breaks: Mapping[str, Effect] = {
        "410-event": Gone(),
        "truncated-line": Truncate(),
        "half-open": HalfOpen(),
    }
    for name, effect in breaks.items():
        yield _watch(f"{name}-of-pods", "pods", (Fault(POD_RUNS, effect),))
        yield _watch(f"{name}-of-ddpjobs", "ddpjobs", (Fault(UNSEEN["job-2"], effect),))
        yield _watch(f"{name}-of-services", "services", (Fault(UNSEEN["service"], effect),))
        policy = _watch(f"{name}-of-networkpolicies", "networkpolicies", (Fault(POLICY_MADE, effect),))
        yield replace(policy, life=BRIEF)
    for name, effect in refusals.items():
        ends, again = Fault(POD_RUNS, Truncate()), Fault(On("watch", "pods", nth=2), effect)
        yield _watch(f"truncated-line-then-{name}-on-watch-of-pods", "pods", (ends, again))


def _watch(name: str, kind: str, faults: tuple[Fault, ...]) -> Plan:
    return Plan(name, Family.WATCH, f"watch {kind}", faults, differs=DIFFERS.get(name, ALIKE))


def _unseen() -> Iterator[Plan]:
    for name, on in UNSEEN.items():
        yield Plan(f"unseen-{name}", Family.UNSEEN, f"watch {on.resource}", (Fault(on, Drop()),))


def _stale() -> Iterator[Plan]:
    first = {kind: Fault(On(EVENT, kind), Lag(0)) for kind in ("ddpjobs", "pods")}
    for events in (1, 3, 10):
        for kinds in (("ddpjobs",), ("pods",), ("ddpjobs", "pods")):
            faults = tuple(Fault(first[kind].on, Lag(events)) for kind in kinds)
            name = f"{events}-events-behind-in-{'-and-'.join(kinds)}"
            yield Plan(name, Family.STALE, "watch " + " and ".join(kinds), faults)
    for stage in STAGES[1:-1]:
        happens = Happening.TRAVEL_BACK
        yield Plan(f"travel-back-after-{stage}", Family.STALE, "start", after=stage, happens=happens)


def _restarts() -> Iterator[Plan]:
    for stage in STAGES[:-2]:
        yield Plan(f"restart-after-{stage}", Family.CRASH, "nothing to do", after=stage, happens=Happening.RESTART)


def _remade() -> Iterator[Plan]:
    lags = tuple(Fault(On(EVENT, kind), Lag(3)) for kind in ("ddpjobs", "pods"))
    for stage in STAGES[:-1]:
        for name, happens, faults in (
            ("seen", Happening.REMADE, ()),
            ("late", Happening.REMADE, lags),
            ("unseen", Happening.REMADE_UNSEEN, ()),
        ):
            yield Plan(
                f"made-anew-{name}-after-{stage}", Family.REMADE, name, faults, stage, happens, differs=FORMER_FIRST
            )


PLANS = (
    *UNDISTURBED.values(),
    *_crashes(),
    *_restarts(),
    *_lost_answers(),
    *_lost_while_behind(),
    *_errors(),
    *_outages(),
    *_watches(),
    *_unseen(),
    *_stale(),
    *_remade(),
    *HINDERED,
)

ONE_IN = 10


def chosen() -> tuple[Plan, ...]:
    """All plans where `FAULT_MATRIX` names a folder for what comes of them; else a tenth, and each that ever failed.

    The tenth is always the same.
    """
    if "FAULT_MATRIX" in os.environ:
        return PLANS
    return tuple(plan for plan in PLANS if crc32(plan.name.encode()) % ONE_IN == 0 or plan.name in EVER_FAILED)
