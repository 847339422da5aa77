"""The result of a job, which rank 0's supervisor leaves as the last words of its pod."""

import json
from typing import Any

import pytest
from ddpjob_operator.api import ConditionType
from ddpjob_operator.api.status import MAX_RESULT

from .builders import Moment, a_job

two = a_job(nodes=2).running().hears().settled()


def left(message: str, moment: Moment = two) -> Moment:
    return moment.fails(0, code=0, message=message).succeeds(1).settled()


def result(**words: Any) -> tuple[str | None, str | None]:
    status = left(json.dumps(words)).status
    assert status.succeeded
    return status.result, status.result_place


def test_a_result_stands_in_the_status_and_outlives_the_pods() -> None:
    ended = left('{"version": 2, "result": {"accuracy": 0.93, "of": "größe"}}')
    assert ended.status.result == '{"accuracy":0.93,"of":"größe"}'
    assert ended.gone().settled().status.result == ended.status.result


def test_a_result_that_is_null_is_told_from_none() -> None:
    assert result(result=None) == ("null", None)
    assert result() == (None, None)


@pytest.mark.parametrize(("letters", "kept"), [(1023, True), (1024, False)])
def test_a_status_holds_2_kib_of_a_result(letters: int, *, kept: bool) -> None:
    found, _ = result(result="ü" * letters)
    assert found == (f'"{"ü" * letters}"' if kept else None)


def test_a_larger_result_is_named_by_its_place_in_the_history() -> None:
    place = "team/train/1b9c/node-00000/1796009007123-00001-0a1b2c3d/result-000001-00001-1796009007123.jsonl"
    assert result(resultPlace=place) == (None, place)


@pytest.mark.parametrize(
    "words",
    [
        {"result": "x" * MAX_RESULT},
        {"result": "é" * (MAX_RESULT // 2)},
        {"result": float("nan")},
        {"result": "\ud800"},
        {"resultPlace": "../../other/secret"},
        {"resultPlace": "/etc/passwd"},
        {"resultPlace": "a/../b"},
        {"resultPlace": "a//b"},
        {"resultPlace": "a" * 1025},
        {"resultPlace": 7},
    ],
    ids=str,
)
def test_what_a_status_cannot_hold_is_left_out(words: dict[str, Any]) -> None:
    assert result(**words) == (None, None)


def test_a_job_that_fails_after_rank_0_has_finished_has_no_result() -> None:
    ended = (
        a_job(nodes=2, restart={"maxRestarts": 0})
        .running()
        .hears()
        .fails(0, code=0, message='{"result": 1}')
        .settled()
    )
    assert ended.status.result == "1"
    failed = ended.fails(1).settled()
    assert failed.status.is_true(ConditionType.FAILURE_TARGET)
    assert failed.status.result is None


def test_a_result_outlives_rank_0s_pod_while_other_nodes_finish() -> None:
    ended = two.fails(0, code=0, message='{"result": 1}').settled().vanishes(0).settled()
    assert ended.succeeds(1).settled().status.result == "1"


def test_a_gang_that_starts_again_has_no_result_of_the_gang_before() -> None:
    ended = two.fails(0, code=0, message='{"result": 1}').settled()
    assert ended.status.result == "1"
    again = ended.fails(1).restarted()
    assert again.status.result is None
    assert left('{"result": 2}', again).status.result == "2"
