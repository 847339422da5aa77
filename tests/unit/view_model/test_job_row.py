"""What a table shows of a job, from whatever it is known."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from ddpjob_operator.view_model import (
    JobKey,
    JobRow,
    Origin,
    job_row,
    kept_row,
    newest_first,
    told_states,
    unreadable_row,
)

from tests.unit.view_model.jobs import NOW, condition, job_with, moment

KEY = JobKey(Origin.CLUSTER, "team", "digits", "u")


def row_of(status: dict[str, Any], **known: Any) -> JobRow:
    return job_row(job_with(status), KEY, NOW, **known)


TRAINING: dict[str, Any] = {
    "state": "Running",
    "attempt": 2,
    "startTime": moment(-1000),
    "display": {"ready": "2/2", "progress": "30%", "eta": "5m"},
    "bookkeeping": {"supervised": True, "steps": {"earliest": 1, "furthest": 800}},
    "progress": {
        "attempt": 2,
        "step": 800,
        "totalSteps": 2600,
        "percent": 30.8,
        "etaSeconds": 300,
        "loss": 0.12345,
        "samplesPerSecond": 640.0,
        "stepSeconds": 1.0,
        "lastStepTime": moment(-1),
    },
    "restarts": 1,
}


def test_a_job_that_trains_is_told_in_figures() -> None:
    row = row_of(TRAINING)
    assert (row.state, row.ready, row.progress, row.eta, row.loss) == ("Running", "2/2", "30%", "5m", "0.1235")
    assert (row.percent, row.eta_seconds, row.samples_per_second, row.restarts) == (30.8, 300, 640.0, 1)
    assert (row.why, row.finished, row.made) == ("", False, NOW - timedelta(seconds=1000))


@pytest.mark.parametrize(
    ("case", "status", "share"),
    [
        ("800 steps of a second in 1,000 seconds", {}, 0.8),
        ("no step yet", {"progress": None}, None),
        ("resumed, so nobody knows how long it ran", {"conditions": [condition("Suspended", "False")]}, None),
        ("counted again in each epoch", {"progress": {**TRAINING["progress"], "recounts": True}}, None),
        ("no time has passed", {"startTime": moment(0)}, None),
        ("the last steps were slower than the others", {"startTime": moment(-500)}, 1.0),
        ("an end, after which no time counts", {"completionTime": moment(-200)}, 1.0),
        ("began in the middle", {"bookkeeping": {"steps": {"earliest": 401, "furthest": 800}}}, 0.4),
    ],
)
def test_the_goodput_is_the_share_of_time_in_which_new_steps_finished(
    case: str, status: dict[str, Any], share: float | None
) -> None:
    assert row_of(TRAINING | status).goodput == share, case


@pytest.mark.parametrize(
    ("case", "status", "words"),
    [
        ("for pods", {"state": "Starting", "message": "2 of 4 pods are scheduled"}, "2 of 4 pods are scheduled"),
        ("for a queue", {"state": "Queued", "message": "waits in team-a"}, "waits in team-a"),
        (
            "for the first step",
            {"progress": None, "conditions": [condition("Running")]},
            "waiting for the first step of attempt 2 (30s)",
        ),
        (
            "for a rank",
            {"stragglers": [{"node": 3, "nodeName": "n3", "slowdown": 2.5}]},
            "waits for rank 3 on n3 (2.5 x)",
        ),
        ("for a save", {"progress": {**TRAINING["progress"], "activity": "Saving"}}, "saving"),
        ("for nothing, because it has ended", {"message": "no", "conditions": [condition("Complete")]}, ""),
        ("for its user", {"state": "Suspended", "message": "suspended"}, ""),
    ],
)
def test_a_row_says_whom_a_job_waits_for(case: str, status: dict[str, Any], words: str) -> None:
    assert row_of(TRAINING | status).why == words, case


@pytest.mark.parametrize(
    ("state", "why"),
    [("Failed", "it says"), ("Queued", "it says"), ("Succeeded", ""), ("Suspended", ""), ("Running", "")],
)
def test_a_row_says_why_a_job_does_not_go_on(state: str, why: str) -> None:
    ends = {"Failed": [condition("Failed")], "Succeeded": [condition("Complete")]}.get(state, [])
    row = row_of(TRAINING | {"state": state, "message": "it says", "conditions": ends, "completionTime": moment(-9)})
    assert (row.why, row.ended) == (why, NOW - timedelta(seconds=9))


INCIDENT = {
    "attempt": 1,
    "node": 1,
    "pod": "x",
    "time": moment(-9),
    "cause": "Application",
    "message": "ValueError: no",
}


@pytest.mark.parametrize(
    ("state", "message", "why"),
    [
        (
            "Failed",
            "Rank 1 failed: Application: ValueError: no; no restarts left",
            "ValueError: no; rank 1 failed; no restarts left",
        ),
        (
            "Restarting",
            "Stopping 1 pod: Rank 1 failed: Application: ValueError: no (1 more rank failed with it)",
            "ValueError: no; stopping 1 pod: rank 1 failed (1 more rank failed with it)",
        ),
        ("Failed", "It did not end within 60 s", "It did not end within 60 s"),
        ("Failed", "Rank 1 failed: Application: ValueError: other", "Rank 1 failed: Application: ValueError: other"),
    ],
)
def test_of_a_failure_a_row_says_first_what_happened_and_then_to_whom(state: str, message: str, why: str) -> None:
    row = row_of({"state": state, "message": message, "incidents": [INCIDENT]})
    assert (row.why, row.message) == (why, message)


def test_a_cause_that_is_not_the_programs_own_stays_before_the_message() -> None:
    killed = INCIDENT | {"cause": "OutOfMemory", "message": "killed by SIGKILL"}
    told = {"state": "Failed", "message": "Rank 1 failed: OutOfMemory: killed by SIGKILL", "incidents": [killed]}
    assert row_of(told).why == "OutOfMemory: killed by SIGKILL; rank 1 failed"


def test_a_secret_in_the_message_of_an_exception_is_masked() -> None:
    row = row_of({"state": "Failed", "message": "Rank 1 failed: Application: no login with password=hunter2hunter2"})
    assert row.message == row.why == "Rank 1 failed: Application: no login with password=•••"


def test_what_a_person_has_to_look_at_is_counted_first() -> None:
    states = ["Running", "Running", "Queued", "Failed", "Unknown", "Stalled"]
    rows = [row_of({"state": state}) if state != "Unknown" else unreadable_row(KEY, "why") for state in states]
    assert [state for state, _ in told_states(rows)] == ["Failed", "Stalled", "Unknown", "Running", "Queued"]


def test_a_hold_waits_for_no_step_because_perhaps_no_program_runs() -> None:
    held = {"name": "trainer", "image": "any", "command": ["ddpjob-supervise", "--hold", "60"]}
    status = TRAINING | {"progress": None, "conditions": [condition("Running")]}
    assert job_row(job_with(status, template={"spec": {"containers": [held]}}), KEY, NOW).why == ""


def test_what_has_ended_has_no_time_left_and_no_speed() -> None:
    row = row_of(TRAINING | {"state": "Succeeded", "conditions": [condition("Complete")]})
    assert (row.eta, row.eta_seconds, row.samples_per_second, row.finished) == ("", None, None, True)


def test_a_text_is_one_line_without_control_characters_and_not_too_long() -> None:
    row = row_of({"state": "Pending", "message": "a\x1b[2J\nb\u202e[bold]"})
    assert row.message == row.why == r"a\x1b[2J\nb\u202e[bold]"
    assert len(row_of(TRAINING, loss="9" * 5000).loss) == 1025


def test_a_loss_from_the_log_is_preferred() -> None:
    assert row_of(TRAINING, loss="0.5").loss == "0.5"


@pytest.mark.parametrize(
    ("result", "began", "state", "made"),
    [("Failed", 60.0, "Failed", datetime(1970, 1, 1, 0, 1, tzinfo=UTC)), ("", 0.0, "Unknown", None)],
)
def test_a_history_has_a_row_too(result: str, began: float, state: str, made: datetime | None) -> None:
    row = kept_row(KEY, result, began)
    assert (row.state, row.made, row.finished) == (state, made, bool(result))


def test_unfinished_jobs_come_first_and_of_them_the_newest() -> None:
    ended = {"conditions": [condition("Complete")]}
    lately = ended | {"completionTime": moment(-2)}
    given = {"old": (-9, {}), "new": (-1, {}), "ended": (-3, ended), "unknown": (None, {}), "lately": (-99, lately)}
    rows = [
        job_row(
            job_with(status),
            JobKey(Origin.HERE, "", name, ""),
            NOW,
            None if seconds is None else NOW + timedelta(seconds=seconds),
        )
        for name, (seconds, status) in given.items()
    ]
    assert [row.name for row in sorted(rows, key=newest_first)] == ["new", "old", "unknown", "lately", "ended"]


NEEDY: dict[str, dict[str, Any]] = {
    "it has failed": {"state": "Failed", "conditions": [condition("Failed")]},
    "it waits": {"state": "Queued"},
    "it stands still": {"state": "Stalled"},
    "it lacks a node": {"display": {"ready": "1/2"}},
    "it was restarted": {"restarts": 1},
    "it was disrupted": {"disruptions": 1},
    "its loss is no number": {"progress": {"loss": "NaN"}},
}


@pytest.mark.parametrize("status", NEEDY.values(), ids=NEEDY)
def test_a_job_needs_a_look_if(status: dict[str, Any]) -> None:
    assert row_of({"state": "Running", "display": {"ready": "2/2"}, **status}).needs_a_look
    if status.get("state") != "Failed":
        assert not row_of({**status, "state": "Succeeded", "conditions": [condition("Complete")]}).needs_a_look


def test_a_job_that_trains_or_is_suspended_needs_no_look() -> None:
    assert not row_of({"state": "Running", "display": {"ready": "2/2"}, "progress": {"loss": 0.5}}).needs_a_look
    assert not row_of({"state": "Suspended"}).needs_a_look
