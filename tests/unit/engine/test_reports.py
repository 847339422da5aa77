"""Reading what a supervisor says: all that this version understands, and nothing that could do harm."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from ddpjob_operator.api import Cause, ConditionType, RequestState
from ddpjob_operator.api.schema import status_schema
from ddpjob_operator.engine import Phase, ReportedStraggler, Stall, SupervisorReport, parse_report, with_read_error
from ddpjob_operator.engine.foreign import attempt_of, count_of
from ddpjob_operator.engine.incidents.facts import Facts
from ddpjob_operator.engine.reports import ReportedRequest
from ddpjob_operator.text.foreign_json import parsed_object
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from .builders import START, Moment, a_job

JOB = "4a49acf8a6bd727728495d1e541a8408"
"""The fingerprint of `uid-1`."""

DOCUMENT: dict[str, Any] = {
    "version": 2,
    "job": JOB,
    "mark": "7",
    "nodes": 2,
    "procsPerNode": 1,
    "attempt": 3,
    "phase": "Stalled",
    "since": "2026-01-01T11:59:00.250Z",
    "firstStepSeen": True,
    "missing": [1],
    "inPlaceRestarts": 2,
    "incidents": [
        {
            "attempt": 2,
            "time": "2026-01-01T11:58:00.000Z",
            "node": 1,
            "rank": 3,
            "cause": "OutOfMemory",
            "exitCode": 137,
            "signal": 9,
            "exception": None,
            "message": "killed by SIGKILL",
            "step": 120,
            "stepsSinceRestart": 20,
            "tied": True,
            "consequences": 3,
            "consequenceNodes": [0],
        }
    ],
    "progress": {
        "attempt": 3,
        "since": "2026-01-01T11:59:30.000Z",
        "firstStep": 101,
        "begins": "FromCheckpoint",
        "recounts": False,
        "activity": "Evaluating",
        "activityTime": "2026-01-01T11:59:58Z",
        "lossNotFiniteSinceStep": None,
        "epoch": 1,
        "step": 120,
        "totalSteps": 400,
        "percent": 30.0,
        "etaSeconds": 56,
        "loss": -0.31,
        "samplesPerSecond": 1234.5,
        "lastStepTime": "2026-01-01T12:00:00Z",
        "stepSeconds": 0.02,
        "stallLimitSeconds": 480.0,
        "slowestNode": 1,
    },
    "checkpoint": {"step": 100, "time": "2026-01-01T11:59:59.000Z"},
    "requestedCheckpoint": {"request": "a", "state": "NotSaved", "message": "no step has finished", "step": None},
    "stall": {"since": "2026-01-01T11:59:30.000Z", "node": 1, "rank": 1, "message": "it is stopped (state T)"},
    "firstStepDelay": {"since": "2026-01-01T11:55:00.000Z", "message": "no step seen for 5 min"},
    "stoppedRanks": {"message": "rank 1 is stopped (SIGSTOP)"},
    "hold": {"message": "held: train.py runs"},
    "stragglers": [{"node": 1, "rank": 1, "slowdown": 1.81}],
    "ranks": [{"rank": 1}],
    "memory": {"zygotePssBytes": 1},
}


def hear(**other: Any) -> SupervisorReport | None:
    return parse_report(DOCUMENT | other, START, uid="uid-1", pod="digits-0")


def report(**other: Any) -> SupervisorReport:
    said = hear(**other)
    assert said is not None
    return said


def test_a_document_is_read_as_it_is_meant() -> None:
    assert report() == SupervisorReport(
        at=START,
        attempt=3,
        phase=Phase.STALLED,
        since=datetime(2026, 1, 1, 11, 59, 0, 250_000, UTC),
        missing=(1,),
        incidents=(
            Facts(
                attempt=2,
                time=START - timedelta(minutes=2),
                node=1,
                cause=Cause.OUT_OF_MEMORY,
                rank=3,
                exit_code=137,
                signal="SIGKILL",
                message="killed by SIGKILL",
                step=120,
                steps_since_restart=20,
                tied=True,
                consequences=3,
                consequence_nodes=(0,),
            ),
        ),
        progress=report().progress,
        checkpoint=report().checkpoint,
        requested=ReportedRequest("a", RequestState.NOT_SAVED, None, "no step has finished"),
        stall=Stall(START - timedelta(seconds=30), 1, "it is stopped (state T)"),
        delay="no step seen for 5 min",
        stopped="rank 1 is stopped (SIGSTOP)",
        hold="held: train.py runs",
        stragglers=(ReportedStraggler(1, 1.8),),
        pod="digits-0",
    )
    progress = report().progress
    assert progress is not None
    assert (progress.loss, progress.samples_per_second, progress.step_seconds) == (-0.31, 1234.5, 0.02)
    assert (progress.slowest_node, progress.stall_limit_seconds) == (1, 480.0)
    assert progress.last_step_time == START
    assert (progress.activity, progress.activity_time) == ("Evaluating", START - timedelta(seconds=2))
    assert (progress.attempt, progress.first_step, progress.begins, progress.since) == (
        *(3, 101, "FromCheckpoint"),
        START - timedelta(seconds=30),
    )


LOSSES: dict[str, tuple[float | None, str | None]] = {
    "0.5": (0.5, None),
    "-3": (-3.0, None),
    "null": (None, None),
    "true": (None, None),
    '"0.5"': (None, None),
    '"low"': (None, None),
    f'"{"nan" * 50_000}"': (None, None),
    "[NaN]": (None, None),
    "NaN": (None, "NaN"),
    '"NaN"': (None, "NaN"),
    '"nan"': (None, "NaN"),
    '"-nan"': (None, "NaN"),
    "Infinity": (None, "Infinity"),
    '"inf"': (None, "Infinity"),
    '"+Inf"': (None, "Infinity"),
    "1e400": (None, "Infinity"),
    "1" + "0" * 400: (None, "Infinity"),
    "-Infinity": (None, "-Infinity"),
    '"-infinity"': (None, "-Infinity"),
    "-1e400": (None, "-Infinity"),
}
"""A loss as a page may have it: its number, or the word for one that is not finite."""


@pytest.mark.parametrize(("content", "expected"), LOSSES.items(), ids=lambda value: str(value)[:20])
def test_a_loss_that_is_not_finite_is_read_in_every_form_that_json_may_have_of_it(
    content: str, expected: tuple[float | None, str | None]
) -> None:
    progress = report(progress=parsed_object(f'{{"step": 7, "loss": {content}}}')).progress
    assert progress is not None
    assert (progress.step, progress.loss, progress.loss_not_finite) == (7, *expected)
    assert json.loads(json.dumps(progress.to_dict(), allow_nan=False))


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        "no",
        {},
        {"job": "another", "attempt": 1},
        {"job": JOB},
        DOCUMENT | {"job": "uid-1"},
        DOCUMENT | {"attempt": 0},
        DOCUMENT | {"attempt": 2**31 + 1},
    ],
    ids=repr,
)
def test_what_is_none_of_the_jobs_says_nothing(document: Any) -> None:
    assert parse_report(document, START, uid="uid-1", pod="digits-0") is None


def test_moments_are_told_by_the_clock_of_who_reads_where_the_page_tells_its_own() -> None:
    ahead = report(now="2026-01-01T12:01:30.123Z")
    assert ahead.since == report().since - timedelta(seconds=90)
    assert ahead.incidents[0].time == report().incidents[0].time - timedelta(seconds=90)
    assert ahead.stall is not None
    assert ahead.stall.since == START - timedelta(seconds=120)
    assert ahead.progress is not None
    assert ahead.progress.last_step_time == START - timedelta(seconds=90)


@pytest.mark.parametrize("now", ["2026-01-01T11:59:59.600Z", "2019-01-01T12:00:00Z!", 7, None])
def test_what_an_answer_takes_is_no_difference_of_clocks_nor_is_nonsense(now: Any) -> None:
    assert report(now=now) == report()


def test_a_phase_whose_beginning_nobody_tells_began_when_it_was_heard_first() -> None:
    follower = {"job": JOB, "attempt": 3, "phase": "Gathering", "coordinator": "10.0.1.0:29502"}
    first = parse_report(follower, START, uid="uid-1", pod="digits-1")
    again = parse_report(follower, START + timedelta(seconds=9), uid="uid-1", pod="digits-1", last=first)
    other = parse_report(
        follower | {"phase": "Running"}, START + timedelta(seconds=9), uid="uid-1", pod="digits-1", last=first
    )
    assert first is not None
    assert again is not None
    assert other is not None
    assert (first.since, again.since, other.since) == (START, START, START + timedelta(seconds=9))


MISSHAPEN: dict[str, tuple[dict[str, Any], str, Any]] = {
    "a phase of another version": ({"phase": "Dreaming"}, "phase", Phase.UNKNOWN),
    "a step that no reader could hold": ({"checkpoint": {"step": 2**53 + 1}}, "checkpoint", None),
    "an attempt that no counter could": (
        {"incidents": [{"attempt": 2**31 + 1, "node": 0}]},
        "incidents",
        (),
    ),
    "no phase": ({"phase": None}, "phase", Phase.UNKNOWN),
    "a moment of no zone": ({"since": "2026-01-01T12:00:00"}, "since", START),
    "a moment far ahead": ({"since": "9999-12-31T23:59:59Z"}, "since", START),
    "a moment long ago": ({"since": "0001-01-01T00:00:00Z"}, "since", START),
    "ranks that cannot be": ({"missing": [-1, 4096, "1", True, 2, 2]}, "missing", (2,)),
    "more ranks than are named": ({"missing": list(range(20))}, "missing", tuple(range(8))),
    "incidents that are none": (
        {"incidents": [1, {}, {"attempt": 1}, {"attempt": 0, "node": 0}, {"attempt": 1, "node": 4096}]},
        "incidents",
        (),
    ),
    "progress that is none": ({"progress": "fast"}, "progress", None),
    "a checkpoint without a step": ({"checkpoint": {"time": "now"}}, "checkpoint", None),
    "stragglers that are none": ({"stragglers": [{"node": 1}, {"slowdown": 2}, 3]}, "stragglers", ()),
    "the slowest process of each node": (
        {"stragglers": [{"node": 1, "slowdown": 2}, {"node": 0, "slowdown": 3}, {"node": 1, "slowdown": 2.5}]},
        "stragglers",
        (ReportedStraggler(0, 3.0), ReportedStraggler(1, 2.5)),
    ),
}


@pytest.mark.parametrize(("other", "field", "value"), MISSHAPEN.values(), ids=MISSHAPEN)
def test_what_is_not_understood_is_left_out(other: dict[str, Any], field: str, value: Any) -> None:
    assert getattr(report(**other), field) == value


def test_a_cause_that_is_not_a_programs_to_claim_is_the_program() -> None:
    causes = [
        {"attempt": attempt, "node": 0, "cause": cause} for attempt, cause in enumerate(["NodeLost", "No", 7], 1)
    ]
    assert [one.cause for one in report(incidents=causes).incidents] == [Cause.APPLICATION] * 3


def test_incidents_come_in_the_order_of_their_attempts_and_once() -> None:
    told = [{"attempt": attempt, "node": 0, "message": str(attempt)} for attempt in (2, 1, 2)]
    assert [one.attempt for one in report(incidents=told).incidents] == [1, 2]


@pytest.mark.parametrize(("beyond", "known"), [(0, (4095, 262_143, 255, "SIG64")), (1, (4095, None, None, None))])
def test_numbers_of_an_incident_have_bounds(beyond: int, known: tuple[Any, ...]) -> None:
    told = {"rank": 262_143 + beyond, "exitCode": 255 + beyond, "signal": 64 + beyond}
    (incident,) = report(incidents=[{"attempt": 1, "node": 4095, **told}]).incidents
    assert (incident.node, incident.rank, incident.exit_code, incident.signal) == known


def test_numbers_that_json_does_not_have_are_left_out() -> None:
    progress = report(
        progress={"step": 5, "loss": float("nan"), "samplesPerSecond": float("inf"), "percent": 10**400}
    )
    assert progress.progress is not None
    assert (progress.progress.loss, progress.progress.samples_per_second, progress.progress.percent) == (None,) * 3


NUMBERS = (
    *("epoch", "step", "stepsSinceRestart", "totalSteps", "etaSeconds", "percent", "samplesPerSecond"),
    *("stepSeconds", "stallLimitSeconds"),
)


@pytest.mark.parametrize(("number", "known"), [(0, True), (-1, False)])
def test_zero_is_a_number_and_less_is_none(number: int, known: bool) -> None:  # noqa: FBT001  A table.
    progress = report(progress=dict.fromkeys(NUMBERS, number)).progress
    assert progress is not None
    said = progress.model_dump(by_alias=True)
    assert [said[name] for name in NUMBERS] == [number if known else None] * len(NUMBERS)


def test_a_message_is_bounded_in_bytes() -> None:
    (incident,) = report(incidents=[{"attempt": 1, "node": 0, "exception": "ä" * 600, "message": "no"}]).incidents
    assert len(incident.message.encode()) == 512


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.datetimes().map(str),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
NESTED = sorted({*DOCUMENT, *DOCUMENT["progress"], *DOCUMENT["incidents"][0], *DOCUMENT["stall"]})
STATUS = Draft202012Validator(status_schema())
RUNNING = a_job(nodes=2).running()
TRAINED = RUNNING.hears(progress={"attempt": 1, "firstStep": 1, "step": 5000}).settled()


@given(
    st.dictionaries(st.sampled_from(NESTED), JSON, max_size=8),
    st.sampled_from([*DOCUMENT, None]),
    st.sampled_from([RUNNING, TRAINED]),
)
def test_whatever_it_says_it_can_be_written_into_a_status(
    other: dict[str, Any], place: str | None, before: Moment
) -> None:
    if place is None:
        said = DOCUMENT | other | {"job": JOB}
    else:
        inside = DOCUMENT[place]
        wrong = [inside[0] | other] if isinstance(inside, list) and isinstance(inside[0], dict) else other
        said = DOCUMENT | {place: wrong}
    moment = before.hears(**{key: value for key, value in said.items() if key not in {"job", "phase", "since"}})
    status = moment.settled().status.to_dict()
    STATUS.validate(status)
    json.dumps(status, allow_nan=False)


def test_who_cannot_be_asked_keeps_what_he_said_and_since_when_he_is_silent() -> None:
    once = with_read_error(report(), "refused", START + timedelta(seconds=1), pod="digits-0")
    again = with_read_error(once, "timed out", START + timedelta(seconds=9), pod="digits-0")
    assert (again.attempt, again.progress, again.at) == (3, report().progress, START)
    assert (again.error, again.error_since) == ("timed out", START + timedelta(seconds=1))


def test_another_pod_that_cannot_be_asked_has_said_nothing() -> None:
    other = with_read_error(report(), "refused", START, pod="digits-0-younger")
    assert (other.attempt, other.progress, other.error_since) == (0, None, START)
    assert not a_job(nodes=2).running().hears_nothing("refused").settled().status.bookkeeping.supervised
    assert other.pod == "digits-0-younger"


def test_a_gang_that_was_heard_of_is_remembered_as_supervised() -> None:
    moment = a_job(nodes=2).running().hears().settled()
    assert moment.status.bookkeeping.supervised
    assert not moment.fails(0).decided().status.bookkeeping.supervised
    assert moment.status.condition(ConditionType.TRAINING_STALLED) is None


@pytest.mark.parametrize(
    ("value", "count", "attempt"),
    [
        (0, 0, None),
        (1, 1, 1),
        (2**31, 2**31, 2**31),
        (2**31 + 1, 2**31 + 1, None),
        (2**53, 2**53, None),
        (2**53 + 1, None, None),
        (-1, None, None),
        (True, None, None),
        (1.0, None, None),
        ("1", None, None),
        (None, None, None),
    ],
)
def test_a_number_of_others_is_whole_and_within_bounds(value: object, count: int | None, attempt: int | None) -> None:
    assert (count_of(value), attempt_of(value)) == (count, attempt)
