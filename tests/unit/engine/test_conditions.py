"""What a job says of itself: conditions, state, readiness, and events."""

import re
from datetime import timedelta

import pytest
from ddpjob_operator.api import Backend, ConditionType, DDPJobStatus
from ddpjob_operator.engine.kstatus import CONDITIONS as KSTATUS

from .builders import START, Moment, a_job

two = a_job(nodes=2)
running = two.running()
fewer = a_job(nodes=2, elastic={}).created().placed(0).after(120)
broken = running.fails(1).decided()
suspended = running.asks(suspend=True).decided().gone().decided()
failed = a_job(nodes=2, restart={"maxRestarts": 0}).running().fails(0).decided()

CONDITIONS: dict[str, tuple[Moment, str]] = {
    "a job whose pods were not seen yet": (two.decided(), ""),
    "a created job": (two.created(), "Created:PodsCreated"),
    "a running job": (running, "Created:PodsCreated Running:AllPodsRunning"),
    "a restarting job": (broken, "Restarting:Application -Created:Application -Running:Application"),
    "a restarting job that is created": (
        broken.gone().after(1).settled(),
        "Created:PodsCreated Restarting:Application -Running:PodsStarting",
    ),
    "a restarted job": (broken.restarted(), "Created:PodsCreated Running:AllPodsRunning -Restarting:Restarted"),
    "a resized job": (
        running.asks(nodes=3).decided(),
        "Restarting:Resized -Created:Resized -Running:Resized",
    ),
    "a job that is being suspended": (running.asks(suspend=True).decided(), "-Created:Suspended -Running:Suspended"),
    "a suspended job": (suspended, "Suspended:JobSuspended -Created:Suspended -Running:Suspended"),
    "a resumed job": (
        suspended.asks(suspend=False).decided(),
        "-Created:Suspended -Running:Suspended -Suspended:JobResumed",
    ),
    "a job that will fail": (
        failed,
        "Created:PodsCreated FailureTarget:MaxRestartsExceeded Running:AllPodsRunning",
    ),
    "a failed job": (
        failed.gone().decided(),
        (
            "Created:PodsCreated Failed:MaxRestartsExceeded "
            "FailureTarget:MaxRestartsExceeded -Running:MaxRestartsExceeded"
        ),
    ),
    "a job that is done": (
        running.succeeds(0, 1).decided(),
        (
            "Complete:AllRanksSucceeded Created:PodsCreated "
            "SuccessCriteriaMet:AllRanksSucceeded -Running:AllRanksSucceeded"
        ),
    ),
    "a job past its deadline": (
        a_job(activeDeadlineSeconds=9).running().after(9).decided().gone().decided(),
        "Created:PodsCreated Failed:DeadlineExceeded FailureTarget:DeadlineExceeded -Running:DeadlineExceeded",
    ),
    "a job that has not come up in time": (
        a_job(startDeadlineSeconds=9).created().after(9).decided().gone().decided(),
        "Created:PodsCreated Failed:StartDeadlineExceeded FailureTarget:StartDeadlineExceeded",
    ),
    "a job whose rank 0 is done, and was enough": (
        a_job(nodes=2, successPolicy="RankZero").running().succeeds(0).decided().gone().decided(),
        (
            "Complete:RankZeroSucceeded Created:PodsCreated "
            "SuccessCriteriaMet:RankZeroSucceeded -Running:RankZeroSucceeded"
        ),
    ),
    "a gang that gave its nodes back": (
        two.created().placed(1).after(720).decided(),
        "-Created:GangIncomplete",
    ),
    "one that comes up again": (
        two.created().placed(1).after(720).ready_again().settled().runs(0, 1).settled(),
        "Created:PodsCreated Running:AllPodsRunning",
    ),
    "one that gave them back after an incident": (
        broken.ready_again().settled().placed(1).after(720).decided(),
        "-Created:GangIncomplete -Restarting:GangIncomplete -Running:GangIncomplete",
    ),
    "a gang that goes on with fewer": (
        fewer.decided(),
        "Restarting:Shrunk -Created:Shrunk",
    ),
    "a gang that grows again": (
        fewer.ready_again().settled().runs(0).settled().placed(1).after(5).decided(),
        "Restarting:Grown -Created:Grown -Running:Grown",
    ),
    "a job that was about to fail, and was excused": (
        a_job(nodes=2, restart={"maxRestarts": 0})
        .running()
        .fails(0, message="Broken pipe", at=-10)
        .decided()
        .overdue(1)
        .decided(),
        "Restarting:NodeLost -Created:NodeLost -FailureTarget:NodeLost -Running:NodeLost",
    ),
    "a job that is refused its pods": (
        two.decided().vanishes(1).refused("QuotaExceeded", "no").decided(),
        "Blocked:QuotaExceeded",
    ),
    "a job that is refused a pod for good": (
        two.decided().vanishes(1).refused("LimitRangeViolation", "no", fits=0).decided(),
        "Blocked:LimitRangeViolation",
    ),
    "until the next attempt gets its pods": (
        two.decided().vanishes(1).refused("LimitRangeViolation", "no", fits=0).decided().accepted().gone().decided(),
        "Blocked:LimitRangeViolation",
    ),
    "and no longer": (
        two.decided()
        .vanishes(1)
        .refused("LimitRangeViolation", "no", fits=0)
        .decided()
        .accepted()
        .ready_again()
        .decided()
        .decided(),
        "Created:PodsCreated -Blocked:Unblocked",
    ),
    "a job that runs with fewer nodes, and is refused the pod that would look out for room": (
        fewer.ready_again().settled().runs(0).settled().vanishes(1).refused("QuotaExceeded", "no").decided(),
        "Blocked:QuotaExceeded Created:PodsCreated Running:AllPodsRunning -Restarting:Restarted",
    ),
    "a job that a new operator finds blocked": (
        two.decided().vanishes(1).refused("QuotaExceeded", "no").decided().accepted().said(),
        "Blocked:QuotaExceeded",
    ),
    "a job that was refused its pods for a while": (
        two.decided().vanishes(1).refused("QuotaExceeded", "no").decided().after(5).decided().accepted().decided(),
        "Created:PodsCreated -Blocked:Unblocked",
    ),
    "a job that is refused its Service while it restarts": (
        broken.ready_again().serves().refused("ServiceTaken", "no").decided(),
        "Blocked:ServiceTaken Restarting:Application -Created:Application -Running:Application",
    ),
}


def conditions(status: DDPJobStatus) -> str:
    """True conditions with their reason, then those that are not true any more. kstatus' have their own table."""
    own = (condition for condition in status.conditions if condition.type not in KSTATUS)
    said = sorted((f"{condition.type}:{condition.reason}", condition.status) for condition in own)
    return " ".join([*(text for text, value in said if value == "True"), *(f"-{t}" for t, v in said if v == "False")])


@pytest.mark.parametrize(("moment", "expected"), CONDITIONS.values(), ids=CONDITIONS)
def test_conditions_of(moment: Moment, expected: str) -> None:
    assert conditions(moment.status) == expected


def test_a_condition_dates_from_its_last_change_of_value_not_of_words() -> None:
    moment = two.created().after(5).runs(0).decided().after(5).runs(1).decided()
    assert moment.condition(ConditionType.RUNNING).last_transition_time == START + timedelta(seconds=10)
    again = moment.after(5).fails(0).decided().after(5).gone().decided(2).fails(0, at=0).decided()
    restarting = again.condition(ConditionType.RESTARTING)
    assert restarting.last_transition_time == START + timedelta(seconds=15)
    assert "restart 2 of 6" in restarting.message


def test_conditions_and_status_tell_which_generation_they_are_about() -> None:
    moment = running.asks(nodes=3).decided()
    assert moment.status.observed_generation == 2
    assert moment.condition(ConditionType.RESTARTING).observed_generation == 2


READY: dict[str, tuple[Moment, str]] = {
    "none yet": (two.decided(), "0/2"),
    "one of two": (two.created().runs(1).decided(), "1/2"),
    "all": (running, "2/2"),
    "a rank that is done lacks nothing": (running.succeeds(0).decided(), "2/2"),
    "all are done": (running.succeeds(0, 1).settled(), "2/2"),
    "all are done, and their pods are removed": (running.succeeds(0, 1).settled().vanishes(0, 1).decided(), "2/2"),
    "pods of the last attempt are not ready": (running.fails(0).decided(), "0/2"),
    "nor do they count after a resize": (running.asks(nodes=1).decided(), "0/1"),
}


@pytest.mark.parametrize(("moment", "expected"), READY.values(), ids=READY)
def test_ready(moment: Moment, expected: str) -> None:
    assert moment.status.display.ready == expected
    assert moment.status.ready_nodes == int(expected.partition("/")[0])


WHY: dict[str, tuple[Moment, str]] = {
    "it was not looked at yet": (two, ""),
    "nodes are missing": (two.created(), "PodsCreated"),
    "it trains": (running, "AllPodsRunning"),
    "a rank has failed": (running.fails(0).decided(), "Application"),
    "a quota is in the way": (
        two.decided().vanishes(0).refused("QuotaExceeded", "no room").decided(),
        "QuotaExceeded",
    ),
    "it was suspended": (running.suspended(), "JobSuspended"),
    "all is done": (running.succeeds(0, 1).settled(), "AllRanksSucceeded"),
}


@pytest.mark.parametrize(("moment", "expected"), WHY.values(), ids=WHY)
def test_the_state_has_the_reason_that_tells_most(moment: Moment, expected: str) -> None:
    assert moment.status.reason == expected


CAN_WAIT: dict[str, tuple[Moment, bool]] = {
    "that an attempt begins": (two, False),
    "that all pods exist": (two.decided(), True),
    "how many of them run": (two.created().runs(0), True),
    "what a pod waits for": (two.created().waits(1, "Unschedulable: no room"), True),
    "that all run": (two.created().runs(0, 1), False),
    "that a rank is done": (running.succeeds(0), True),
    "how many of them run again after a restart": (running.fails(0).ready_again().created().runs(0), True),
    "that all run again": (running.fails(0).ready_again().created().runs(0, 1), False),
    "that all are done": (running.succeeds(0, 1), False),
    "an incident": (running.fails(0), False),
    "that something is in the way": (two.decided().vanishes(1).refused("QuotaExceeded", "no"), False),
    "that it is not any more": (
        two.decided().vanishes(1).refused("QuotaExceeded", "no").decided().after(5).decided().accepted(),
        False,
    ),
    "nothing": (running, False),
}


@pytest.mark.parametrize(("moment", "expected"), CAN_WAIT.values(), ids=CAN_WAIT)
def test_it_can_wait_to_be_said(moment: Moment, expected: bool) -> None:  # noqa: FBT001  A table's column.
    assert moment.decision.can_wait is expected


blocked = two.decided().vanishes(1).refused("QuotaExceeded", "used: 2")
EVENTS: dict[str, tuple[Moment, str]] = {
    "nothing happened yet": (two, ""),
    "created": (two.decided(), "Created"),
    "running": (two.created().runs(0, 1), "Running"),
    "created and running at once is one": (two.decided().runs(0, 1), "Running"),
    "a pod on its way is none": (two.created().runs(0), ""),
    "an incident is a warning": (running.fails(0), "Restarting!"),
    "a second incident before the gang ran again": (broken.gone().after(1).decided(2).fails(0), "Restarting!"),
    "the same look again is none": (broken, ""),
    "suspended": (running.asks(suspend=True).decided().gone(), "Suspended"),
    "the decision to fail is none yet": (a_job(nodes=2, restart={"maxRestarts": 0}).running().fails(0), ""),
    "failed is a warning": (failed.gone(), "Failed!"),
    "done": (running.succeeds(0, 1), "Complete"),
    "deleted after its time": (a_job(ttlSecondsAfterFinished=9).running().succeeds(0).settled().after(9), ""),
    "a resize is a restart, and told as one": (running.asks(nodes=3), "Restarting!"),
    "nodes that are given back are told": (two.created().placed(1).after(720), "GangIncomplete!"),
    "blocked is a warning": (blocked, "Blocked!"),
    "that a quota is used otherwise by now is none": (blocked.decided().refused("QuotaExceeded", "used: 3"), ""),
    "blocked for another reason is": (blocked.decided().refused("Forbidden", "no"), "Blocked!"),
}


@pytest.mark.parametrize(("moment", "expected"), EVENTS.values(), ids=EVENTS)
def test_events(moment: Moment, expected: str) -> None:
    events = moment.decision.events
    assert " ".join(event.reason + "!" * event.warning for event in events) == expected
    assert all(event.message for event in events)


def test_a_restart_does_not_start_the_clock_of_the_deadline_anew() -> None:
    assert broken.after(9).restarted().status.start_time == START


def test_what_a_job_starts_with_is_in_its_status() -> None:
    status = a_job(nodes=3, network={"masterPort": 1234}).decided().status
    assert (status.nodes, status.procs_per_node, status.backend) == (3, 1, Backend.GLOO)
    assert status.network.master_port == 1234
    assert status.attempt == 1
    assert status.bookkeeping.incarnations.default == 1


def test_a_running_job_keeps_what_it_started_with_through_a_restart() -> None:
    moment = running.asks(network={"masterPort": 1234}, procsPerNode=8, backend="NCCL").fails(0).decided().restarted()
    assert (moment.status.procs_per_node, moment.status.backend, moment.status.network.master_port) == (
        1,
        Backend.GLOO,
        29500,
    )


def test_a_finished_job_says_when_and_nothing_runs_of_it() -> None:
    moment = running.after(7).succeeds(0, 1).decided()
    assert moment.status.completion_time == START + timedelta(seconds=7)
    assert moment.status.finished
    assert not moment.status.is_true(ConditionType.RUNNING)
    assert moment.after(100).decision.empty


def test_where_nodes_are_processes_nobody_hears_of_pods() -> None:
    running = a_job(nodes=2).allows(noun="node").running()
    told = [
        running.vanishes(0),
        running.vanishes(0).decided(),
        running.deleted_by_hand(1),
        running.fails(1).decided(),
    ]
    messages = [one.message for moment in told for one in moment.decided().status.conditions]
    messages += [one.message for moment in told for one in moment.decided().status.incidents]
    assert "the node vanished" in messages
    assert [message for message in messages if re.search(r"\bpods?\b", message)] == []


@pytest.mark.parametrize(
    ("nodes", "message"), [(1, "1 node created"), (2, "2 nodes created"), (3, "3 nodes created")]
)
def test_that_all_pods_exist_is_told_with_their_number_alone(nodes: int, message: str) -> None:
    assert a_job(nodes=nodes).running().condition(ConditionType.CREATED).message == message
