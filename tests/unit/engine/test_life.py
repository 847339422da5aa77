"""How a job comes up, and how it ends well."""

from datetime import timedelta

import pytest
from ddpjob_operator.api.contract import MAX_NODES
from ddpjob_operator.api.status import DDPJobStatus
from ddpjob_operator.api.words import intervals
from ddpjob_operator.engine import Settings

from .builders import START, Moment, a_job
from .tables import Table, rows, verdict

two = a_job(nodes=2)
rank_zero = a_job(nodes=3, successPolicy="RankZero").running()
hurried = a_job(nodes=3, finishTimeoutSeconds=60, restart={"backoffSeconds": 0}).running()
lingered = hurried.succeeds(0, 1).after(60)
last_time = a_job(nodes=3, finishTimeoutSeconds=60, restart={"maxRestarts": 0}).running()

NO_NODE = "rank 0 and 1 more: waiting to be scheduled"
done_and_gone = two.running().succeeds(0).settled().vanishes(0)
TOLD = "Rank 0 failed, one of several at the same moment: PodDeleted: exit code 0"
LINGERS = "Rank 2 failed: Stalled: did not finish within 60 s of the other ranks (finishTimeoutSeconds)"
TABLE: Table = {
    # how it comes up
    "a new job gets its Service and all its pods in one round": (
        two,
        "service +1.0 +1.1",
        "Pending",
        "Creating 2 pods",
    ),
    "an operator that died before it acted creates what was authorised": (
        two.said(),
        "service +1.0 +1.1",
        "Pending",
        "Creating 2 of 2 pods",
    ),
    "a pod that could not be created is created in the next round": (
        two.decided().vanishes(1),
        "+1.1",
        "Pending",
        "Creating 1 of 2 pods",
    ),
    "pods that exist are a created job": (
        two.decided(),
        "",
        "Starting",
        f"0 of 2 pods running; {NO_NODE}",
    ),
    "a job runs when every trainer runs": (
        two.created().runs(0, 1),
        "",
        "Running",
        "2 nodes running",
    ),
    # how all ranks end well
    "a rank that is done waits for the others": (
        two.running().succeeds(0),
        "",
        "Running",
        "1 of 2 nodes finished: rank 0",
    ),
    "a rank that was done before it was seen to run counts": (
        two.created().succeeds(0).runs(1),
        "",
        "Running",
        "1 of 2 nodes finished: rank 0",
    ),
    "all ranks with exit code 0 are success": (
        two.running().succeeds(0, 1),
        "",
        "Succeeded",
        "2 nodes finished",
    ),
    "they are even if somebody has deleted them since": (
        two.running().succeeds(0, 1).after(10).lingers(0, 1).deleted_by_hand(0, 1),
        "",
        "Succeeded",
        "2 nodes finished",
    ),
    "but not if they were deleted before": (
        two.running().deleted_by_hand(0, 1).after(2).succeeds(0, 1),
        "",
        "Restarting",
        f"{TOLD} (1 more rank failed with it); restart (not counted) in 0.9 s",
    ),
    "nor if that is in doubt, since clocks differ": (
        two.running().succeeds(0, 1).after(4).lingers(0, 1).deleted_by_hand(0, 1),
        "",
        "Restarting",
        f"{TOLD} (1 more rank failed with it); restart (not counted) in 0.9 s",
    ),
    "but not as long as one has another exit code": (
        two.running().succeeds(0).fails(1, message="ValueError: no"),
        "-1.0/5",
        "Restarting",
        "Rank 1 failed: Application: ValueError: no; restart 1 of 6 in 0.9 s",
    ),
    "other containers may go on as long as the job does": (
        two.running().succeeds(0).lingers(0),
        "",
        "Running",
        "1 of 2 nodes finished: rank 0",
    ),
    # one whose pod goes
    "a rank that was seen to finish stays finished when its pod goes, and gets no other one": (
        done_and_gone,
        "",
        "Running",
        "1 of 2 nodes finished: rank 0",
    ),
    "however long the others take": (
        two.asks(finishTimeoutSeconds=1_000_000).running().succeeds(0).settled().vanishes(0).after(100_000),
        "",
        "Running",
        "1 of 2 nodes finished: rank 0",
    ),
    "and the job succeeds when they have finished": (
        done_and_gone.settled().succeeds(1),
        "",
        "Succeeded",
        "2 nodes finished",
    ),
    "be it that all pods go": (
        two.running().succeeds(0).settled().succeeds(1).said().vanishes(0, 1),
        "",
        "Succeeded",
        "2 nodes finished",
    ),
    "it stays finished whatever is done to its pod a moment later": (
        two.running().succeeds(0).settled().after(1).lingers(0).deleted_by_hand(0),
        "",
        "Running",
        "1 of 2 nodes finished: rank 0",
    ),
    "be it with its node": (
        two.running().succeeds(0).settled().after(1).node_dies(0),
        "",
        "Running",
        "1 of 2 nodes finished: rank 0",
    ),
    "one that was not seen to finish may have been told to stop": (
        two.running().succeeds(0).vanishes(0),
        "-1.1/5",
        "Restarting",
        "Rank 0 failed: PodDeleted: the pod vanished; restart (not counted) in 0.9 s",
    ),
    "a rank that fails takes those along that have finished": (
        done_and_gone.fails(1, message="ValueError: no").decided().gone().after(1),
        "+2.0 +2.1",
        "Restarting",
        "Creating 2 of 2 pods",
    ),
    "and they have to finish anew": (
        done_and_gone.fails(1).restarted().succeeds(1),
        "",
        "Running",
        "1 of 2 nodes finished: rank 1",
    ),
    # one that lingers
    "a rank that has not finished has its time": (
        hurried.succeeds(0).after(10).succeeds(1).after(59),
        "",
        "Running",
        "2 of 3 nodes finished: rank 0 and 1 more",
    ),
    "which is counted from the last one that has, and after it the rank is stalled, and keeps its log": (
        hurried.succeeds(0).after(10).succeeds(1).after(60),
        "!1.2 -1.0/5 -1.1/5",
        "Restarting",
        f"{LINGERS}; restart 1 of 6 in 0.0 s",
    ),
    "nor does it have for ever where the pods of the others have gone": (
        hurried.succeeds(0).after(10).succeeds(1).settled().vanishes(0, 1).after(59),
        "",
        "Running",
        "2 of 3 nodes finished: rank 0 and 1 more",
    ),
    "but as long as where they have not": (
        hurried.succeeds(0).after(10).succeeds(1).settled().vanishes(0, 1).after(60),
        "!1.2",
        "Restarting",
        f"{LINGERS}; restart 1 of 6 in 0.0 s",
    ),
    "where two have not, both are, and the one that is blamed keeps its log": (
        hurried.succeeds(0).after(60),
        "!1.1 -1.0/5 -1.2/5",
        "Restarting",
        (
            "Rank 1 failed, one of several at the same moment: Stalled: did not finish within 60 s of the other "
            "ranks (finishTimeoutSeconds) (1 more rank failed with it); restart 1 of 6 in 0.0 s"
        ),
    ),
    "an operator that died before it stopped the rank does it then": (
        lingered.said(),
        "!1.2 -1.0/5 -1.1/5",
        "Restarting",
        "Waiting for 1 pod of the previous attempt to stop",
    ),
    "its end is waited for, its grace and a little more": (
        lingered.decided().after(39.9),
        "",
        "Restarting",
        "Waiting for 1 pod of the previous attempt to stop",
    ),
    "then it is deleted: its node may be lost": (
        lingered.decided().after(40),
        "-1.2/5",
        "Restarting",
        "Waiting for 1 pod of the previous attempt to stop",
    ),
    "once it has ended, however, all start again": (
        lingered.decided().former_fails(2, code=0).gone(),
        "+2.0 +2.1 +2.2",
        "Restarting",
        "Creating 3 of 3 pods",
    ),
    "other containers of its pod have that time, too": (
        lingered.decided().former_fails(2, code=143).former_lingers(2).gone(),
        "+2.0 +2.1 +2.2",
        "Restarting",
        "Creating 3 of 3 pods",
    ),
    "a suspension in between leaves it that time": (
        lingered.decided().asks(suspend=True).after(39.9),
        "",
        "Suspending",
        "Waiting for 1 pod to save and stop",
    ),
    "with no restart left it is stopped as well": (
        last_time.succeeds(0, 1).after(60),
        "!1.2",
        "Running",
        f"Stopping 1 pod: {LINGERS}; no restarts left (maxRestarts: 0)",
    ),
    "and stays when the job has failed": (
        last_time.succeeds(0, 1).after(60).decided().gone().decided(),
        "",
        "Failed",
        f"{LINGERS}; no restarts left (maxRestarts: 0)",
    ),
    "a job of which no rank has finished may take for ever": (
        hurried.after(1e6),
        "",
        "Running",
        "3 nodes running",
    ),
    # rank 0 is enough
    "where rank 0 is enough, the others are then told to stop, with the time to save": (
        rank_zero.succeeds(0),
        "-1.1/full -1.2/full",
        "Running",
        "Stopping 2 pods: Rank 0 finished",
    ),
    "and the job has succeeded once they have, however": (
        rank_zero.succeeds(0).decided().fails(1, code=137).gone(),
        "",
        "Succeeded",
        "Rank 0 finished",
    ),
    "where rank 0 is enough, the others are not": (
        rank_zero.succeeds(1, 2),
        "",
        "Running",
        "2 of 3 nodes finished: rank 1 and 1 more",
    ),
    "nor is there a time in which it has to finish after them": (
        rank_zero.succeeds(1, 2).after(1e6),
        "",
        "Running",
        "2 of 3 nodes finished: rank 1 and 1 more",
    ),
    "where rank 0 is enough, a failure of another is one all the same": (
        rank_zero.fails(2),
        "-1.0/5 -1.1/5",
        "Restarting",
        "Rank 2 failed: Application: exit code 1; restart 1 of 6 in 0.9 s",
    ),
    "unless rank 0 has finished": (
        rank_zero.succeeds(0).fails(2),
        "-1.1/full",
        "Running",
        "Stopping 1 pod: Rank 0 finished",
    ),
    "but not if it saved and exited with 0 because it was told to": (
        rank_zero.deleted_by_hand(0).succeeds(0),
        "-1.1/5 -1.2/5",
        "Restarting",
        "Rank 0 failed: PodDeleted: exit code 0; restart (not counted) in 0.9 s",
    ),
    "or because another was, and all save together": (
        rank_zero.deleted_by_hand(2).after(2).succeeds(0),
        "-1.0/full -1.1/full",
        "Restarting",
        "Rank 2 failed: PodDeleted: the pod is being deleted; restart (not counted) in 0.9 s",
    ),
    "where rank 0 is enough, it is so although its pod has gone": (
        a_job(nodes=3).running().succeeds(0).settled().vanishes(0).asks(successPolicy="RankZero"),
        "-1.1/full -1.2/full",
        "Running",
        "Stopping 2 pods: Rank 0 finished",
    ),
    "and although the pod of a rank that had finished before is being deleted": (
        rank_zero.succeeds(1).settled().after(60).lingers(1).deleted_by_hand(1).after(60).succeeds(0),
        "-1.2/full",
        "Running",
        "Stopping 1 pod: Rank 0 finished",
    ),
    "where rank 0 is enough, all of them are as well": (
        rank_zero.succeeds(0, 1, 2),
        "",
        "Succeeded",
        "3 nodes finished",
    ),
}


@rows(TABLE)
def test_how_a_job_comes_up_and_ends_well(moment: Moment, expected: tuple[str, str, str]) -> None:
    assert verdict(moment) == expected


def test_the_status_remembers_who_has_finished_and_when_the_last_one_did() -> None:
    moment = rank_zero.succeeds(1).after(10).succeeds(2).settled().vanishes(1, 2).settled()
    assert (moment.status.completed_indexes, moment.status.bookkeeping.last_completed_time) == (
        "1,2",
        START + timedelta(seconds=10),
    )
    assert moment.status.display.ready == "3/3"


@pytest.mark.parametrize(
    "anew",
    [
        pytest.param(done_and_gone.fails(1), id="a restart"),
        pytest.param(done_and_gone.asks(nodes=3), id="another size"),
        pytest.param(done_and_gone.suspended().asks(suspend=False), id="a resumption"),
    ],
)
def test_whoever_starts_anew_has_not_finished(anew: Moment) -> None:
    assert anew.status.completed_indexes == "0"
    assert (anew.said().status.completed_indexes, anew.said().status.bookkeeping.last_completed_time) == ("", None)


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(two.running().asks(suspend=True).decided().succeeds(0, 1), id="suspended"),
        pytest.param(last_time.succeeds(0, 1).after(60).decided().after(1).succeeds(2), id="stopped to stay"),
    ],
)
def test_who_exits_with_0_since_it_was_told_to_has_not_finished(told: Moment) -> None:
    assert told.settled().status.completed_indexes == told.status.completed_indexes


INTERVALS = {"none": "", "one": "3", "two": "0,2", "neighbours": "0,1", "as Kubernetes says it": "1,3-5,7"}


@pytest.mark.parametrize("text", INTERVALS.values(), ids=INTERVALS)
def test_indexes_are_read_as_they_are_written(text: str) -> None:
    assert intervals(DDPJobStatus(nodes=8, completed_indexes=text).completed()) == text


def test_ranks_that_there_are_not_are_none() -> None:
    assert DDPJobStatus(nodes=4, completed_indexes="2-999999999999,5").completed() == {2, 3}


@pytest.mark.parametrize("left_out", [2, 3, 4])
def test_the_status_has_room_for_whoever_has_finished_in_the_largest_job(left_out: int) -> None:
    text = intervals(rank for rank in range(MAX_NODES) if rank % left_out)
    assert DDPJobStatus.model_validate({"nodes": MAX_NODES, "completedIndexes": text}).completed_indexes == text


def test_where_there_are_no_pods_nobody_is_told_of_any() -> None:
    here = two.but(settings=Settings(noun="node"))
    suspended = here.running().asks(suspend=True)
    said = [moment.decision.status for moment in (here, here.decided(), suspended)]
    assert [status.message.partition(";")[0] for status in said if status] == [
        "Creating 2 nodes",
        "0 of 2 nodes running",
        "Waiting for 2 nodes to save and stop",
    ]
