"""What remains on the screen when a job has ended."""

import io
from typing import Any

import pytest
from ddpjob_operator.api import DDPJob
from ddpjob_operator.cli.progress import Progress, Report
from ddpjob_operator.cli.screen import Screen
from ddpjob_operator.cli.summary import summarise

FAILURE = {"time": "2026-01-01T00:00:00Z", "attempt": 1, "rank": 1, "pod": "digits-1-x", "cause": "Application"}
FAILED = {
    "type": "Failed",
    "status": "True",
    "message": "x",
    "observedGeneration": 1,
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


def summary(state: str, message: str, progress: Progress | None = None, **status: Any) -> str:
    template = {"spec": {"containers": [{"name": "trainer", "image": "any"}]}}
    said = {"state": state, "message": message, "restarts": 1, "lastFailure": {**FAILURE, "message": "no"}, **status}
    job = DDPJob.from_dict({"metadata": {"name": "digits"}, "spec": {"template": template}, "status": said})
    said_on = io.StringIO()
    summarise(Screen(file=said_on, width=200), job, progress or Progress(), checkpoint=None, logs="logs")
    return said_on.getvalue()


def test_why_a_job_failed_is_told_once() -> None:
    said = summary("Failed", "Rank 1 failed: Application: no", conditions=[{**FAILED, "reason": "Application"}])
    assert (said.count("rank 1") + said.count("Rank 1"), "restarts   1\n" in said) == (1, True), said


@pytest.mark.parametrize("reason", ["DeadlineExceeded", ""])
def test_what_was_overcome_is_told_beside_how_the_job_ended(reason: str) -> None:
    ended = [{**FAILED, "reason": reason}] if reason else []
    said = summary("Failed" if reason else "Succeeded", "2 nodes finished", conditions=ended)
    assert "restarts   1 (last: rank 1, Application: no)" in said


def test_a_program_that_says_finished_in_its_own_words_is_summed_up_without_them() -> None:
    said = summary("Succeeded", "2 nodes finished", Progress(finished=Report("finished", {"epoch": "1"})))
    assert "throughput" not in said


def test_the_step_is_the_supervisors_where_no_line_told_one() -> None:
    assert "step       120\n" in summary("Succeeded", "2 nodes finished", progress={"step": 120})
