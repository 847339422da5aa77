"""Which rank of an attempt failed first, and whether the supervisors may answer for it."""

import pytest
from ddpjob_rank.errors import ConfigError
from ddpjob_supervisor.gang.judging import (
    FRUITLESS,
    Ends,
    Ledger,
    Limits,
    first_of,
    is_consequence,
    is_well,
    left_to_operator,
    observation_of,
)
from ddpjob_supervisor.gang.messages import INCIDENTS_KEPT, NAMED, End, Incident, Past
from ddpjob_supervisor.watch.blame import Observation
from msgspec.structs import replace

from .gangs import BEGIN, CONFIG, KILLED, LOST, RAISED, SAVED, STOPPED, WELL


def at(end: End, seconds: float, process: int = 0) -> End:
    return replace(end, time=BEGIN + seconds, rank=process)


def waited(process: int, begun: dict[str, int]) -> End:
    """One that NCCL's watchdog has ended."""
    return End(process, 134, BEGIN, "Stalled", "it waited for 600 s", begun=begun, waited="NCCL's ALLREDUCE number 7")


# By node: how its ranks ended, and when its first failure was heard of. Then: node, process, tied, consequences.
FIRST: dict[str, tuple[Ends, dict[int, float], tuple[int, int, bool, tuple[int, ...]]]] = {
    "the only one": ({0: (STOPPED,), 1: (KILLED,)}, {0: 1, 1: 0}, (1, 1, False, ())),
    "the earlier of a node": (
        {0: (at(KILLED, 2, 0), at(CONFIG, 1, 1))},
        {0: 0},
        (0, 1, False, ()),
    ),
    "the node that was heard of first": ({0: (KILLED,), 1: (KILLED,)}, {0: 2, 1: 1}, (1, 1, False, (0,))),
    "whatever its clock says": (
        {0: (at(KILLED, -100, 0),), 1: (at(KILLED, 100, 1),)},
        {0: 2, 1: 1},
        (1, 1, False, (0,)),
    ),
    "a later rank of the node that was heard of first may be the second of all": (
        {0: (at(LOST, 0, 0), at(KILLED, 5, 1)), 1: (at(KILLED, 100, 2),)},
        {0: 1, 1: 3},
        (1, 2, False, (0,)),
    ),
    "one of its own, although a lost peer was heard of before": (
        {0: (LOST,), 1: (KILLED,), 2: (replace(LOST, rank=2),)},
        {0: 1, 1: 3, 2: 2},
        (1, 1, False, (0, 2)),
    ),
    "lost peers only": ({0: (LOST,), 1: (replace(LOST, rank=1),)}, {0: 2, 1: 1}, (1, 1, False, (0,))),
    "a tie": ({1: (KILLED,), 0: (at(KILLED, 0, 0),)}, {0: 1, 1: 1}, (0, 0, True, (1,))),
    "a tie within a node": ({0: (at(KILLED, 0, 0), at(KILLED, 0, 1))}, {0: 1}, (0, 0, True, ())),
    "one that waited comes before one that lost a peer": (
        {0: (LOST,), 1: (waited(1, {}),)},
        {0: 1, 1: 2},
        (1, 1, False, (0,)),
    ),
    "what is a failure of its own comes before one that waited": (
        {0: (waited(0, {"0 nccl": 7}),), 1: (KILLED,)},
        {0: 1, 1: 2},
        (1, 1, False, (0,)),
    ),
    "the one that had begun fewer collectives is named, whoever gave up first": (
        {0: (waited(0, {"0 nccl": 7}),), 1: (waited(1, {"0 nccl": 6}),), 2: (waited(2, {"0 nccl": 7}),)},
        {0: 1, 1: 3, 2: 2},
        (1, 1, False, (0, 2)),
    ),
    "even if it has not failed, but was ended with the others": (
        {0: (waited(0, {"0 nccl": 7}),), 1: (replace(STOPPED, rank=1, begun={"0 nccl": 6}),)},
        {0: 1, 1: 2},
        (1, 1, False, (0,)),
    ),
    "groups are counted apart, and what nobody said is not compared": (
        {0: (waited(0, {"0 nccl": 7, "3 nccl": 1}),), 1: (waited(1, {"0 nccl": 7}),), 2: (waited(2, {}),)},
        {0: 2, 1: 1, 2: 3},
        (1, 1, False, (0, 2)),
    ),
    "no tie with a consequence": ({0: (LOST,), 1: (KILLED,)}, {0: 1, 1: 1}, (1, 1, False, (0,))),
}


@pytest.mark.parametrize("title", FIRST)
def test_the_first_failure_is_the_incident(title: str) -> None:
    ends, heard, expected = FIRST[title]
    incident = first_of(3, ends, heard)
    assert incident is not None
    assert (incident.node, incident.end.rank, incident.tied, incident.consequence_nodes) == expected
    assert incident.attempt == 3


def test_of_a_thousand_consequences_the_first_are_named_and_all_counted() -> None:
    ends = {node: (replace(LOST, rank=node),) for node in range(1000)} | {700: (at(KILLED, 0, 700),)}
    incident = first_of(3, ends, dict.fromkeys(ends, 1.0))
    assert incident is not None
    assert (incident.node, incident.consequences, incident.consequence_nodes) == (700, 999, tuple(range(NAMED)))


@pytest.mark.parametrize("ends", [{}, {0: (), 1: ()}, {0: (STOPPED,), 1: (SAVED, WELL)}])
def test_without_a_failure_there_is_no_incident(ends: Ends) -> None:
    assert first_of(3, ends, dict.fromkeys(ends, 0.0)) is None


LEFT = "rank 5 had already ended with exit code 0, and this rank still waited for it: all ranks must enter the same "


@pytest.mark.parametrize(
    ("ends", "named"),
    [
        ((at(LOST, 3, 4), at(WELL, 2, 5)), True),
        ((at(WELL, 2, 5), at(WELL, 1, 6), at(LOST, 3, 4), at(LOST, 4, 7)), True),
        ((at(LOST, 3, 4), at(WELL, 4, 5)), False),
        ((at(LOST, 3, 4), at(STOPPED, 2, 5)), False),
        ((at(LOST, 3, 4), at(SAVED, 2, 5)), False),
    ],
    ids=["before", "the last of several", "after", "it was ended", "it was told to stop"],
)
def test_a_rank_that_had_finished_before_another_lost_it_is_named(ends: tuple[End, ...], *, named: bool) -> None:
    incident = first_of(3, {2: ends}, {2: 1})
    assert incident is not None
    assert (incident.node, incident.end.rank, incident.end.exit_code) == (2, 4, LOST.exit_code)
    assert (incident.end.cause, incident.end.exception) == (
        ("Application", None) if named else (LOST.cause, LOST.exception)
    )
    assert incident.end.message.startswith(LEFT if named else LOST.message)


def test_a_rank_that_finished_explains_no_failure_of_another_rank_itself() -> None:
    incident = first_of(3, {2: (at(LOST, 3, 4), at(WELL, 2, 5), at(KILLED, 4, 6))}, {2: 1})
    assert incident is not None
    assert incident.end == at(KILLED, 4, 6)


def test_the_loss_of_a_peer_is_a_consequence() -> None:
    assert is_consequence(Incident(1, 0, LOST))
    assert not is_consequence(Incident(1, 0, KILLED))


@pytest.mark.parametrize(
    ("ends", "well"),
    [
        ((SAVED,), True),
        ((SAVED, WELL), True),
        ((), False),
        ((SAVED, STOPPED), False),
        ((SAVED, KILLED), False),
        ((End(0, 143, BEGIN),), False),
    ],
)
def test_ranks_have_ended_well_if_all_are_done_or_have_saved(ends: tuple[End, ...], *, well: bool) -> None:
    assert is_well(ends) is well


def answers(limits: Limits, *incidents: tuple[float, End, bool]) -> list[bool]:
    """Whether each of several incidents (seconds, end, progressed) is answered in place."""
    ledger = Ledger(limits)
    return [ledger.takes(Incident(1, 1, end), BEGIN + time, progressed=far) for time, end, far in incidents]


ANSWERS: dict[str, tuple[Limits, list[tuple[float, End, bool]], list[bool]]] = {
    "none allowed": (Limits(), [(0, KILLED, True)], [False]),
    "two allowed": (Limits(2), [(0, KILLED, True), (1, KILLED, True), (2, KILLED, True)], [True, True, False]),
    "more than incidents are kept": (
        Limits(INCIDENTS_KEPT + 4),
        [(0, KILLED, True)] * (INCIDENTS_KEPT + 5),
        [True] * (INCIDENTS_KEPT + 4) + [False],
    ),
    "two in a window": (
        Limits(2, 10),
        [(0, KILLED, True), (5, KILLED, True), (9.9, KILLED, True), (10, KILLED, True), (14, KILLED, True)],
        [True, True, False, True, False],
    ),
    "a cause of the operator's": (
        Limits(5, 10, left_causes=frozenset({"ConfigError"})),
        [(0, CONFIG, True)],
        [False],
    ),
    "another cause": (Limits(5, 10, left_causes=frozenset({"StorageFull"})), [(0, CONFIG, True)], [True]),
    "a code of the operator's": (Limits(5, 10, left_codes=frozenset({137})), [(0, KILLED, True)], [False]),
    "it got nowhere": (Limits(5), [(0, KILLED, False)] * (FRUITLESS + 1), [True, False, False]),
    "it got somewhere in between": (
        Limits(5),
        [(0, KILLED, False), (1, KILLED, True), (2, KILLED, False), (3, KILLED, False)],
        [True, True, True, False],
    ),
}


@pytest.mark.parametrize("title", ANSWERS)
def test_an_incident_is_answered_in_place_within_limits(title: str) -> None:
    limits, incidents, expected = ANSWERS[title]
    assert answers(limits, *incidents) == expected


ROWS: dict[str, tuple[list[tuple[int, int | None]], bool]] = {
    "as far as before, and as before that": ([(4, 7), (5, 7), (6, 7)], True),
    "less far, and less": ([(4, 7), (5, 6), (6, 5)], True),
    "further than the first": ([(4, 7), (5, 7), (6, 8)], False),
    "further in between": ([(4, 7), (5, 8), (6, 7)], False),
    "only twice": ([(5, 7), (6, 7)], False),
    "further before that": ([(3, 1), (4, 7), (5, 7), (6, 7)], True),
    "an attempt in between that a lost node ended": ([(3, 7), (4, 7), (6, 7)], False),
    "one that does not say how far it was": ([(4, 7), (5, None), (6, 7)], False),
}


@pytest.mark.parametrize("title", ROWS)
def test_three_in_a_row_that_get_no_further_may_be_a_crash_loop(title: str) -> None:
    steps, expected = ROWS[title]
    *before, last = [Incident(attempt, 1, replace(KILLED, step=step)) for attempt, step in steps]
    assert Ledger(Limits(), Past(tuple(before))).gets_no_further(last) is expected


COUNTED = replace(RAISED, counted_steps=120)
ALIKE: dict[str, tuple[list[End], bool]] = {
    "the same error": ([COUNTED, replace(COUNTED, rank=0), COUNTED], True),
    "another number of steps": ([COUNTED, COUNTED, replace(COUNTED, counted_steps=121)], False),
    "another error": ([COUNTED, COUNTED, replace(COUNTED, message="No module named 'x'")], False),
    "only twice": ([COUNTED, COUNTED], False),
    "no error of its own": ([replace(KILLED, counted_steps=120)] * 3, False),
    "steps that nobody has counted": ([RAISED] * 3, False),
}


@pytest.mark.parametrize(("ends", "expected"), ALIKE.values(), ids=ALIKE)
def test_the_same_error_after_as_many_counted_steps_may_be_a_crash_loop(ends: list[End], *, expected: bool) -> None:
    *before, last = [Incident(attempt, 1, end) for attempt, end in enumerate(ends, 4)]
    assert Ledger(Limits(), Past(tuple(before))).gets_no_further(last) is expected


@pytest.mark.parametrize(
    ("text", "codes", "causes"),
    [
        ("", set(), set()),
        (" , ", set(), set()),
        ("2", {2}, set()),
        ("2, 40-42,ConfigError ,StorageFull", {2, 40, 41, 42}, {"ConfigError", "StorageFull"}),
        ("7-7", {7}, set()),
        ("My-Cause", set(), {"My-Cause"}),
    ],
)
def test_codes_ranges_and_causes_are_left_to_the_operator(text: str, codes: set[int], causes: set[str]) -> None:
    assert left_to_operator(text) == (codes, causes)


@pytest.mark.parametrize("text", ["-1", "4-", "4-x", "4-5-6", "9-7", "256", "1-4000000000", "%"])
def test_what_is_neither_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError, match=r"DDPJOB_LEAVE_TO_OPERATOR has '.*': it must be exit codes"):
        left_to_operator(f"2,{text}")


def test_the_one_that_others_waited_for_has_stalled_them_and_it_is_said_by_how_much() -> None:
    ends: Ends = {0: (waited(0, {"0 nccl": 7}),), 1: (waited(1, {"0 nccl": -1}),)}
    incident = first_of(3, ends, {0: 1, 1: 2})
    assert incident is not None
    assert (incident.end.cause, incident.end.exit_code) == ("Stalled", 203)
    assert incident.end.message == ("it did not enter a collective of group 0: it had begun 0 of them, other ranks 7")


def test_one_that_waited_until_it_gave_up_is_found_waiting_and_any_other_has_ended() -> None:
    assert observation_of(4, None) == observation_of(4, replace(KILLED, rank=4)) == Observation(4, "X")
    found = observation_of(0, waited(0, {"0 nccl": 7}))
    assert (found.communicates, found.where, found.sequences) == (True, "NCCL's ALLREDUCE number 7", {"0 nccl": 7})
