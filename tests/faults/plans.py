"""All plans: what is broken, where, and in which way."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from zlib import crc32

from ddpjob_operator.engine import SCHEDULING_API

from . import queued
from .calls import EVENT
from .ever_failed import EVER_FAILED, MET_A_BOUND
from .faults import (
    ASKED_ONCE_MORE,
    Answer,
    Crash,
    Drop,
    Effect,
    Fault,
    Gone,
    HalfOpen,
    Hang,
    Lag,
    Lost,
    On,
    Remember,
    Reset,
    Truncate,
)
from .hindered import HINDERED, TIMED_UNDISTURBED
from .life import Life, Row
from .lives import BRIEF, CANCELLED, CANCELLED_AT_REST, ELASTIC, EVENTS, LONG, LONG_FROM_SECOND_ATTEMPT, TIMED
from .plan import ALIKE, BLOCKED, Differs, Family, Happening, Plan

STAGES = tuple(stage.name for stage in LONG.stages)
BRIEFLY = tuple(
    row
    for row in BRIEF.writes
    if row.on.resource == "networkpolicies"
    or (row.on.verb, row.on.resource) == ("patch", "pods")
    or row.name in {"status-failing", "status-failed"}
)
"""Writes that do not occur in the long life."""
ELASTICALLY = tuple(
    row
    for row in ELASTIC.writes
    if row.name
    in {
        "status-given-back",
        "delete-pod-2-of-1",
        "delete-former-networkpolicy",
        "create-next-networkpolicy",
        "status-shrunk",
        "delete-pod-2-of-3",
        "create-reserve",
        "status-grown",
        "delete-reserve",
    }
)
"""Writes that occur neither in the long nor in the brief life."""

CANCELLED_LIVES = (CANCELLED, CANCELLED_AT_REST)

UNDISTURBED = {
    LONG.name: Plan("undisturbed", Family.NONE),
    BRIEF.name: Plan("undisturbed-brief-life", Family.NONE, life=BRIEF),
    ELASTIC.name: Plan("undisturbed-elastic-life", Family.NONE, life=ELASTIC),
    TIMED.name: TIMED_UNDISTURBED,
    CANCELLED.name: Plan("undisturbed-cancelled-life", Family.NONE, life=CANCELLED),
    CANCELLED_AT_REST.name: Plan("undisturbed-life-cancelled-at-rest", Family.NONE, life=CANCELLED_AT_REST),
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
AGAIN = frozenset({429, 500, 503})
"""Statuses that are answered three times in a row, because a server is busy or broken for a while."""
TWICE = (Lost, Reset)
"""Effects that strike twice in a row if an HTTP client repeats the request, so that the operator notices them."""
BEFORE_IT_GROWS_SECONDS = 17.0
"""A time that is longer than the operator waits for an answer, and shorter than the time until the gang grows after a
retry."""
OUTAGE_SECONDS = 6.0
"""How long some plans break all requests of a kind, which is long enough to find an operator that retries too
often."""

ERRORS_OF_READS = {name: effect for name, effect in ANSWERS.items() if name not in {"409", "422"}}
HALF_A_LIST = Answer(200, "", body='{"kind": "List", "items": [{"metadata": {"na')
EXPIRED = Answer(410, "Expired")

ARRIVES_LATE = Differs("what hung arrives when it has long been done again, and perhaps undone", {"pods 1/1": 1})
DELETED = Differs("a pod that may not be stopped is deleted, and its logs with it", ends=frozenset({"pods"}))
GIVEN_UP = Differs(
    "a gang of which a pod is refused gives up the others, so each later attempt has the next number",
    {"pods 1/1": -1, "pods 2/4": -1, "workloads": 1, "podgroups": 1, **{f"pods {rank}/5": 1 for rank in range(3)}},
    BLOCKED.ends | {"attempt", "bookkeeping", "conditions.Restarting", "incidents", "pods"},
)
DIFFERS = {
    "hang-on-create-pod": ARRIVES_LATE,
    "hang-on-create-networkpolicy": replace(ARRIVES_LATE, more={"networkpolicies": 1}),
    "hang-on-create-workload": replace(ARRIVES_LATE, more={"workloads": 1}),
    "hang-on-create-podgroup": replace(ARRIVES_LATE, more={"podgroups": 1}),
    "422-on-patch-pod-0-of-2": DELETED,
    "422-on-patch-pod-1-of-2": DELETED,
    "422-on-create-pod": GIVEN_UP,
    "422-on-status": BLOCKED,
    "422-on-status-failing": BLOCKED,
    "422-on-status-failed": BLOCKED,
    "422-on-create-reserve": BLOCKED,
    "422-on-create-service": BLOCKED,
    "422-on-create-secret": BLOCKED,
    "422-on-create-workload": BLOCKED,
    "422-on-create-podgroup": BLOCKED,
    "422-on-create-networkpolicy": BLOCKED,
}

KIND_OF_WRITE = {
    "create-service": On("create", "services"),
    "create-secret": On("create", "secrets"),
    "create-workload": On("create", "workloads"),
    "create-podgroup": On("create", "podgroups"),
    "delete-podgroup": On("delete", "podgroups"),
    "create-pod": On("create", "pods", place=(1, 1)),
    "status": On("patch", "ddpjobs", "status", word="attempt-2-Restarting"),
    "delete-pod": On("delete", "pods", place=(0, 2)),
    "mark-job": On("patch", "ddpjobs"),
    "delete-job": On("delete", "ddpjobs"),
    "create-event": On("create", "events"),
    "change-event": On("patch", "events"),
}
"""One write of each kind, where it matters most."""

GROUPS = ("workloads", "podgroups")
KINDS = ("ddpjobs", "pods", "services", "networkpolicies", *GROUPS)
POD_RUNS = On(EVENT, "pods", place=(1, 2), word="runs")
"""An event of a watch in the middle of a life."""
RESERVE = (2, 4)
"""The pod that waits for room in the elastic life."""
RESERVE_MADE = On("create", "pods", place=RESERVE)
POLICY_MADE = On(EVENT, "networkpolicies", word="changed-1")
WORKLOAD_MADE = On(EVENT, "workloads", word="changed-1")
GROUP_MADE = On(EVENT, "podgroups", word="changed-1")

OWN_STATUSES = sum(row.on.subresource == "status" and "created" not in row.name for row in LONG.writes)
"""The number of statuses that are certain to be written. (The status that all pods exist may be merged with the
next.)"""
PODS_BECOME = {
    (0, 1): ("ending", "gone"),
    (1, 1): ("failed",),
    **{(rank, incarnation): ("ending", "gone") for incarnation in (2, 3) for rank in (0, 1)},
    **{(rank, 4): ("succeeded",) for rank in (0, 1, 2)},
}
"""The phases of each pod of the long life after it has run, while the job exists. By rank and incarnation."""

UNSEEN = {
    **{f"job-{number}": On(EVENT, "ddpjobs", word=f"changed-{number}") for number in range(1, 6)},
    "job-gone": On(EVENT, "ddpjobs", word="gone"),
    **{f"own-status-{nth}": On(EVENT, "ddpjobs", word="seen", nth=nth) for nth in range(1, OWN_STATUSES + 1)},
    "service": On(EVENT, "services", word="changed-1"),
    "workload": WORKLOAD_MADE,
    "workload-gone": replace(WORKLOAD_MADE, word="gone"),
    "podgroup": GROUP_MADE,
    "podgroup-placed": replace(GROUP_MADE, word="seen"),
    "podgroup-gone": replace(GROUP_MADE, word="gone"),
    **{
        f"pod-{place[0]}-of-{place[1]}-{word}": On(EVENT, "pods", place=place, word=word)
        for place, became in PODS_BECOME.items()
        for word in ("made", "placed", "runs", *became)
    },
}
"""Events of watches in the long life: all that are certain to come."""
UNSEEN_BRIEFLY = {"policy": POLICY_MADE, "policy-gone": replace(POLICY_MADE, word="gone")}
UNSEEN_ELASTICALLY = {
    f"reserve-{word}": On(EVENT, "pods", place=RESERVE, word=word) for word in ("made", "placed", "runs", "gone")
}
UNSEEN_AT_THE_END = {"cancelled": On(EVENT, "ddpjobs", word="changed-2")}
"""Events that do not occur in the long life."""


def undisturbed(life: Life) -> Plan:
    """The plan of a life in which nothing goes wrong."""
    return UNDISTURBED.get(life.name, queued.UNDISTURBED)


def _writes() -> Iterator[tuple[Row, Life]]:
    """Each write, with a life in which it occurs."""
    yield from ((row, LONG) for row in (*LONG.writes, *EVENTS))
    yield from ((row, BRIEF) for row in BRIEFLY)
    yield from ((row, ELASTIC) for row in ELASTICALLY)
    for life in CANCELLED_LIVES:
        yield from ((row, life) for row in life.writes if row.stage == "cancel" and row.name != "mark-job")


def _crashes() -> Iterator[Plan]:
    """The operator is killed just before a write, or just after it."""
    for row, life in _writes():
        for side in ("before", "after"):
            fault = Fault(row.on, Crash(after=side == "after"))
            yield Plan(f"crash-{side}-{row.name}", Family.CRASH, _what(row.on), (fault,), life=life)


def _lost_answers() -> Iterator[Plan]:
    """The operator never receives the answer to a write."""
    for row, life in _writes():
        yield Plan(f"lost-answer-{row.name}", Family.LOST, _what(row.on), (_fault(row.on, Lost()),), life=life)


def _lost_while_behind() -> Iterator[Plan]:
    """The operator also sees too late that the write was done, so it unknowingly repeats the write."""
    places, kinds = {(1, 1), (0, 2), (2, 4)}, ("pods", "services", *GROUPS)
    for row in LONG.writes:
        of_group = row.on.resource in GROUPS and row.stage == "restart"
        if row.on.resource == "services" or row.on.place in places or of_group:
            faults = (_fault(row.on, Lost()), *(Fault(On(EVENT, kind), Lag(10)) for kind in kinds))
            yield Plan(f"lost-answer-while-behind-{row.name}", Family.LOST, _what(row.on), faults)


def _what(on: On) -> str:
    """The kind of request, for the page.

    A Workload is counted with its PodGroup, because they come and go together.
    """
    resource = "podgroups" if on.resource in GROUPS else on.resource
    return f"{on.verb} {resource}" + (f"/{on.subresource}" if on.subresource else "")


def _errors() -> Iterator[Plan]:
    for what, on in KIND_OF_WRITE.items():
        for name, effect in ANSWERS.items():
            plan = _error(f"{name}-on-{what}", on, effect)
            yield replace(plan, life=LONG_FROM_SECOND_ATTEMPT) if plan.differs is GIVEN_UP else plan
    for row in BRIEFLY:
        for name, effect in ANSWERS.items():
            yield replace(_error(f"{name}-on-{row.name}", row.on, effect), life=BRIEF)
    for name, effect in (ANSWERS | {"hang": Hang(BEFORE_IT_GROWS_SECONDS)}).items():
        yield replace(_error(f"{name}-on-create-reserve", RESERVE_MADE, effect), life=ELASTIC)
    for kind in KINDS:
        reads = ERRORS_OF_READS | {"half-an-answer": HALF_A_LIST, "410": EXPIRED}
        for name, effect in reads.items():
            yield _error(f"{name}-on-first-list-of-{kind}", On("list", kind), effect)
            yield _error(f"{name}-on-later-list-of-{kind}", On("list", kind, nth=3), effect)
    for name, effect in ERRORS_OF_READS.items():
        for what, path in (("", "ddpjob.dev/v1alpha2"), ("-of-podgroups", SCHEDULING_API)):
            discovery = On("list", f"/apis/{path}")
            yield replace(_error(f"{name}-on-discovery{what}", discovery, effect), place="discovery")
        stale = Fault(KIND_OF_WRITE["status"], ANSWERS["409"])
        read = _fault(On("get", "ddpjobs"), effect)
        yield Plan(f"{name}-on-get-after-conflict", Family.ERROR, "get ddpjobs", (stale, read))


def _outages() -> Iterator[Plan]:
    """A kind of request does not work for a while."""
    reads = {f"{verb}-of-{kind}": On(verb, kind) for kind in KINDS for verb in ("list", "watch")}
    for what, on in (KIND_OF_WRITE | reads).items():
        where = replace(on, place=None, seconds=OUTAGE_SECONDS)
        for name in ("503", "reset"):
            fault = Fault(where, ANSWERS[name])
            yield Plan(f"{name}-for-a-while-on-{what}", Family.ERROR, _what(on), (fault,))


def _error(name: str, on: On, effect: Effect) -> Plan:
    return Plan(name, Family.ERROR, _what(on), (_fault(on, effect),), differs=DIFFERS.get(name, ALIKE))


def _fault(on: On, effect: Effect) -> Fault:
    """A fault that the operator notices, and that lasts as long as such faults usually do."""
    if isinstance(effect, Answer) and effect.status in AGAIN:
        return Fault(replace(on, times=3), effect)
    twice = isinstance(effect, TWICE) and on.verb in ASKED_ONCE_MORE
    return Fault(replace(on, times=2) if twice else on, effect)


def _watches() -> Iterator[Plan]:
    """A watch is refused at its beginning. Or a watch ends in the middle of a life, and the next one is refused."""
    refusals = ERRORS_OF_READS | {"410": EXPIRED}
    for kind in KINDS:
        for name, effect in refusals.items():
            yield _watch(f"{name}-on-watch-of-{kind}", kind, (_fault(On("watch", kind), effect),))
    breaks: Mapping[str, Effect] = {
        "410-event": Gone(),
        "truncated-line": Truncate(),
        "half-open": HalfOpen(),
    }
    for name, effect in breaks.items():
        yield _watch(f"{name}-of-pods", "pods", (Fault(POD_RUNS, effect),))
        yield _watch(f"{name}-of-ddpjobs", "ddpjobs", (Fault(UNSEEN["job-2"], effect),))
        for kind in ("service", "workload", "podgroup"):
            yield _watch(f"{name}-of-{kind}s", f"{kind}s", (Fault(UNSEEN[kind], effect),))
        policy = _watch(f"{name}-of-networkpolicies", "networkpolicies", (Fault(POLICY_MADE, effect),))
        yield replace(policy, life=BRIEF)
    for name, effect in refusals.items():
        ends, again = Fault(POD_RUNS, Truncate()), _fault(On("watch", "pods", nth=2), effect)
        yield _watch(f"truncated-line-then-{name}-on-watch-of-pods", "pods", (ends, again))


def _watch(name: str, kind: str, faults: tuple[Fault, ...]) -> Plan:
    return Plan(name, Family.WATCH, _what(On("watch", kind)), faults, differs=DIFFERS.get(name, ALIKE))


def _unseen() -> Iterator[Plan]:
    lives = ((LONG, UNSEEN), (BRIEF, UNSEEN_BRIEFLY), (ELASTIC, UNSEEN_ELASTICALLY), (CANCELLED, UNSEEN_AT_THE_END))
    for life, events in lives:
        for name, on in events.items():
            place = _what(replace(on, verb="watch"))
            yield Plan(f"unseen-{name}", Family.UNSEEN, place, (Fault(on, Drop()),), life=life)


UNDONE = {
    "start-2": ("restart", "suspend", "resume"),
    "suspending": ("suspend", "resume"),
    "start-4": ("scale", "finish"),
}
"""For statuses after which much has to be done: the stages after which an operator starts that is shown the state as
it was when the status was written."""


def _stale() -> Iterator[Plan]:
    for events in (1, 3, 10):
        for kinds in (("ddpjobs",), ("pods",), ("ddpjobs", "pods")):
            faults = tuple(Fault(On(EVENT, kind), Lag(events)) for kind in kinds)
            name = f"{events}-events-behind-in-{'-and-'.join(kinds)}"
            yield Plan(name, Family.STALE, "watch " + " and ".join(kinds), faults)
    happens = Happening.TRAVEL_BACK
    for stage in STAGES[1:-1]:
        yield Plan(f"travel-back-after-{stage}", Family.STALE, "start", after=stage, happens=happens)
    for back_to, stages in UNDONE.items():
        row = next(row for row in LONG.writes if row.name == f"status-{back_to}")
        for stage in stages:
            name = f"travel-back-to-{back_to}-after-{stage}"
            yield Plan(name, Family.STALE, "start", (Fault(row.on, Remember()),), stage, happens)


def _restarts() -> Iterator[Plan]:
    lives = ((LONG, STAGES[:-1]), (BRIEF, ("deadline",)), (ELASTIC, ("give-back", "shrink", "grow")))
    for life, stages in (*lives, (CANCELLED, ("cancel",))):
        for stage in stages:
            plan = Plan(f"restart-after-{stage}", Family.CRASH, "nothing to do", life=life)
            yield replace(plan, after=stage, happens=Happening.RESTART)


def _remade() -> Iterator[Plan]:
    lags = tuple(Fault(On(EVENT, kind), Lag(3)) for kind in ("ddpjobs", "pods"))
    for stage in STAGES[:-1]:
        for name, happens, faults in (
            ("seen", Happening.REMADE, ()),
            ("late", Happening.REMADE, lags),
            ("unseen", Happening.REMADE_UNSEEN, ()),
        ):
            yield Plan(f"made-anew-{name}-after-{stage}", Family.REMADE, name, faults, stage, happens)


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
    *queued.PLANS,
)

ALWAYS = frozenset(
    {*EVER_FAILED, *MET_A_BOUND, *(plan.name for plan in UNDISTURBED.values()), queued.UNDISTURBED.name}
)


def shown(plan: Plan) -> set[object]:
    """What a plan shows in `make test`: its row of the page, and each thing that goes wrong."""
    return {(plan.family, plan.place), *map(str, plan.faults), plan.happens, str(plan.obstacle)}


@cache
def chosen() -> frozenset[str]:
    """The plans of `make test`, by name: those that ever failed, and a few that show each row and each fault once.

    The next plan is always one that shows most of what is still lacking. Among equal plans a hash decides, so that
    the choice is always the same.
    """
    shows = {plan.name: shown(plan) for plan in PLANS}
    names = set(ALWAYS)
    lacking = set.union(*shows.values()).difference(*(shows[name] for name in names))
    while lacking:
        best = max(shows, key=lambda name: (len(shows[name] & lacking), crc32(name.encode())))
        names.add(best)
        lacking -= shows[best]
    return frozenset(names)
