"""How a job fails and starts again, and what stays to read of it."""

from .builders import Moment, a_job
from .tables import Table, rows, verdict

two = a_job(nodes=2)
no_wait = a_job(nodes=2, restart={"backoffSeconds": 0})
last = a_job(nodes=2, restart={"maxRestarts": 0})
undisturbed = a_job(nodes=2, restart={"maxDisruptions": 0})
broken = two.running().fails(1, message="ValueError: no").decided()
ready_again = broken.gone().after(1)


def after(incidents: int) -> Moment:
    """A gang that runs again after rank 1 has failed so many times, with a step more each time."""
    moment = no_wait.running()
    for step in range(incidents):
        moment = moment.reports(1, message="no", step=step).restarted()
    return moment


NO_NODE = "rank 0 and 1 more: waiting to be scheduled"
INCIDENT = "Rank 1 failed: Application: ValueError: no; restart 1 of 6 in 0.9 s"
DELETED = "Rank 0 failed: PodDeleted: the pod is being deleted; restart (not counted) in 0.9 s"
TABLE: Table = {
    "one failed rank ends the gang, gently but soon, and stays itself, for its log": (
        two.running().fails(1, message="ValueError: no"),
        "-1.0/5",
        "Restarting",
        INCIDENT,
    ),
    "the grace of survivors is the spec's": (
        a_job(nodes=2, restart={"gracePeriodSeconds": 30, "backoffSeconds": 0}).running().fails(0),
        "-1.1/30",
        "Restarting",
        "Rank 0 failed: Application: exit code 1; restart 1 of 6 in 0.0 s",
    ),
    "and a second at least: a pod that is removed without any may still run": (
        a_job(nodes=2, restart={"gracePeriodSeconds": 0, "backoffSeconds": 0}).running().fails(0),
        "-1.1/1",
        "Restarting",
        "Rank 0 failed: Application: exit code 1; restart 1 of 6 in 0.0 s",
    ),
    "a pod that failed before the gang was whole is an incident": (
        two.decided().fails(0),
        "-1.1/5",
        "Restarting",
        "Rank 0 failed: Application: exit code 1; restart 1 of 6 in 0.9 s",
    ),
    "a gang that loses a rank with notice has time to save": (
        two.running().deleted_by_hand(0),
        "-1.1/full",
        "Restarting",
        DELETED,
    ),
    "and keeps it": (
        two.running().deleted_by_hand(0).said(),
        "-1.1/full",
        "Restarting",
        DELETED,
    ),
    "it has the time also where a rank is preempted": (
        two.running().disrupted(0, "PreemptionByScheduler", "preempted by a pod of team b"),
        "-1.1/full",
        "Restarting",
        "Rank 0 failed: Preempted: preempted by a pod of team b; restart (not counted) in 0.9 s",
    ),
    "or evicted": (
        two.running().disrupted(0, "EvictionByEvictionAPI", "Eviction API: evicting"),
        "-1.1/full",
        "Restarting",
        "Rank 0 failed: Evicted: Eviction API: evicting; restart (not counted) in 0.9 s",
    ),
    "but not once the rank is gone": (
        two.running().disrupted(0, "EvictionByEvictionAPI", "Eviction API: evicting").fails(0, code=143),
        "-1.1/5",
        "Restarting",
        "Rank 0 failed: Evicted: Eviction API: evicting; restart (not counted) in 0.9 s",
    ),
    "a rank that saves and exits with 0 because it is evicted has not finished": (
        a_job(nodes=1).running().disrupted(0, "EvictionByEvictionAPI", "a drain").succeeds(0),
        "",
        "Restarting",
        "Rank 0 failed: Evicted: a drain; restart (not counted) in 0.9 s",
    ),
    "a pod that vanished from a created gang is an incident": (
        two.running().vanishes(1),
        "-1.0/5",
        "Restarting",
        "Rank 1 failed: PodDeleted: the pod vanished; restart (not counted) in 0.9 s",
    ),
    "a pod that its kubelet ended for what it used is one that counts": (
        two.running().evicted_by_kubelet(
            0, "Container trainer exceeded its local ephemeral storage. ", disruption=False
        ),
        "-1.1/5",
        "Restarting",
        (
            "Rank 0 failed: StorageExceeded: Container trainer exceeded its local ephemeral storage.; "
            "restart 1 of 6 in 0.9 s"
        ),
    ),
    "one that it ended because the node ran short is none": (
        two.running().evicted_by_kubelet(0, "The node was low on resource: memory", disruption=True),
        "-1.1/5",
        "Restarting",
        "Rank 0 failed: Evicted: The node was low on resource: memory; restart (not counted) in 0.9 s",
    ),
    "a rank that something told to stop is one: a probe that fails would do so for ever": (
        two.running().fails(0, code=205, message="saved at step 40"),
        "-1.1/5",
        "Restarting",
        "Rank 0 failed: Stopped: saved at step 40; restart 1 of 6 in 0.9 s",
    ),
    "a machine that is not fit for training counts: its user may want to know": (
        two.running().reports(0, code=201, cause="PreflightFailed", message="all_reduce gave a wrong sum"),
        "-1.1/5",
        "Restarting",
        "Rank 0 failed: PreflightFailed: all_reduce gave a wrong sum; restart 1 of 6 in 0.9 s",
    ),
    "unless no machine would be": (
        two.running().reports(0, code=202, cause="PreflightFailed", message="4 GPUs for 8 processes").decided(),
        "",
        "Running",
        "Stopping 1 pod: Rank 0 failed: PreflightFailed: 4 GPUs for 8 processes",
    ),
    "a supervisor that ends because of another rank's failure explains nothing": (
        two.running().fails(0, code=204, message="rank 1 failed").reports(1, at=1, message="ValueError: no"),
        "-1.0/5",
        "Restarting",
        "Rank 1 failed: Application: ValueError: no (1 more rank failed with it); restart 1 of 6 in 0.9 s",
    ),
    "no attempt begins while a pod of the last one may still run": (
        broken.after(1),
        "",
        "Restarting",
        "Waiting for 1 pod of the previous attempt to stop",
    ),
    "no attempt begins before its backoff is over": (
        broken.gone(),
        "",
        "Restarting",
        INCIDENT,
    ),
    "after both the gang is created whole, under new names": (
        ready_again,
        "+2.0 +2.1",
        "Restarting",
        "Creating 2 of 2 pods",
    ),
    "an operator that died before it deleted the survivors deletes them": (
        two.running().fails(1, message="ValueError: no").said(),
        "-1.0/5",
        "Restarting",
        INCIDENT,
    ),
    "what an ended attempt left behind is removed, and nothing is awaited": (
        no_wait.running().fails(0, 1).said(),
        "-1.1/5",
        "Restarting",
        "Removing the pods of the previous attempt",
    ),
    "a gang that comes up again is still restarting": (
        ready_again.decided(),
        "",
        "Restarting",
        f"0 of 2 pods running; {NO_NODE}",
    ),
    "a gang that runs again has restarted": (
        ready_again.settled().runs(0, 1),
        "",
        "Running",
        "2 nodes running",
    ),
    "a pod of a former attempt that comes late is ended": (
        two.running().fails(1).restarted().comes_late(0),
        "-1.0/5",
        "Running",
        "2 nodes running",
    ),
    # the end
    "with no restart left the survivors are stopped first": (
        last.running().fails(0, message="boom"),
        "-1.1/5",
        "Running",
        "Stopping 1 pod: Rank 0 failed: Application: boom; no restarts left (maxRestarts: 0)",
    ),
    "where nothing is restarted, that is told instead of the limit": (
        last.allows(no_restarts="nothing is restarted here").running().fails(0),
        "-1.1/5",
        "Running",
        "Stopping 1 pod: Rank 0 failed: Application: exit code 1; nothing is restarted here",
    ),
    "also after a disruption": (
        undisturbed.allows(no_restarts="nothing is restarted here").running().deleted_by_hand(0),
        "-1.1/5",
        "Running",
        "Stopping 2 pods: Rank 0 failed: PodDeleted: the pod is being deleted; nothing is restarted here",
    ),
    "and the job has failed once nothing of it runs": (
        last.running().fails(0, message="boom").decided().gone(),
        "",
        "Failed",
        "Rank 0 failed: Application: boom; no restarts left (maxRestarts: 0)",
    ),
    "a job that nothing is left of fails in one round": (
        last.running().fails(0, message="boom", at=-1).fails(1, message="Broken pipe"),
        "",
        "Failed",
        "Rank 0 failed: Application: boom (1 more rank failed with it); no restarts left (maxRestarts: 0)",
    ),
    "what a restart cannot mend ends the job at once": (
        two.running().reports(0, cause="StorageFull", message="no space left on device"),
        "-1.1/5",
        "Running",
        "Stopping 1 pod: Rank 0 failed: StorageFull: no space left on device",
    ),
    "a broken GPU is nobody's fault in the job": (
        two.running().reports(0, cause="DeviceFailed", message="CUDA error: uncorrectable ECC error encountered"),
        "-1.1/5",
        "Restarting",
        (
            "Rank 0 failed: DeviceFailed: CUDA error: uncorrectable ECC error encountered; restart (not counted) in "
            "0.9 s"
        ),
    ),
    # what stays to read
    "the first to fail of each of the last three incidents stay": (
        after(2).reports(1, message="no", step=2),
        "-3.0/5",
        "Restarting",
        "Rank 1 failed: Application: no; restart 3 of 6 in 0.0 s",
    ),
    "and the one before them goes": (
        after(3).reports(1, message="no", step=3),
        "-1.1/5 -4.0/5",
        "Restarting",
        "Rank 1 failed: Application: no; restart 4 of 6 in 0.0 s",
    ),
    "what failed as a consequence does not": (
        no_wait.running().fails(0, message="Broken pipe").fails(1, message="ValueError: no"),
        "-1.0/5",
        "Restarting",
        "Rank 1 failed: Application: ValueError: no (1 more rank failed with it); restart 1 of 6 in 0.0 s",
    ),
    "nor does one whose other containers go on": (
        no_wait.running().fails(0, message="no").lingers(0),
        "-1.0/5 -1.1/5",
        "Restarting",
        "Rank 0 failed: Application: no; restart 1 of 6 in 0.0 s",
    ),
    "those that stay are in nobody's way when the job is resumed": (
        after(2).suspended().asks(suspend=False),
        "+4.0 +4.1",
        "Pending",
        "Creating 2 pods",
    ),
}


@rows(TABLE)
def test_how_a_job_fails_and_starts_again(moment: Moment, expected: tuple[str, str, str]) -> None:
    assert verdict(moment) == expected


def test_the_pods_that_stay_are_those_that_the_history_names() -> None:
    moment = after(5)
    ended = {pod.name for pod in moment.pods if pod.failed}
    assert ended == {failure.pod for failure in moment.status.incidents[:3]}
    assert len(ended) == 3


def test_the_history_is_the_last_ten_incidents_the_newest_first() -> None:
    moment = a_job(nodes=2, restart={"maxRestarts": 99, "backoffSeconds": 0}).running()
    for step in range(12):
        moment = moment.reports(1, message="no", step=step).restarted()
    assert [failure.step for failure in moment.status.incidents] == list(range(11, 1, -1))
