"""What is read of jobs that a release with v1alpha1 has begun."""

from typing import Any

import pytest
from ddpjob_operator.api import ConditionType, DDPJob
from ddpjob_operator.api.status import UNSEEN

SINCE = "2026-11-01T12:00:00.000000Z"
INCIDENT = {
    "time": SINCE,
    "attempt": 1,
    "node": 0,
    "pod": "digits-0-abcde",
    "cause": "Application",
    "rule": "default",
}


def condition(kind: str) -> dict[str, Any]:
    said = {"reason": "Word", "message": "Words", "lastTransitionTime": SINCE, "observedGeneration": 1}
    return {"type": kind, "status": "True", **said}


def a_former_job(end: str = "Running", **status: Any) -> dict[str, Any]:
    """As the API server hands it out, and as it stands in a run directory."""
    trainer = {"name": "trainer", "image": "x"}
    return {
        "metadata": {"name": "digits"},
        "spec": {
            "procsPerNode": "Auto",
            "masterPort": 12345,
            "checkpoint": {"path": "/c", "everySeconds": "Auto"},
            "restart": {"maxRestarts": 2, "rules": [{"exitCodes": [3, "64-78"], "action": "Fail"}]},
            "template": {"spec": {"containers": [trainer]}},
        },
        "status": {
            "observedGeneration": 1,
            "state": "Running",
            "ready": "1/2",
            "incarnations": {"default": 3},
            "history": [INCIDENT],
            "conditions": [condition(end)],
            **status,
        },
    }


@pytest.mark.parametrize(
    ("end", "now"), [("Succeeded", ConditionType.COMPLETE), ("Failed", ConditionType.FAILED)], ids=str
)
def test_what_has_finished_stays_finished_and_keeps_what_people_look_at(end: str, now: ConditionType) -> None:
    status = DDPJob.from_dict(a_former_job(end)).status
    assert status.finished
    assert status.is_true(now)
    assert (status.display.ready, [one.cause for one in status.incidents]) == ("1/2", ["Application"])


@pytest.mark.parametrize("status", [{}, UNSEEN], ids=["none", "that of the type"])
def test_one_that_no_operator_of_before_has_looked_at_is_told_by_its_spec(status: dict[str, Any]) -> None:
    assert DDPJob.from_dict(a_former_job() | {"status": status}).status.former


def test_it_is_read_no_second_time_once_it_was_written_in_the_words_of_this_version() -> None:
    once = DDPJob.from_dict(a_former_job("Failed"))
    books = once.status.bookkeeping.model_copy(update={"version": "v1alpha1"})
    written = once.status.model_copy(update={"bookkeeping": books, "incidents": once.status.incidents * 2})
    again = DDPJob.from_dict(a_former_job() | {"status": written.to_dict()})
    assert again.status == written
    assert again.status.former


def test_of_what_lives_nothing_that_was_remembered_is_lost() -> None:
    job = DDPJob.from_dict(a_former_job())
    assert (job.status.former, job.status.finished) == (True, False)
    written = job.status.to_dict()
    assert (written["incarnations"], written["history"]) == ({"default": 3}, [INCIDENT])


def test_its_spec_can_be_read_without_what_has_another_type_now() -> None:
    spec = DDPJob.from_dict(a_former_job()).spec
    assert (spec.restart.max_restarts, spec.restart.rules, spec.procs_per_node) == (2, (), None)
    assert spec.checkpoint is not None
    assert spec.checkpoint.path == "/c"


@pytest.mark.parametrize("status", [{}, UNSEEN, {"observedGeneration": 1, "bookkeeping": {}}], ids=str)
def test_other_jobs_are_none(status: dict[str, Any]) -> None:
    job = a_former_job() | {"status": status}
    job["spec"] = {"template": job["spec"]["template"]}
    assert not DDPJob.from_dict(job).status.former


def test_a_job_of_another_controller_is_none_whatever_that_writes() -> None:
    job = a_former_job()
    rules = [{"exitCodes": {"operator": "In", "values": [3]}, "action": "Fail"}]
    spec = {"managedBy": "example.com/other", "restart": {"rules": rules}, "template": job["spec"]["template"]}
    read = DDPJob.from_dict(job | {"spec": spec})
    assert not read.status.former
    assert read.spec.restart.rules
