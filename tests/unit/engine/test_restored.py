"""Jobs that come back from a backup without their status: one that had finished does not run again."""

import pytest

from .builders import Moment, a_job, plan
from .tables import Table, rows, verdict

two = a_job(nodes=2, restart={"maxRestarts": 0}).marked("").running()
succeeded = two.succeeds(0, 1).settled()
failed = two.fails(1).settled().gone().settled()
DONE = "The job had finished before it was restored without its status; it does not run again"
OWN = "mz9bf"
OTHERS = "Succeeded 72tth"
BEGINS = "service +1.0 +1.1", "Pending", "Creating 2 pods"

TABLE: Table = {
    "one that had succeeded": (succeeded.restored(), "", "Succeeded", DONE),
    "one that had failed": (failed.restored(), "", "Failed", DONE),
    "one whose mark is of a newer version": (two.restored().marked(f"Cancelled {OWN}"), "Failed", "Failed", DONE),
    "one whose mark somebody has written": (
        *(two.restored().marked(f"{2000 * '!'}\x1b[2J {OWN}"), "Failed", "Failed", DONE),
    ),
    "one that is suspended": (succeeded.asks(suspend=True).restored(), "", "Succeeded", DONE),
    "one that had not finished starts": (two.restored(), *BEGINS),
    "a copy with another name starts": (succeeded.restored().called(name="letters"), *BEGINS),
    "a copy in another namespace starts": (succeeded.restored().called(namespace="others"), *BEGINS),
    "a copy that is suspended waits": (
        succeeded.asks(suspend=True).restored().called(name="letters"),
        *("", "Suspended", "Nothing runs until the job is resumed"),
    ),
    "a mark that does not say whose it is counts for nobody": (two.restored().marked("Succeeded"), *BEGINS),
}


@rows(TABLE)
def test_a_job_without_its_status(moment: Moment, expected: tuple[str, str, str]) -> None:
    assert verdict(moment) == expected


@pytest.mark.parametrize(("ended", "mark"), [(succeeded, "Succeeded"), (failed, "Failed")])
def test_a_job_is_marked_once_it_has_finished_and_its_status_says_so(ended: Moment, mark: str) -> None:
    assert ended.snapshot.mark == f"{mark} {OWN}"
    assert plan(ended.marked("")) == mark
    assert plan(ended.marked(OTHERS)) == mark, "it was copied"
    assert ended.decision.empty


def test_a_mark_that_is_refused_waits_without_another_look_for_it_alone() -> None:
    refused = succeeded.marked("").refused("Forbidden", "no", retry_in=30)
    assert refused.decision.empty
    assert refused.decision.wake_at is None
    assert plan(refused.after(30)) == "Succeeded"


def test_a_job_is_marked_with_the_write_of_its_last_status_and_not_before() -> None:
    assert plan(two.succeeds(0)) == ""
    ended = two.succeeds(0, 1)
    assert (ended.decided().status.finished, plan(ended)) == (True, "Succeeded")


def test_where_nobody_marks_jobs_none_is_marked() -> None:
    assert two.marked("").snapshot.mark == ""
    assert a_job().running().succeeds(0).settled().snapshot.mark is None


def test_a_restored_job_says_why_and_expires_like_any_other() -> None:
    ended = a_job(ttlSecondsAfterFinished=60).marked("").running().succeeds(0).settled().restored().settled()
    assert ended.status.reason == "RestoredWithoutStatus"
    assert plan(ended.after(59)) == ""
    assert plan(ended.after(61)) == "-job"


@pytest.mark.parametrize("moment", [two, a_job(suspend=True).settled()], ids=["running", "suspended since its birth"])
def test_a_mark_ends_no_job_that_has_a_status(moment: Moment) -> None:
    assert moment.marked(f"Failed {OWN}").decision.empty
