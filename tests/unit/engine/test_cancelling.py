"""Cancelling: whatever a job does or waits for, it ends for good, keeps its logs, and nobody is to blame."""

import pytest
from ddpjob_operator.api import ConditionType

from .builders import Moment, a_job
from .tables import Table, rows, verdict

two = a_job(nodes=2)
running = two.running()
cancelled = running.asks(cancel=True).decided()
failing = a_job(nodes=2, restart={"maxRestarts": 0}).running().fails(1, message="ValueError: no")

WHY = "The job was cancelled (spec.cancel)"
TABLE: Table = {
    "a running job is stopped, with the time to save, and keeps its logs": (
        running.asks(cancel=True),
        "!1.0 !1.1",
        "Running",
        f"Stopping 2 pods: {WHY}",
    ),
    "whatever is done with pods of other ends": (
        a_job(nodes=2, cleanPodPolicy="None").running().asks(cancel=True),
        "!1.0 !1.1",
        "Running",
        f"Stopping 2 pods: {WHY}",
    ),
    "once": (cancelled, "", "Running", f"Stopping 2 pods: {WHY}"),
    "and has failed when nothing runs any more": (cancelled.fails(0, 1, code=205), "", "Failed", WHY),
    "also if all ranks end well": (cancelled.succeeds(0, 1), "", "Failed", WHY),
    "nobody can take that back": (cancelled.asks(cancel=False).gone(), "", "Failed", WHY),
    "before the operator has seen it, everybody can": (
        running.asks(cancel=True).asks(cancel=False),
        "",
        "Running",
        "2 nodes running",
    ),
    "nor resume the job": (
        two.suspended().asks(cancel=True).decided().asks(cancel=False, suspend=False),
        "",
        "Failed",
        WHY,
    ),
    "one that does not stop is deleted after its grace": (
        cancelled.fails(0, code=143).after(40),
        "-1.1/full",
        "Running",
        f"Stopping 1 pod: {WHY}",
    ),
    "a job that is born cancelled starts nothing": (a_job(nodes=2, cancel=True), "", "Failed", WHY),
    "a suspended job ends at once": (running.suspended().asks(cancel=True), "", "Failed", WHY),
    "one that is being suspended has told its pods to stop already": (
        running.asks(suspend=True).decided().asks(cancel=True),
        "",
        "Pending",
        f"Stopping 2 pods: {WHY}",
    ),
    "one whose pods wait to be scheduled deletes them": (
        two.created().waits(1, "Unschedulable", "no").asks(cancel=True),
        "-1.0/full -1.1/full",
        "Starting",
        f"Stopping 2 pods: {WHY}",
    ),
    "one that is blocked ends": (two.nameless().decided().asks(cancel=True), "", "Failed", WHY),
    "one in its backoff ends": (running.fails(0).decided().gone().asks(cancel=True), "", "Failed", WHY),
    "one past its deadline was cancelled, if both are seen together": (
        a_job(nodes=2, activeDeadlineSeconds=60).running().after(60).asks(cancel=True),
        "!1.0 !1.1",
        "Running",
        f"Stopping 2 pods: {WHY}",
    ),
    "one that is failing already has failed for the first reason": (
        failing.decided().gone().asks(cancel=True),
        "",
        "Failed",
        "Rank 1 failed: Application: ValueError: no; no restarts left (maxRestarts: 0)",
    ),
    "one that has succeeded stays so": (
        running.succeeds(0, 1).settled().asks(cancel=True),
        "",
        "Succeeded",
        "2 nodes finished",
    ),
}


@rows(TABLE)
def test_cancelling(moment: Moment, expected: tuple[str, str, str]) -> None:
    assert verdict(moment) == expected


ENDS: dict[str, Moment] = {
    "running": cancelled.fails(0, 1, code=143).settled(),
    "suspended": running.suspended().asks(cancel=True).settled(),
    "being suspended": running.asks(suspend=True).decided().asks(cancel=True).decided().gone().settled(),
}


@pytest.mark.parametrize("moment", ENDS.values(), ids=ENDS)
def test_a_cancelled_job_has_failed_for_that_reason_and_nobody_is_to_blame(moment: Moment) -> None:
    status = moment.settled().status
    true = {known.type: known.reason for known in status.conditions if known.status == "True"}
    assert true.pop(ConditionType.FAILURE_TARGET) == true.pop(ConditionType.FAILED) == "Cancelled"
    assert ConditionType.SUSPENDED not in true
    assert (status.reason, status.incidents, status.restarts) == ("Cancelled", (), 0)


@pytest.mark.parametrize(
    ("moment", "resumed"),
    [
        (running.suspended(), False),
        (running.suspended().asks(cancel=True), False),
        (running.suspended().asks(suspend=False), True),
        (running.suspended().asks(suspend=False).settled().asks(cancel=True), True),
        (running.asks(cancel=True), False),
    ],
    ids=["suspended", "cancelled while suspended", "resumed", "cancelled after it was resumed", "never suspended"],
)
def test_a_job_was_resumed_if_it_has_started_again(moment: Moment, *, resumed: bool) -> None:
    assert moment.settled().status.resumed is resumed
