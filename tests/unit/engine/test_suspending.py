"""Suspension, and how a job goes on after it."""

from dataclasses import replace
from datetime import timedelta

import pytest
from ddpjob_operator.api import Budget, ConditionType

from .builders import START, Moment, a_job, told
from .tables import Table, rows, verdict

two = a_job(nodes=2)
limited = a_job(nodes=2, activeDeadlineSeconds=60, startDeadlineSeconds=60)
to_start = a_job(nodes=2, startDeadlineSeconds=60)
suspending = two.running().asks(suspend=True).decided()
suspended = two.running().suspended()
broken = two.running().fails(1, message="ValueError: no").decided()
saved_with_0 = two.running().asks(suspend=True).decided().succeeds(0, 1).decided()
rank_zero = a_job(nodes=2, successPolicy="RankZero").running()
losing = a_job(nodes=2, checkpoint={"path": "/out"}).running()
ended_in_suspension = two.running().asks(suspend=True).fails(0, 1, code=205).decided()

NOTHING_RUNS = "Nothing runs until the job is resumed"
TABLE: Table = {
    "a job whose ranks were all done before it was suspended has succeeded": (
        two.running().succeeds(0, 1).asks(suspend=True),
        "",
        "Succeeded",
        "2 nodes finished",
    ),
    "or whose rank 0 was, where that is enough": (
        rank_zero.succeeds(0).asks(suspend=True),
        "-1.1/full",
        "Running",
        "Stopping 1 pod: Rank 0 finished",
    ),
    "a job that is born suspended starts nothing": (
        a_job(nodes=2, suspend=True),
        "",
        "Suspended",
        NOTHING_RUNS,
    ),
    "and starts as any other when it is resumed": (
        a_job(nodes=2, suspend=True).settled().asks(suspend=False),
        "service +1.0 +1.1",
        "Pending",
        "Creating 2 pods",
    ),
    "suspension gives every pod its own grace": (
        two.running().asks(suspend=True),
        "-1.0/full -1.1/full",
        "Suspending",
        "Waiting for 2 pods to save and stop",
    ),
    "suspension waits for the pods": (
        suspending,
        "",
        "Suspending",
        "Waiting for 2 pods to save and stop",
    ),
    "a suspended job has no pod that runs": (
        suspending.gone(),
        "",
        "Suspended",
        NOTHING_RUNS,
    ),
    "pods that failed when they were told to stop are no incident": (
        suspending.fails(0, code=137).fails(1, code=1),
        "",
        "Suspended",
        NOTHING_RUNS,
    ),
    "a pod whose node is lost meanwhile is waited for until it is overdue": (
        suspending.node_dies(1).gone_but(1).after(39),
        "",
        "Suspending",
        "Waiting for 1 pod to save and stop",
    ),
    "and no longer": (
        suspending.node_dies(1).gone_but(1).after(40),
        "",
        "Suspended",
        NOTHING_RUNS,
    ),
    "a job whose checkpoints went with its pods says so": (
        losing.suspended(),
        "",
        "Suspended",
        f"{NOTHING_RUNS}; then it starts over: its checkpoint.path is not on a volume that outlives its pods",
    ),
    "one that has not started has nothing to lose": (
        a_job(checkpoint={"path": "/out"}, suspend=True),
        "",
        "Suspended",
        NOTHING_RUNS,
    ),
    "a job in its backoff is suspended at once": (
        broken.gone().asks(suspend=True),
        "",
        "Suspended",
        NOTHING_RUNS,
    ),
    "a job that has not come up yet can be suspended": (
        two.decided().asks(suspend=True),
        "-1.0/full -1.1/full",
        "Suspending",
        "Waiting for 2 pods to save and stop",
    ),
    # resumed
    "a job resumes with a new attempt": (
        suspended.asks(suspend=False),
        "+2.0 +2.1",
        "Pending",
        "Creating 2 pods",
    ),
    "a job that was in its backoff does not wait for it any more": (
        broken.suspended().asks(suspend=False),
        "+3.0 +3.1",
        "Pending",
        "Creating 2 pods",
    ),
    "pods that ended in suspension are removed when the job resumes": (
        ended_in_suspension.asks(suspend=False),
        "-1.0/full -1.1/full +2.0 +2.1",
        "Pending",
        "Creating 2 pods",
    ),
    "pods that saved, ended with 0 and are still there have not finished the job": (
        saved_with_0.asks(suspend=False),
        "+2.0 +2.1",
        "Pending",
        "Creating 2 pods",
    ),
    "nor has rank 0, where it alone counts": (
        rank_zero.asks(suspend=True).decided().succeeds(0, 1).decided().asks(suspend=False),
        "+2.0 +2.1",
        "Pending",
        "Creating 2 pods",
    ),
    "be it that it ended with the others before it was told itself": (
        rank_zero.asks(suspend=True).said().succeeds(0).decided().asks(suspend=False),
        "-1.0/full",
        "Pending",
        "Waiting for 1 pod of the previous attempt to stop",
    ),
    "nor where an image has to be named first": (
        saved_with_0.nameless().asks(suspend=False).decided(2).with_image(),
        "+2.0 +2.1",
        "Pending",
        "Creating 2 pods",
    ),
    "a suspended job resumes with the size that it has then": (
        suspended.asks(nodes=1).decided().asks(suspend=False),
        "+2.0",
        "Pending",
        "Creating 1 pod",
    ),
    # called off
    "a suspension that is called off half-way is a new attempt all the same": (
        suspending.asks(suspend=False),
        "",
        "Pending",
        "Waiting for 2 pods of the previous attempt to stop",
    ),
    "and creates nothing before the stopped pods are gone": (
        suspending.asks(suspend=False).decided(2),
        "",
        "Pending",
        "Waiting for 2 pods of the previous attempt to stop",
    ),
    "and then the whole gang, not the missing part of the old one": (
        suspending.asks(suspend=False).decided().gone(),
        "+2.0 +2.1",
        "Pending",
        "Creating 2 of 2 pods",
    ),
    "a rank that exited with 0 on SIGTERM is not taken for the new gang's": (
        suspending.succeeds(1).vanishes(0).asks(suspend=False),
        "+2.0 +2.1",
        "Pending",
        "Creating 2 pods",
    ),
    "and stays half-way while it has to wait for an image": (
        suspending.nameless().asks(suspend=False).decided(2).with_image(),
        "",
        "Pending",
        "Waiting for 2 pods of the previous attempt to stop",
    ),
    "a backoff is over with the suspension, called off or not": (
        a_job(nodes=2, restart={"backoffSeconds": 200})
        .running()
        .fails(1)
        .decided()
        .asks(suspend=True)
        .decided()
        .asks(suspend=False)
        .decided()
        .gone(),
        "+3.0 +3.1",
        "Pending",
        "Creating 2 of 2 pods",
    ),
    # the clock
    "a deadline does not pass in suspension": (
        limited.running().suspended().after(1000),
        "",
        "Suspended",
        NOTHING_RUNS,
    ),
    "nor while pods save": (
        limited.running().asks(suspend=True).decided().after(1000),
        "",
        "Suspending",
        "Waiting for 2 pods to save and stop",
    ),
    "nor is it over for a job whose suspension is called off after it": (
        limited.running().asks(suspend=True).decided().after(1000).asks(suspend=False),
        "",
        "Pending",
        "Waiting for 2 pods of the previous attempt to stop",
    ),
    "a resumed job has its whole time": (
        limited.running().suspended().after(1000).asks(suspend=False).running().after(59),
        "",
        "Running",
        "2 nodes running",
    ),
    "and as long to come up": (
        limited.running().suspended().after(1000).asks(suspend=False).created().runs(0).settled().after(59),
        "",
        "Starting",
        "1 of 2 pods running; rank 1: waiting to be scheduled",
    ),
    "but no longer, although it had come up before": (
        to_start.running().suspended().after(10).asks(suspend=False).created().after(60),
        "-2.0/full -2.1/full",
        "Starting",
        (
            "Stopping 2 pods: Not all pods ran within 60 s (startDeadlineSeconds): "
            "0 of 2 pods running; rank 0 and 1 more: waiting to be scheduled"
        ),
    ),
    # the end
    "a job whose end is decided is not suspended any more": (
        a_job(nodes=2, restart={"maxRestarts": 0}).running().fails(0, message="boom").decided().asks(suspend=True),
        "",
        "Running",
        "Stopping 1 pod: Rank 0 failed: Application: boom; no restarts left (maxRestarts: 0)",
    ),
}


@rows(TABLE)
def test_suspension(moment: Moment, expected: tuple[str, str, str]) -> None:
    assert verdict(moment) == expected


def test_suspension_costs_nothing_and_forgets_nothing() -> None:
    before = broken.restarted()
    after = before.suspended().asks(suspend=False).running()
    assert (after.status.restarts, after.status.bookkeeping.budget) == (1, Budget(used=1, streak=1))
    assert after.status.incidents == before.status.incidents
    assert after.status.attempt == before.status.attempt + 1


FAILED_FIRST: dict[str, Moment] = {
    "together with the wish to suspend": two.running()
    .fails(1, message="ValueError: no")
    .asks(suspend=True)
    .decided(),
    "after it, before its pod was told": two.running()
    .asks(suspend=True)
    .said()
    .fails(1, message="ValueError: no")
    .after(10)
    .decided(2),
    "among those that lost it": two.running()
    .fails(0, message="RuntimeError: Connection closed by peer", at=-1)
    .fails(1, message="ValueError: no")
    .asks(suspend=True)
    .decided(),
}


@pytest.mark.parametrize("moment", FAILED_FIRST.values(), ids=FAILED_FIRST)
def test_a_failure_is_remembered_that_is_seen(moment: Moment) -> None:
    resumed = moment.settled().gone().settled().asks(suspend=False).running()
    failure = resumed.status.last_incident
    assert failure is not None
    assert (failure.node, failure.cause, failure.message, failure.attempt) == (1, "Application", "ValueError: no", 1)
    assert (failure.action, failure.rule) == ("RestartFree", "spec.suspend")
    assert len(resumed.status.incidents) == 1
    assert (resumed.status.restarts, resumed.status.disruptions, resumed.status.bookkeeping.budget) == (
        0,
        0,
        Budget(),
    )


NO_FAILURE: dict[str, Moment] = {
    "what was told to stop": suspending.after(1).fails(
        0, 1, message="Traceback (most recent call last):\nOSError: no"
    ),
    "what ended as its supervisor wants before it was told itself": two.running()
    .asks(suspend=True)
    .said()
    .fails(1, code=205),
    "what lost a peer that was told": suspending.after(1).fails(0, code=143).vanishes(1),
    "what was counted before": broken.gone().asks(suspend=True),
}


@pytest.mark.parametrize("moment", NO_FAILURE.values(), ids=NO_FAILURE)
def test_it_is_no_failure_in_suspension(moment: Moment) -> None:
    assert moment.settled().gone().settled().status.incidents == moment.status.incidents


def test_suspension_clears_when_the_job_started_and_when_it_first_ran() -> None:
    running = two.running()
    assert (running.status.start_time, running.status.first_run_time) == (START, START)
    assert (suspended.status.start_time, suspended.status.first_run_time) == (None, None)
    resumed = suspended.after(100).asks(suspend=False).settled().after(5).runs(0, 1).settled()
    assert resumed.status.start_time == START + timedelta(seconds=100)
    assert resumed.status.first_run_time == START + timedelta(seconds=105)


def test_a_suspension_that_is_called_off_starts_the_clock_anew_as_well() -> None:
    resumed = suspending.after(30).asks(suspend=False).decided()
    assert resumed.status.start_time == START + timedelta(seconds=30)


UNDONE = (
    "Resumed: spec.suspend is false again after 1m30s. Argo CD resets this job to what its repository says: to "
    "suspend the job, set spec.suspend there"
)


@told
def kept(moment: Moment, keeper: str = "Argo CD") -> Moment:
    """A tool keeps the job as its repository has it."""
    return Moment(replace(moment.snapshot, keeper=keeper))


@pytest.mark.parametrize(
    "stopped", [suspending.after(90), suspended.after(90)], ids=["while its pods still save", "once they have"]
)
def test_a_suspension_that_a_tool_has_undone_is_told(stopped: Moment) -> None:
    resumed = kept(stopped.asks(suspend=False))
    status, events = resumed.decided().status, resumed.decision.events
    assert [(event.warning, event.reason, event.message) for event in events] == [(True, "JobResumed", UNDONE)]
    condition = status.condition(ConditionType.SUSPENDED)
    assert condition is None or condition.message == UNDONE


@pytest.mark.parametrize(
    "resumed",
    [
        suspended.after(90).asks(suspend=False),
        kept(suspended.after(900).asks(suspend=False)),
        kept(two.queues().decided().admitted().running().evicted("Preempted", "no").decided().gone().admitted()),
    ],
    ids=["nobody keeps it", "it was suspended for long", "its queue had stopped it"],
)
def test_another_resumption_is_not_put_down_to_a_tool(resumed: Moment) -> None:
    assert [event.reason for event in resumed.decision.events] == []
    assert resumed.decided().status.bookkeeping.suspend_time is None or resumed.snapshot.queue is not None


def test_resuming_takes_what_was_changed_meanwhile() -> None:
    resumed = suspended.asks(network={"masterPort": 1234}, procsPerNode=8, backend="NCCL").asks(suspend=False)
    status = resumed.decided().status
    assert (status.network.master_port, status.procs_per_node, status.backend) == (1234, 8, "NCCL")
