"""Jobs that come back from a backup without their status: one that had finished does not run again."""

import pytest

from .builders import Moment, a_job, plan
from .tables import Table, rows, verdict

two = a_job(nodes=2, restart={"maxRestarts": 0}).marked("").running()
succeeded = two.succeeds(0, 1).settled()
failed = two.fails(1).settled().gone().settled()
DONE = "The job had finished (Succeeded) and came back without its status: it does not run again"

TABLE: Table = {
    "one that had succeeded": (succeeded.restored(), "", "Succeeded", DONE),
    "one that had failed": (failed.restored(), "", "Failed", DONE.replace("Succeeded", "Failed")),
    "one whose mark is of a newer version": (
        two.restored().marked("Cancelled"),
        *("", "Failed", DONE.replace("Succeeded", "Cancelled")),
    ),
    "one that is suspended": (succeeded.asks(suspend=True).restored(), "", "Succeeded", DONE),
    "one that had not finished starts": (two.restored(), "service +1.0 +1.1", "Pending", "Creating 2 pods"),
}


@rows(TABLE)
def test_a_job_without_its_status(moment: Moment, expected: tuple[str, str, str]) -> None:
    assert verdict(moment) == expected


@pytest.mark.parametrize(("ended", "mark"), [(succeeded, "Succeeded"), (failed, "Failed")])
def test_a_job_is_marked_once_it_has_finished_and_its_status_says_so(ended: Moment, mark: str) -> None:
    assert ended.snapshot.mark == mark
    assert plan(ended.marked("")) == mark
    assert ended.decision.empty


def test_nothing_is_marked_before_the_end_is_written() -> None:
    assert plan(two.succeeds(0, 1)) == ""


def test_where_nobody_marks_jobs_none_is_marked() -> None:
    assert two.marked("").snapshot.mark == ""
    assert a_job().running().succeeds(0).settled().snapshot.mark is None


def test_a_restored_job_says_why_and_expires_like_any_other() -> None:
    ended = a_job(ttlSecondsAfterFinished=60).marked("").running().succeeds(0).settled().restored().settled()
    assert ended.status.reason == "RestoredWithoutStatus"
    assert plan(ended.after(59)) == ""
    assert plan(ended.after(61)) == "-job"


def test_a_mark_ends_no_job_that_has_started() -> None:
    assert two.marked("Failed").decision.empty
