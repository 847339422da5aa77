"""What an older image says, in whose documents `rank` is a node's number and `process` a rank."""

import json
from typing import Any

import pytest
from ddpjob_operator.engine.first_version import in_second

from .builders import a_job

PLACES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "an incident": (
        {"incidents": [{"attempt": 1, "rank": 1, "process": 3, "consequences": 1, "consequenceRanks": [0]}]},
        {"incidents": [{"attempt": 1, "node": 1, "rank": 3, "consequences": 1, "consequenceNodes": [0]}]},
    ),
    "an incident whose process is not known": (
        {"incidents": [{"rank": 1, "process": None, "consequenceRanks": []}]},
        {"incidents": [{"node": 1, "rank": None, "consequenceNodes": []}]},
    ),
    "progress": ({"progress": {"step": 7, "slowestRank": 1}}, {"progress": {"step": 7, "slowestNode": 1}}),
    "no progress yet": ({"progress": None}, {"progress": None}),
    "a stall": (
        {"stall": {"since": "noon", "rank": 1, "process": 3, "message": "stopped"}},
        {"stall": {"since": "noon", "node": 1, "rank": 3, "message": "stopped"}},
    ),
    "stragglers": (
        {"stragglers": [{"rank": 1, "process": 3, "slowdown": 2.0}, {"rank": 0, "process": 1, "slowdown": 1.5}]},
        {"stragglers": [{"node": 1, "rank": 3, "slowdown": 2.0}, {"node": 0, "rank": 1, "slowdown": 1.5}]},
    ),
    "a failure report, whose own rank is one": (
        {
            "rank": 3,
            "cause": "PeerLost",
            "incident": {"attempt": 1, "rank": 0, "process": 1, "consequenceRanks": [1]},
        },
        {"rank": 3, "cause": "PeerLost", "incident": {"attempt": 1, "node": 0, "rank": 1, "consequenceNodes": [1]}},
    ),
    "what is the same in both": ({"missing": [1], "order": [0, 1]}, {"missing": [1], "order": [0, 1]}),
    "what is none": ({"incidents": ["rank"], "stall": 7}, {"incidents": ["rank"], "stall": 7}),
    "nothing": ({}, {}),
}


@pytest.mark.parametrize("version", [{"version": 1}, {}], ids=["version 1", "no version"])
@pytest.mark.parametrize(("first", "second"), PLACES.values(), ids=PLACES)
def test_the_first_version_is_read_in_the_words_of_the_second(
    first: dict[str, Any], second: dict[str, Any], version: dict[str, Any]
) -> None:
    assert in_second({**version, **first}) == {**version, **second}


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(("_first", "second"), PLACES.values(), ids=PLACES)
def test_a_later_version_is_left_as_it_is(_first: Any, second: dict[str, Any], version: int) -> None:
    assert in_second({"version": version, **second}) == {"version": version, **second}


gang = a_job(nodes=2, procsPerNode=2).running()
told = {"attempt": 1, "cause": "Application", "message": "no"}
OLD, NEW = {**told, "rank": 1, "process": 3}, {**told, "node": 1, "rank": 3}
WHERE = {
    "on the status page": (
        gang.hears(version=1, attempt=2, incidents=[OLD]),
        gang.hears(version=2, attempt=2, incidents=[NEW]),
    ),
    "in a failure report": (
        gang.reports(0, version=1, at=-10, cause="PeerLost", incident=OLD),
        gang.reports(0, version=2, at=-10, cause="PeerLost", incident=NEW),
    ),
    "in rank 0's last words": (
        gang.fails(0, 1, code=0, message=json.dumps({"progress": {"step": 7, "slowestRank": 1}})),
        gang.fails(0, 1, code=0, message=json.dumps({"version": 2, "progress": {"step": 7, "slowestNode": 1}})),
    ),
}


@pytest.mark.parametrize(("first", "second"), WHERE.values(), ids=WHERE)
def test_the_status_is_the_same_whichever_version_is_read(first: Any, second: Any) -> None:
    status = second.decided().status
    assert first.decided().status == status
    assert (status.last_failure, status.progress) != (None, None)
