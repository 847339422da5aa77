"""The judges of the fault matrix are judged: each has a history that is right, and one that is not."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.faults import conductor, oracle
from tests.faults.calls import Call
from tests.faults.faults import Answer, Fault, On, Reset
from tests.faults.life import Life, Row
from tests.faults.oracle import Account
from tests.faults.plan import ALIKE, Differs, Family, Plan
from tests.faults.proxy import Record
from tests.faults.witness import Change

JOB_LIST = Call("list", "ddpjobs")
GET = Call("get", "ddpjobs", name="life")
PODS = Call("list", "pods")
STATUS = Call("patch", "ddpjobs", "status", name="life")


def asked(
    call: Call, *moments: float, process: int = 1, status: int = 200, injected: Any = None, body: bytes = b""
) -> list[Record]:
    return [Record(call, process, moment, body, status, injected, moment) for moment in moments]


def every(seconds: float, times: int) -> list[float]:
    return [number * seconds for number in range(times)]


def in_order(*records: Iterable[Record]) -> list[Record]:
    return sorted((one for some in records for one in some), key=lambda record: record.began)


def looks_after_conflicts(moments: Iterable[float], process: int = 1) -> list[Record]:
    """Statuses that are refused, and what follows each."""
    moments = list(moments)
    return in_order(
        asked(STATUS, *moments, process=process, status=409),
        asked(GET, *(moment + 0.02 for moment in moments), process=process),
        asked(PODS, *(moment + 0.04 for moment in moments), process=process),
    )


RESET = {"status": 0, "injected": Reset()}


@pytest.mark.parametrize(
    ("log", "loops"),
    [
        (asked(JOB_LIST, *every(0.5, 60)), True),
        (asked(JOB_LIST, *every(0.6, 60)), False),
        (in_order(asked(JOB_LIST, *every(1.1, 60)), asked(JOB_LIST, *every(1.1, 60), process=2)), False),
        (in_order(asked(JOB_LIST, *every(0.8, 60)), asked(JOB_LIST, *every(0.8, 60), process=2)), True),
        (in_order(*(asked(JOB_LIST, m, m + 0.01, **RESET) for m in every(0.6, 60))), False),
        (in_order(*(asked(JOB_LIST, m, m + 0.01, m + 0.02, **RESET) for m in every(0.8, 60))), True),
        (asked(Call("create", "pods", name="a"), *every(0.3, 60), **RESET), True),
        (looks_after_conflicts(every(0.2, 20)), False),
        (in_order(looks_after_conflicts(every(0.2, 20)), asked(GET, *(m + 0.1 for m in every(0.2, 20)))), True),
        (in_order(looks_after_conflicts(every(0.2, 20)), asked(PODS, *(m + 20 for m in every(0.2, 20)))), True),
        (asked(STATUS, *every(0.5, 60)), False),
        (asked(STATUS, *every(0.4, 60), status=503, injected=Answer(503, "")), True),
        ([asked(Call("create", "events", name=f"e{n}"), n / 50)[0] for n in range(100)], True),
    ],
    ids=[
        "a list, more than ten in five seconds",
        "no more than that",
        "two processes, together no more",
        "two processes, together more",
        "each time reset and asked once more by the client",
        "each time asked twice more",
        "a write is not asked once more by the client",
        "a look for each conflict",
        "a look more for each conflict",
        "lists long after the conflicts",
        "statuses that say something",
        "a status that never comes through",
        "events without end, each with other words",
    ],
)
def test_what_is_asked_again_and_again_is_a_hot_loop(log: list[Record], loops: bool) -> None:  # noqa: FBT001  A table.
    assert bool(list(oracle.hot_loops(log))) == loops


def changed(*moments: float) -> list[Change]:
    return [Change(moment, "ddpjobs", "MODIFIED", {"metadata": {"uid": "u"}}) for moment in moments]


@pytest.mark.parametrize(
    ("changes", "log", "quarrel"),
    [
        (every(1, 6), asked(STATUS, *every(1, 5), status=409), False),
        (every(1, 4), asked(STATUS, *every(1, 5), status=409), True),
        (every(1, 6), asked(STATUS, *every(1, 5)) + asked(STATUS, *every(1, 2), status=409), True),
        (every(1, 10), asked(STATUS, *every(1, 5)) + asked(STATUS, *every(1, 5), process=2, status=409), False),
        (every(1, 60), asked(STATUS, *every(5, 60)), True),
    ],
    ids=[
        "each refusal has a change of somebody else's before it",
        "more refusals than changes",
        "more refusals than changes of others",
        "the other operator has changed it",
        "written for ever, however slowly",
    ],
)
def test_a_status_that_is_refused_without_a_change_is_a_quarrel(
    changes: list[float],
    log: list[Record],
    quarrel: bool,  # noqa: FBT001  A table.
) -> None:
    assert bool(list(oracle.quarrels(changed(*changes), log))) == quarrel


@pytest.mark.parametrize(
    ("log", "two"),
    [
        (asked(STATUS, 1, 2) + asked(STATUS, 3, process=2), False),
        (asked(STATUS, 1) + asked(STATUS, 2, process=2) + asked(STATUS, 3), True),
        (asked(STATUS, 1) + asked(STATUS, 2, process=2) + asked(STATUS, 3, status=409), False),
        (asked(STATUS, 1) + asked(GET, 2, process=2) + asked(STATUS, 3), False),
        (asked(STATUS, 2, process=2) + asked(Call("create", "events"), 3), False),
    ],
    ids=["one after the other", "by turns", "it is refused", "the other only reads", "it tells of what was"],
)
def test_who_changes_something_after_its_successor_led_beside_it(log: list[Record], two: bool) -> None:  # noqa: FBT001  A table.
    assert bool(list(oracle.two_leaders(log))) == two


BLOCKED = Differs("", ends=frozenset({"conditions.Blocked"}))


@pytest.mark.parametrize(
    ("end", "differs", "wrong"),
    [
        ({"state": "Running"}, ALIKE, []),
        ({"state": "Failed"}, ALIKE, ["after run: state is Failed, undisturbed Running"]),
        ({"state": "Running", "conditions.Blocked": {"status": "False"}}, BLOCKED, []),
        (
            {"state": "Running", "conditions.Blocked": {"status": "True"}},
            BLOCKED,
            ["after run: conditions.Blocked is {'status': 'True'}, undisturbed None"],
        ),
    ],
    ids=["alike", "another end", "was blocked", "is blocked still"],
)
def test_an_end_is_that_of_an_undisturbed_life(end: dict[str, Any], differs: Differs, wrong: list[str]) -> None:
    usual = Account(ends={"run": {"state": "Running"}})
    assert list(oracle.differences(Account(ends={"run": end}), usual, differs)) == wrong


def test_what_is_made_once_more_is_told() -> None:
    mine, usual = Account(), Account()
    mine.made["pods 0/1"], usual.made["pods 0/1"] = 2, 1
    assert list(oracle.differences(mine, usual, ALIKE)) == ["made: pods 0/1 2 times, undisturbed 1"]
    assert not list(oracle.differences(mine, usual, Differs("", {"pods 0/1": 1})))


@pytest.mark.parametrize(("made", "wrong"), [(0, True), (1, False), (2, False), (3, True)])
def test_what_may_be_made_less_often_may_not_be_made_more_often(made: int, wrong: bool) -> None:  # noqa: FBT001  A table.
    mine, usual = Account(), Account()
    mine.made.update({"pods 0/1": made, "ddpjobs": 1})
    usual.made.update({"pods 0/1": 2, "ddpjobs": 1})
    assert bool(list(oracle.differences(mine, usual, Differs("", {"pods 0/1": -1})))) == wrong


def a_pod(
    time: float, what: str, uid: str, incarnation: int, phase: str = "Running", *, owner: str = "the job"
) -> Change:
    labels = {"ddpjob.dev/node": "0", "ddpjob.dev/incarnation": str(incarnation)}
    owners = [{"uid": owner, "controller": True}] if owner else []
    metadata = {"uid": uid, "name": uid, "labels": labels, "ownerReferences": owners}
    return Change(time, "pods", what, {"metadata": metadata, "spec": {}, "status": {"phase": phase}})


@pytest.mark.parametrize(
    ("before", "two"),
    [
        ([a_pod(1, "DELETED", "a", 1)], False),
        ([a_pod(1, "MODIFIED", "a", 1, "Failed")], False),
        ([a_pod(1, "MODIFIED", "a", 1)], True),
        ([a_pod(1, "MODIFIED", "a", 1, owner="")], False),
    ],
    ids=["gone", "ended", "alive", "nobody's"],
)
def test_two_pods_of_a_rank_never_live(before: list[Change], two: bool) -> None:  # noqa: FBT001  A table.
    history = [a_pod(0, "ADDED", "a", 1), *before, a_pod(2, "ADDED", "b", 2)]
    assert bool(list(oracle.two_of_one_rank(history))) == two


DELETE = Call("delete", "pods", name="a", uid="a")


@pytest.mark.parametrize(
    ("moment", "wrong"), [(2.5, True), (1.5, False)], ids=["gone when it is asked for", "there when it is asked for"]
)
def test_nothing_is_asked_of_what_is_gone(moment: float, wrong: bool) -> None:  # noqa: FBT001  A table.
    history = [a_pod(1, "ADDED", "a", 1), a_pod(2, "DELETED", "a", 1)]
    assert bool(list(oracle.former_uids(history, asked(DELETE, moment)))) == wrong


@pytest.mark.parametrize(
    ("call", "body", "wrong"),
    [
        (DELETE, b"{}", False),
        (Call("delete", "pods", name="a"), b"{}", True),
        (STATUS, b'[{"op": "replace", "path": "/metadata/resourceVersion", "value": "1"}]', False),
        (STATUS, b'[{"op": "add", "path": "/status", "value": {}}]', True),
        (STATUS, b'{"status": {}}', True),
    ],
    ids=["by its uid", "by its name alone", "over a version", "over whatever there is", "merged"],
)
def test_a_write_says_what_it_is_meant_for(call: Call, body: bytes, wrong: bool) -> None:  # noqa: FBT001  A table.
    assert bool(list(oracle.unconditional([Record(call, 1, 0.0, body)]))) == wrong


@pytest.mark.parametrize(("seconds", "wrong"), [(0.5, True), (1.5, False)], ids=["too soon", "later"])
def test_whom_the_server_asks_to_wait_waits(seconds: float, wrong: bool) -> None:  # noqa: FBT001  A table.
    busy = Answer(429, "TooManyRequests", retry_after=1)
    log = [*asked(STATUS, 0.0, status=429, injected=busy), *asked(STATUS, seconds)]
    assert bool(list(oracle.impatient(log))) == wrong


NO_ROOM = b'{"reason": "Blocked", "message": "No room"}'
FAILED = b'{"reason": "Failed", "message": "rank 1 in 2.5 s"}'


def test_an_event_that_was_never_told_is_missed() -> None:
    create = Call("create", "events")
    usual = oracle.events_of(asked(create, 1.0, body=NO_ROOM) + asked(create, 2.0, body=FAILED))
    mine = oracle.events_of(asked(create, 1.0, body=NO_ROOM) + asked(create, 2.0, body=FAILED, status=503))
    assert list(oracle.unsaid(Account(said=mine), Account(said=usual))) == ["no event says Failed: rank 1 in a while"]


CREATED, RUNNING = "Created: 3 nodes created", "Running: 3 nodes running"


@pytest.mark.parametrize(
    ("mine", "missed"),
    [({RUNNING}, []), ({"Running: 2 nodes running"}, [CREATED, RUNNING]), ({CREATED}, [RUNNING])],
)
def test_pods_that_run_at_once_are_not_told_to_be_created(mine: set[str], missed: list[str]) -> None:
    found = oracle.unsaid(Account(said=mine), Account(said={CREATED, RUNNING}))
    assert list(found) == [f"no event says {words}" for words in missed]


def test_what_belongs_to_a_job_is_what_was_its_own_when_it_was_made() -> None:
    history = [
        a_pod(1, "ADDED", "a", 1),
        a_pod(2, "MODIFIED", "a", 1, owner=""),
        a_pod(3, "ADDED", "b", 2),
        a_pod(3, "ADDED", "other", 1, owner="another job"),
        a_pod(4, "DELETED", "other", 1, owner="another job"),
        a_pod(4, "DELETED", "a", 1, owner=""),
    ]
    made, gone = oracle.objects(history, "the job")
    assert (dict(made), dict(gone)) == ({"pods 0/1": 1, "pods 0/2": 1}, {"pods 0/1": 1})


JOB_GOES = Call("delete", "ddpjobs", name="life", uid="u")


@pytest.mark.parametrize(
    ("log", "wrong"),
    [
        (asked(GET, 1), []),
        (asked(DELETE, 1, process=1), []),
        (asked(DELETE, 1, process=2), ["delete pods"]),
        (asked(STATUS, 1, process=2), ["patch ddpjobs/status"]),
        (asked(STATUS, 6, process=2), []),
        (asked(DELETE, 6, process=2), ["delete pods"]),
        (asked(JOB_GOES, 6, process=2) + asked(DELETE, 7, process=2), []),
    ],
    ids=[
        "it reads",
        "a former process writes",
        "it writes",
        "it writes a status",
        "it writes a status once the job was changed",
        "it writes something else then",
        "it deletes the job, whose time is over",
    ],
)
def test_a_process_that_finds_nothing_to_do_writes_nothing(log: list[Record], wrong: list[str]) -> None:
    said = list(oracle.needless(log, process=2, changed=5.0))
    assert len(said) == len(wrong)
    assert all(what in words for what, words in zip(wrong, said, strict=True))


def test_no_process_ends_by_itself() -> None:
    assert list(oracle.ended([])) == []
    assert list(oracle.ended(["watching has ended: 410"])) == [
        "the operator ended by itself: watching has ended: 410"
    ]


@pytest.mark.parametrize(
    ("mine", "alike"),
    [
        ({"startTime": "10:00", "message": "again in 1.5 s"}, True),
        ({"message": "again in 1.5 s"}, False),
        ({"startTime": "10:00", "message": "again at once"}, False),
    ],
    ids=["at another moment", "at none", "in other words"],
)
def test_ends_are_alike_but_for_when_they_were(mine: dict[str, Any], alike: bool) -> None:  # noqa: FBT001  A table.
    usual = oracle.lasting({"startTime": "09:00", "message": "again in 2.5 s"})
    assert (oracle.lasting(mine) == usual) == alike


A_LIFE = Life("a life", (), (Row("run", "create-pod", On("create", "pods")),))
NEWEST = b'[{"op": "replace", "path": "/metadata/resourceVersion", "value": "1"}]'
MADE = Call("create", "pods")
FAULT = Fault(On("list", "ddpjobs"), Reset())
BY_CHANCE = Plan("by chance", Family.ERROR, faults=(FAULT,), life=A_LIFE)
UNDISTURBED = Plan("undisturbed", Family.NONE, life=A_LIFE)
ONE_POD, TWO_PODS = Account(made=Counter({"pods 0/1": 1})), Account(made=Counter({"pods 0/1": 2}))


@pytest.mark.parametrize(
    ("plan", "seen", "mine", "words"),
    [
        (BY_CHANCE, {}, ONE_POD, ""),
        (BY_CHANCE, {}, TWO_PODS, "made: pods 0/1 2 times"),
        (BY_CHANCE, {"history": [a_pod(0, "ADDED", "a", 1), a_pod(1, "ADDED", "b", 2)]}, ONE_POD, "two live pods"),
        (
            BY_CHANCE,
            {
                "history": [a_pod(1, "ADDED", "a", 1), a_pod(2, "DELETED", "a", 1)],
                "log": asked(DELETE, 3, body=b"{}"),
            },
            ONE_POD,
            "was gone at",
        ),
        (BY_CHANCE, {"log": asked(Call("delete", "pods", name="a"), 1, body=b"{}")}, ONE_POD, "neither a uid nor"),
        (BY_CHANCE, {"log": asked(JOB_LIST, *every(0.3, 60))}, ONE_POD, "times within 5 s"),
        (BY_CHANCE, {"log": asked(STATUS, *every(2, 5), status=409, body=NEWEST)}, ONE_POD, "statuses were refused"),
        (
            BY_CHANCE,
            {"log": [*asked(GET, 0, status=429, injected=Answer(429, "", retry_after=1)), *asked(GET, 0.5)]},
            ONE_POD,
            "wanted to be left alone",
        ),
        (BY_CHANCE, {"ended": ["the last words"]}, ONE_POD, "ended by itself: the last words"),
        (BY_CHANCE, {"said": "Traceback (most recent call last):"}, ONE_POD, "a bug: Traceback"),
        (replace(BY_CHANCE, family=Family.LOST), {}, Account(said=set()), "no event says Created"),
        (
            replace(BY_CHANCE, family=Family.LEASE),
            {"log": [*asked(MADE, 1), *asked(MADE, 2, process=2), *asked(MADE, 3)]},
            ONE_POD,
            "process 2 leads by then",
        ),
        (UNDISTURBED, {"log": asked(MADE, 1)}, ONE_POD, ""),
        (UNDISTURBED, {}, ONE_POD, "create-pod; written 0 times"),
        (UNDISTURBED, {"log": asked(MADE, 1, 2)}, ONE_POD, "create-pod; written 2 times"),
        (UNDISTURBED, {"log": [*asked(MADE, 1), *asked(DELETE, 2, body=b"{}")]}, ONE_POD, "not in the table"),
        (UNDISTURBED, {"log": [*asked(MADE, 1), *asked(MADE, 2, status=403)]}, ONE_POD, "refused, though nothing"),
    ],
)
def test_each_rule_that_a_life_breaks_is_in_the_verdict(
    plan: Plan, seen: dict[str, Any], mine: Account, words: str
) -> None:
    rig = SimpleNamespace(
        proxy=SimpleNamespace(log=seen.get("log", [])),
        witness=SimpleNamespace(history=seen.get("history", [])),
        ended=seen.get("ended", []),
        operators=[SimpleNamespace(log=seen.get("said", ""))],
    )
    usual = replace(ONE_POD, said={CREATED} if plan.family is Family.LOST else set())
    verdict = conductor._verdict(plan, rig, mine, usual)
    assert len(verdict) == bool(words), verdict
    assert words in "".join(verdict)
