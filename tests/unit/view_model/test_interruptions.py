"""What interrupted a run: told by the job's history and by the starts that the metrics have."""

from datetime import timedelta
from pathlib import Path

import pytest
from ddpjob_operator.api import Incident
from ddpjob_operator.local.record_files import read
from ddpjob_operator.view_model import Records, interruptions_of

from tests.unit.report.lines import ZERO, line, write


def a_history(*incidents: Incident) -> tuple[Incident, ...]:
    """As a status has it: the newest first."""
    return incidents[::-1]


def an_incident(attempt: int, at: float, step: int | None = None) -> Incident:
    return Incident(
        time=ZERO + timedelta(seconds=at),
        attempt=attempt,
        node=1,
        rank=1,
        pod="digits-1",
        cause="Application",
        message="out of luck",
        step=step,
    )


def three_starts(tmp_path: Path) -> Records:
    return read(
        write(
            tmp_path / "metrics.jsonl",
            line("started", 1, 0, at=0),
            line("progress", 1, 40, at=4),
            line("started", 2, 30, at=6),
            line("progress", 2, 60, at=9),
            line("started", 3, 50, at=12),
        )
    )


def test_an_incident_tells_what_failed_and_from_where_training_went_on(tmp_path: Path) -> None:
    failed, again = interruptions_of(a_history(an_incident(1, at=5)), three_starts(tmp_path))
    assert (failed.number, failed.attempt, failed.cause, failed.message) == (
        1,
        1,
        "rank 1: Application",
        "out of luck",
    )
    assert (failed.step, failed.resumed) == (40, 30)
    assert (again.number, again.attempt, again.cause, again.step, again.resumed) == (2, 2, "started again", 60, 50)


def test_the_last_failure_of_a_job_that_has_ended_leads_nowhere(tmp_path: Path) -> None:
    *_, last = interruptions_of(
        a_history(an_incident(1, at=5), an_incident(2, at=10, step=65), an_incident(3, at=13)), three_starts(tmp_path)
    )
    assert (last.number, last.attempt, last.resumed) == (3, 3, None)


def test_the_step_that_the_failed_rank_told_itself_goes_before_what_was_recorded(tmp_path: Path) -> None:
    assert interruptions_of(a_history(an_incident(1, at=5, step=43)), three_starts(tmp_path))[0].step == 43


def test_without_a_job_the_starts_alone_tell_of_interruptions(tmp_path: Path) -> None:
    assert [one.cause for one in interruptions_of((), three_starts(tmp_path))] == ["started again", "started again"]


@pytest.mark.parametrize(
    ("error", "cause"), [("StoppedOnRequest", "stopped on request"), ("PeerLostError", "rank 0: PeerLostError")]
)
def test_where_rank_0_could_say_why_a_start_ended_that_is_the_cause(tmp_path: Path, error: str, cause: str) -> None:
    ended = line("ended", 1, 41, at=5, error=error, message="in training at step 41")
    file = write(tmp_path / "metrics.jsonl", line("started", 1, 0), ended, line("started", 2, 30, at=60))
    (only,) = interruptions_of((), read(file))
    assert (only.cause, only.message, only.step) == (cause, "in training at step 41", 41)
    assert only.failed == (error != "StoppedOnRequest")
    assert only.time == ZERO + timedelta(seconds=5)


def test_without_metrics_the_history_alone_tells_of_them() -> None:
    (only,) = interruptions_of(a_history(an_incident(1, at=5)), Records())
    assert (only.step, only.resumed) == (None, None)


def test_training_that_goes_on_after_its_end_was_not_interrupted(tmp_path: Path) -> None:
    file = write(tmp_path / "metrics.jsonl", line("started", 0, 0), line("finished", 0, 50), line("started", 0, 50))
    assert interruptions_of((), read(file)) == []


def test_a_rank_that_failed_after_rank_0_had_finished_interrupted_the_run(tmp_path: Path) -> None:
    failed = line("incident", 1, 50, at=5, incident={"rank": 1, "cause": "SIGKILL", "message": "rank 1 was killed"})
    starts = line("started", 1, 0), line("finished", 1, 50, at=4), failed, line("started", 2, 30, at=9)
    (only,) = interruptions_of((), read(write(tmp_path / "metrics.jsonl", *starts)))
    assert (only.cause, only.message, only.resumed) == ("rank 1: SIGKILL", "rank 1 was killed", 30)


def test_a_stop_that_was_asked_for_is_no_failure(tmp_path: Path) -> None:
    """Neither that of an incident, nor a start of which nothing says that the one before went wrong."""
    stopped = an_incident(1, at=5).model_copy(update={"cause": "Stopped"})
    told, again = interruptions_of(a_history(stopped), three_starts(tmp_path))
    assert (told.failed, again.failed) == (False, False)
    assert interruptions_of(a_history(an_incident(1, at=5)), three_starts(tmp_path))[0].failed
