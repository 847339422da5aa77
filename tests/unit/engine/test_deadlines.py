"""Deadlines: fired by time alone, and what is left to read after one."""

import pytest
from ddpjob_operator.api import ConditionType

from .builders import Moment, a_job
from .tables import Table, rows, verdict

limited = a_job(nodes=2, activeDeadlineSeconds=60)
to_start = a_job(nodes=2, startDeadlineSeconds=60)
stopped = limited.running().after(60).decided()
starting = to_start.created().runs(0).waits(1, "Unschedulable", "0/3 nodes are available").settled()
no_service = to_start.decided().serves().runs(0, 1).refused("QuotaExceeded", "exceeded quota", 9)
slow_to_end = {"spec": {"terminationGracePeriodSeconds": 100, "containers": [{"name": "trainer", "image": "a:1"}]}}

ACTIVE = "The job was active for longer than 60 s (activeDeadlineSeconds)"
NOT_UP = "Not all pods ran within 60 s (startDeadlineSeconds)"
UNSCHEDULABLE = "1 of 2 pods running; rank 1: Unschedulable: 0/3 nodes are available"
TABLE: Table = {
    # activeDeadlineSeconds
    "before its deadline a job goes on": (
        limited.running().after(59.9),
        "",
        "Running",
        "2 nodes running",
    ),
    "at its deadline a job is stopped, with the time to save, and keeps its logs": (
        limited.running().after(60),
        "!1.0 !1.1",
        "Running",
        f"Stopping 2 pods: {ACTIVE}",
    ),
    "a pod is told to stop once": (
        stopped,
        "",
        "Running",
        f"Stopping 2 pods: {ACTIVE}",
    ),
    "and has failed, whatever its pods said at last": (
        stopped.fails(0, 1, code=205).gone(),
        "",
        "Failed",
        ACTIVE,
    ),
    "a rank that ends well after the deadline changes nothing": (
        stopped.succeeds(0, 1),
        "",
        "Failed",
        ACTIVE,
    ),
    "a job that was done before its deadline has succeeded, whenever that is seen": (
        limited.running().succeeds(0, 1).after(61),
        "",
        "Succeeded",
        "2 nodes finished",
    ),
    "a job that fails before it is seen that its deadline has passed has run out of time": (
        limited.running().fails(0).after(60),
        "!1.1",
        "Running",
        f"Stopping 1 pod: {ACTIVE}",
    ),
    "the deadline ends a job in its backoff": (
        limited.running().fails(0).decided().gone().after(60),
        "",
        "Failed",
        ACTIVE,
    ),
    "and one that waits for the pods of its last attempt, which have nothing left to keep": (
        limited.running().fails(0).decided().after(60),
        "",
        "Restarting",
        f"Stopping 1 pod: {ACTIVE}",
    ),
    "a pod that never ran leaves nothing to read, and goes": (
        limited.created().runs(0).settled().after(60),
        "!1.0 -1.1/full",
        "Starting",
        f"Stopping 2 pods: {ACTIVE}",
    ),
    "a pod that was told to stop is waited for, its grace and a little more": (
        stopped.after(39.9),
        "",
        "Running",
        f"Stopping 2 pods: {ACTIVE}",
    ),
    "one that does not end until then is deleted: its node may be lost": (
        stopped.fails(0, code=143).after(40),
        "-1.1/full",
        "Running",
        f"Stopping 1 pod: {ACTIVE}",
    ),
    "and not waited for any more when it is overdue": (
        stopped.fails(0, code=143).after(40).decided().node_dies(1).after(40),
        "",
        "Failed",
        ACTIVE,
    ),
    "the grace is the template's": (
        a_job(activeDeadlineSeconds=60, template=slow_to_end).running().after(60).decided().after(109),
        "",
        "Running",
        f"Stopping 1 pod: {ACTIVE}",
    ),
    "a pod on a node that is lost by then is not told to stop": (
        limited.running().after(59).node_dies(1).after(1),
        "!1.0",
        "Running",
        f"Stopping 2 pods: {ACTIVE}",
    ),
    "a later deadline, set in time, is heeded": (
        limited.running().asks(activeDeadlineSeconds=120).after(60),
        "",
        "Running",
        "2 nodes running",
    ),
    "an earlier one too": (
        limited.running().after(30).asks(activeDeadlineSeconds=30),
        "!1.0 !1.1",
        "Running",
        "Stopping 2 pods: The job was active for longer than 30 s (activeDeadlineSeconds)",
    ),
    # startDeadlineSeconds
    "a gang may wait until its start deadline": (
        starting.after(59.9),
        "",
        "Starting",
        UNSCHEDULABLE,
    ),
    "then the job fails, and tells what it waited for": (
        starting.after(60),
        "!1.0 -1.1/full",
        "Starting",
        f"Stopping 2 pods: {NOT_UP}: {UNSCHEDULABLE}",
    ),
    "and goes on telling it": (
        starting.after(60).decided().gone(),
        "",
        "Failed",
        f"{NOT_UP}: {UNSCHEDULABLE}",
    ),
    "a gang that has run once has met its start deadline": (
        to_start.running().fails(0).decided().gone().after(60).decided(),
        "",
        "Restarting",
        "0 of 2 pods running; rank 0 and 1 more: waiting to be scheduled",
    ),
    "a gang that failed before it ran has not": (
        to_start.created().fails(0, message="no").decided().gone().after(60),
        "",
        "Failed",
        f"{NOT_UP}: Rank 0 failed: Application: no; restart 1 of 6 in 0.9 s",
    ),
    "nor has one that gave its places back, and it says why": (
        a_job(nodes=2, startDeadlineSeconds=100, scheduleTimeoutSeconds=60)
        .created()
        .placed(0)
        .after(90)
        .decided()
        .gone()
        .after(10),
        "",
        "Failed",
        (
            "Not all pods ran within 100 s (startDeadlineSeconds): 1 of 2 pods could be scheduled within 60 s "
            "(scheduleTimeoutSeconds): stopping all pods, and trying again in 0.9 s"
        ),
    ),
    "a gang that comes up in the last moment has met it": (
        starting.after(59).runs(1).settled().after(10),
        "",
        "Running",
        "2 nodes running",
    ),
    "and so has one that runs, while its Service is away and cannot be made": (
        no_service.after(60),
        "service",
        "Pending",
        "exceeded quota",
    ),
    "for good": (
        no_service.decided().after(60).fails(1, message="no").decided().gone().after(1),
        "service +2.0 +2.1",
        "Restarting",
        "exceeded quota",
    ),
    "be it that nobody has looked before": (
        starting.after(30).runs(1).after(30),
        "",
        "Running",
        "2 nodes running",
    ),
    "quota counts as not coming up": (
        to_start.decided().vanishes(1).refused("QuotaExceeded", "exceeded quota", 99).decided().after(60),
        "-1.0/full",
        "Pending",
        f"Stopping 1 pod: {NOT_UP}: exceeded quota",
    ),
}


@rows(TABLE)
def test_deadlines(moment: Moment, expected: tuple[str, str, str]) -> None:
    assert verdict(moment) == expected


REASONS: dict[str, tuple[Moment, str]] = {
    "active": (stopped.gone(), "DeadlineExceeded"),
    "to start": (starting.after(60).decided().gone(), "StartDeadlineExceeded"),
}


@pytest.mark.parametrize(("moment", "reason"), REASONS.values(), ids=REASONS)
def test_each_deadline_has_its_own_reason_and_leaves_no_blame(moment: Moment, reason: str) -> None:
    failed = moment.settled()
    condition = failed.status.condition(ConditionType.FAILED)
    assert condition is not None
    assert condition.reason == reason
    assert failed.status.incidents == ()
    assert [pod.node for pod in failed.pods], "there is a log to read"


def test_what_a_job_waited_for_is_cut_where_a_message_ends() -> None:
    words = "0/4096 nodes are available: " + "ä" * 3000
    moment = to_start.created().waits(0, "Unschedulable", words).settled().after(60).settled().gone().settled()
    assert moment.status.message.startswith(f"{NOT_UP}: 0 of 2 pods running; rank 0: Unschedulable: 0/4096")
    assert len(moment.status.message) == 1024
