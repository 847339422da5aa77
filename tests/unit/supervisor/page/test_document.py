"""The document of GET /status, and when its mark changes."""

import dataclasses
import json
import math
import time
from typing import Any

import pytest
from ddpjob_supervisor.gang.states import Delay, Phase, Stall
from ddpjob_supervisor.page.document import Gang, Memory, document, in_groups, mark
from ddpjob_supervisor.page.stragglers import Straggler
from ddpjob_supervisor.watch.blame import Observation
from ddpjob_supervisor.watch.checkpoint_requests import RequestOutcome
from msgspec import structs

from .gangs import AT, AT_AS_TEXT, BEAT, GANG, KILLED, PROGRESS


def said(**changes: Any) -> dict[str, Any]:
    """The document of that gang with changes, as a reader gets it."""
    answer: dict[str, Any] = json.loads(json.dumps(document(dataclasses.replace(GANG, **changes)), allow_nan=False))
    return answer


def test_the_order_of_the_nodes_is_told_where_it_is_not_that_of_their_numbers() -> None:
    assert "order" not in said()
    assert said(order=(0, 2, 1))["order"] == [0, 2, 1]


def test_the_whole_document() -> None:
    whole = said()
    assert whole.pop("mark")
    assert whole == {
        "version": 2,
        "job": "0bfe935e70c321c7ca3afc75ce0d0ca2",
        "now": AT_AS_TEXT,
        "nodes": 2,
        "procsPerNode": 2,
        "attempt": 3,
        "phase": "Running",
        "since": AT_AS_TEXT,
        "firstStepSeen": True,
        "missing": [],
        "inPlaceRestarts": 1,
        "incidents": [
            {
                "attempt": 2,
                "time": AT_AS_TEXT,
                "node": 1,
                "rank": 3,
                "cause": "Application",
                "exitCode": 137,
                "signal": 9,
                "exception": None,
                "message": "killed by SIGKILL",
                "step": 120,
                "stepsSinceRestart": None,
                "tied": False,
                "consequences": 1,
                "consequenceNodes": [0],
            }
        ],
        "progress": {
            "attempt": 3,
            "since": AT_AS_TEXT,
            "firstStep": 101,
            "begins": "FromCheckpoint",
            "activity": "Saving",
            "activityTime": AT_AS_TEXT,
            "recounts": False,
            "epoch": 1,
            "step": 120,
            "stepsSinceRestart": None,
            "totalSteps": 400,
            "percent": 30.0,
            "etaSeconds": 6,
            "loss": 0.31,
            "lossNotFiniteSinceStep": None,
            "samplesPerSecond": 3200.0,
            "lastStepTime": AT_AS_TEXT,
            "stepSeconds": 0.02,
            "stallLimitSeconds": 480.0,
            "slowestNode": 1,
            "lastPoint": 7,
        },
        "checkpoint": {"step": 100, "time": AT_AS_TEXT},
        "requestedCheckpoint": None,
        "stall": None,
        "firstStepDelay": None,
        "stoppedRanks": None,
        "stragglers": [{"node": 1, "rank": 3, "slowdown": 1.8, "slowed": "GPU 1 is slowed down: it is too hot"}],
        "ranks": [
            {
                "rank": 0,
                "node": 0,
                "step": None,
                "activity": None,
                "stepSeconds": None,
                "seconds": {},
                "memoryBytes": None,
                "transport": None,
                "slowed": None,
                "metrics": {},
            },
            {
                "rank": 3,
                "node": 1,
                "step": 120,
                "activity": "training",
                "stepSeconds": 0.02,
                "seconds": {"data": 0.001, "forward": 0.005},
                "memoryBytes": 1 << 30,
                "transport": "P2P, NET/IB",
                "slowed": "GPU 1 is slowed down: it is too hot",
                "metrics": {"learning_rate": 0.1},
            },
        ],
        "memory": {"zygotePssBytes": 1000, "supervisorPssBytes": 200},
    }


def test_what_has_come_of_a_request_for_a_checkpoint_is_told() -> None:
    answer = {"request": "a", "state": "Saved", "step": 120, "message": ""}
    assert said(requested=RequestOutcome("a", "Saved", 120))["requestedCheckpoint"] == answer
    assert said(requested=RequestOutcome())["requestedCheckpoint"]["request"] == ""


def test_steps_that_are_counted_anew_are_not_taken_for_how_far_it_is() -> None:
    progress = said(progress=dataclasses.replace(PROGRESS, anew=True))["progress"]
    assert (progress["step"], progress["stepsSinceRestart"], progress["percent"]) == (None, 120, None)


def test_a_gang_that_has_just_begun() -> None:
    bare = json.loads(json.dumps(document(Gang("u", 2, 1, 0, Phase.GATHERING, AT, missing=(1,)))))
    assert bare["missing"] == [1]
    assert (bare["progress"], bare["checkpoint"], bare["stall"]) == (None, None, None)
    assert (bare["incidents"], bare["stragglers"], bare["ranks"]) == ([], [], [])
    assert bare["memory"] == {"zygotePssBytes": None, "supervisorPssBytes": None}


@pytest.mark.parametrize(
    ("exit_code", "signal"), [(1, None), (128, None), (129, 1), (137, 9), (192, 64), (193, None), (203, None)]
)
def test_the_signal_is_told_from_the_exit_code(exit_code: int, signal: int | None) -> None:
    incident = structs.replace(KILLED, end=structs.replace(KILLED.end, exit_code=exit_code))
    assert said(incidents=(incident,))["incidents"][0]["signal"] == signal


def test_long_lists_are_cut() -> None:
    many = structs.replace(KILLED, consequences=20, consequence_nodes=tuple(range(8)))
    incidents = tuple(structs.replace(many, attempt=attempt) for attempt in range(40))
    long = said(nodes=100, missing=range(1, 100), incidents=incidents)
    assert long["missing"] == list(range(1, 9))
    assert [incident["attempt"] for incident in long["incidents"]] == list(range(24, 40))
    assert {(one["consequences"], len(one["consequenceNodes"])) for one in long["incidents"]} == {(20, 8)}


@pytest.mark.parametrize(
    ("nodes", "processes", "coordinator", "listed"),
    [(64, 1, None, True), (65, 1, None, False), (8, 9, None, False), (1000, 8, "job-0:29502", True)],
)
def test_processes_are_listed_where_they_are_few(
    nodes: int, processes: int, coordinator: str | None, *, listed: bool
) -> None:
    assert ("ranks" in said(nodes=nodes, procs_per_node=processes, coordinator=coordinator)) is listed


def test_a_supervisor_other_than_rank_0s_tells_what_it_knows_and_who_knows_more() -> None:
    other = said(coordinator="job-0:29502")
    assert set(other) == {
        *("version", "job", "now", "mark", "nodes", "procsPerNode", "attempt", "phase"),
        *("memory", "ranks"),
        "coordinator",
    }
    assert other["coordinator"] == "job-0:29502"
    assert "coordinator" not in said()


@pytest.mark.parametrize("phase", sorted(set(Phase) - {Phase.RUNNING}))
def test_no_end_is_in_sight_while_no_step_is_made(phase: Phase) -> None:
    assert said()["progress"]["etaSeconds"] == 6
    assert said(phase=phase)["progress"]["etaSeconds"] is None


def test_numbers_that_json_does_not_have_are_left_out() -> None:
    strange = {**BEAT, "stepSeconds": math.nan, "memoryBytes": math.nan, "seconds": {"data": math.inf}}
    (rank,) = said(beats=(strange,))["ranks"]
    assert (rank["stepSeconds"], rank["memoryBytes"], rank["seconds"]) == (None, None, {"data": None})


@pytest.mark.parametrize(
    ("number", "shown"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity"), (0.5, 0.5)]
)
def test_that_a_loss_or_a_metric_has_gone_astray_is_shown(number: float, shown: object) -> None:
    whole = said(progress=dataclasses.replace(PROGRESS, loss=number), beats=({**BEAT, "metrics": {"a": number}},))
    assert (whole["progress"]["loss"], whole["ranks"][0]["metrics"]) == (shown, {"a": shown})


def test_of_many_metrics_the_first_are_shown() -> None:
    (rank,) = said(beats=({**BEAT, "metrics": {f"m{number}": number for number in range(40)}},))["ranks"]
    assert rank["metrics"] == {f"m{number}": number for number in range(16)}


STALL = Stall(AT)


@pytest.mark.parametrize(
    "changes",
    [
        {"uid": "v"},
        {"attempt": 4},
        {"phase": Phase.STALLED},
        {"missing": (1,)},
        {"in_place_restarts": 2},
        {"first_step_seen": not GANG.first_step_seen},
        {"incidents": (KILLED, structs.replace(KILLED, attempt=3))},
        {"delay": Delay(AT, 300.0, "no step seen for 5 min")},
        {"delay": Delay(AT, 600.0, "no step seen for 10 min")},
        {"stopped": "rank 3 is stopped (SIGSTOP)"},
        {"requested": RequestOutcome()},
        {"requested": RequestOutcome("a", "Requested")},
        {"requested": RequestOutcome("a", "Saved", 120)},
        {"stall": STALL},
        {"stall": Stall(AT, 1, 3, "rank 3 did not enter the collective")},
        {"progress": dataclasses.replace(PROGRESS, loss=math.nan, not_finite_since=118)},
        {"progress": dataclasses.replace(PROGRESS, attempt=4)},
        {"progress": dataclasses.replace(PROGRESS, first=None)},
        {"hold": "held: no program has run yet"},
        {"stragglers": ()},
        {"stragglers": (Straggler(0, 0, 1.84),)},
    ],
    ids=str,
)
def test_the_mark_changes_with_what_matters_at_once(changes: dict[str, Any]) -> None:
    assert mark(dataclasses.replace(GANG, **changes)) != mark(GANG)


def test_the_mark_changes_once_it_is_known_whom_a_stall_is_to_blame_on() -> None:
    unknown, known = (dataclasses.replace(GANG, stall=one) for one in (STALL, Stall(AT, 1, 3, "rank 3 is stopped")))
    assert mark(unknown) != mark(known)


@pytest.mark.parametrize(
    "changes",
    [
        {"progress": dataclasses.replace(PROGRESS, step=121)},
        {"progress": dataclasses.replace(PROGRESS, loss=0.3)},
        {"beats": ()},
        {"checkpoint": None},
        {"stragglers": (Straggler(1, 3, 2.5),)},
        {"slowest_node": 0},
        {"stall_limit": 60.0},
        {"memory": Memory()},
    ],
    ids=str,
)
def test_the_mark_does_not_change_with_progress(changes: dict[str, Any]) -> None:
    assert mark(dataclasses.replace(GANG, **changes)) == mark(GANG)


def test_a_document_of_64_processes_costs_little() -> None:
    beats = tuple({**BEAT, "rank": rank, "node": rank // 8} for rank in range(64))
    gang = dataclasses.replace(GANG, nodes=8, procs_per_node=8, beats=beats, incidents=(KILLED,) * 16)
    began, rounds = time.process_time(), 200
    for _ in range(rounds):
        content = json.dumps(document(gang))
    milliseconds = (time.process_time() - began) / rounds * 1e3
    print(f"document of 64 processes: {milliseconds:.2f} ms of CPU, {len(content)} bytes")
    assert milliseconds < 50
    assert len(content) < 64 * 1024


def test_ranks_with_the_same_stack_are_shown_together() -> None:
    waits = {"state": "S", "where": "f (a.py:2)", "communicates": True, "collective": "gloo:barrier"}
    found = {rank: Observation(rank, **waits, stack=("wait (x.py:1)", "f (a.py:2)")) for rank in (0, 2)}
    assert in_groups(found | {3: Observation(3, "S", where="a.py:9", stack=("a.py:9",))}, 4) == [
        {"ranks": [0, 2], "does": "waits in gloo:barrier at f (a.py:2)", "stack": ["wait (x.py:1)", "f (a.py:2)"]},
        {"ranks": [1], "does": "is out of reach", "stack": []},
        {"ranks": [3], "does": "is at a.py:9", "stack": ["a.py:9"]},
    ]
