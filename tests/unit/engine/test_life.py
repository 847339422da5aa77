"""The life of a job as a table: what is there, and what the engine makes of it."""

import pytest
from ddpjob_operator.engine import Decision, Service

from .builders import Scene, a_job, verdict

two = a_job(nodes=2)
suspending = two.running().asks(suspend=True).decided()
suspended = suspending.gone().decided()
ended_in_suspension = two.running().asks(suspend=True).fails(0, 1, code=205).decided()
broken = two.running().fails(1, message="ValueError: no").decided()
ready_again = broken.gone().after(1)
finished = two.running().succeeds(0, 1).settled()
failed = a_job(nodes=2, restart={"maxRestarts": 0}).running().fails(0).settled().gone().settled()
limited = a_job(nodes=2, activeDeadlineSeconds=60)
lost_node = two.running().node_dies(1).decided().gone_but(1)
over_quota = two.decided().vanishes(1).refused("QuotaExceeded", "exceeded quota")
no_wait = {"backoffSeconds": 0}

NO_NODE = "rank 0 and 1 more: waiting for a node"
LOST = "NodeLost: Taint manager: deleting due to NoExecute taint"
INCIDENT = "Rank 1 failed: Application: ValueError: no; restart 1 of 6 in 0.9 s"
TABLE: dict[str, tuple[Scene, str, str, str]] = {
    # how a job comes up
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
    "a pod that cannot start says why": (
        two.created().runs(0).waits(1, "ImagePullBackOff: no such image"),
        "",
        "Starting",
        "1 of 2 pods running; rank 1: ImagePullBackOff: no such image",
    ),
    "a job runs when every trainer runs": (
        two.created().runs(0, 1),
        "",
        "Running",
        "2 nodes running",
    ),
    "a Service that somebody deleted is made again, and the pods go on": (
        two.running().service(Service.MISSING),
        "service",
        "Running",
        "Creating the Service",
    ),
    # how it ends well
    "a rank that is done waits for the others": (
        two.running().succeeds(0),
        "",
        "Running",
        "1 of 2 nodes finished",
    ),
    "a rank that was done before it was seen to run counts": (
        two.created().succeeds(0).runs(1),
        "",
        "Running",
        "1 of 2 nodes finished",
    ),
    "all ranks with exit code 0 are success": (
        two.running().succeeds(0, 1),
        "",
        "Succeeded",
        "2 nodes finished",
    ),
    "a finished job stays as it is": (
        finished,
        "",
        "Succeeded",
        "2 nodes finished",
    ),
    "a finished job does not miss its pods": (
        finished.vanishes(0, 1),
        "",
        "Succeeded",
        "2 nodes finished",
    ),
    "a finished job is not resized": (
        finished.asks(nodes=3),
        "",
        "Succeeded",
        "2 nodes finished",
    ),
    "a failed job is not resumed": (
        failed.asks(suspend=True).settled().asks(suspend=False),
        "",
        "Failed",
        "Rank 0 failed: Application: exit code 1; no restart is left of 0 (maxRestarts)",
    ),
    # how it fails and starts again
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
    "a gang that loses a rank with notice has time to save": (
        two.running().deleted_by_hand(0),
        "-1.1/full",
        "Restarting",
        "Rank 0 failed: PodDeleted: the pod is being deleted; restart not counted in 0.9 s",
    ),
    "and keeps it": (
        two.running().deleted_by_hand(0).said(),
        "-1.1/full",
        "Restarting",
        "Rank 0 failed: PodDeleted: the pod is being deleted; restart not counted in 0.9 s",
    ),
    "no attempt begins while a pod of the last one may still run": (
        broken.after(1),
        "",
        "Restarting",
        "Waiting for 1 pod of the last attempt to end",
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
        a_job(nodes=2, restart=no_wait).running().fails(0, 1).said(),
        "-1.1/5",
        "Restarting",
        "Removing the pods of the last attempt",
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
    "a pod that vanished from a created gang is an incident": (
        two.running().vanishes(1),
        "-1.0/5",
        "Restarting",
        "Rank 1 failed: PodDeleted: the pod vanished; restart not counted in 0.9 s",
    ),
    "a pod that failed before the gang was whole is an incident": (
        two.decided().fails(0),
        "-1.1/5",
        "Restarting",
        "Rank 0 failed: Application: exit code 1; restart 1 of 6 in 0.9 s",
    ),
    "with no restart left the survivors are stopped first": (
        a_job(nodes=2, restart={"maxRestarts": 0}).running().fails(0, message="boom"),
        "-1.1/5",
        "Running",
        "Stopping 1 pod: Rank 0 failed: Application: boom; no restart is left of 0 (maxRestarts)",
    ),
    "and the job has failed once nothing of it runs": (
        a_job(nodes=2, restart={"maxRestarts": 0}).running().fails(0, message="boom").decided().gone(),
        "",
        "Failed",
        "Rank 0 failed: Application: boom; no restart is left of 0 (maxRestarts)",
    ),
    "a pod of a former attempt that comes late is ended": (
        two.running().fails(1).restarted().comes_late(0),
        "-1.0/5",
        "Running",
        "2 nodes running",
    ),
    # deadline
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
        "Stopping 2 pods: The job was active for 60 s (activeDeadlineSeconds)",
    ),
    "and has failed, whatever its pods said at last": (
        limited.running().after(60).decided().fails(0, 1, code=205).gone(),
        "",
        "Failed",
        "The job was active for 60 s (activeDeadlineSeconds)",
    ),
    "a job that was done before its deadline has succeeded, whenever that is seen": (
        limited.running().succeeds(0, 1).after(61),
        "",
        "Succeeded",
        "2 nodes finished",
    ),
    "the deadline ends a job in its backoff": (
        limited.running().fails(0).decided().gone().after(60),
        "",
        "Failed",
        "The job was active for 60 s (activeDeadlineSeconds)",
    ),
    # suspension
    "a job that is born suspended starts nothing": (
        a_job(nodes=2, suspend=True),
        "",
        "Suspended",
        "Nothing runs until the job is resumed",
    ),
    "suspension gives every pod its own grace": (
        two.running().asks(suspend=True),
        "-1.0/full -1.1/full",
        "Suspending",
        "2 pods to save and stop",
    ),
    "suspension waits for the pods": (
        suspending,
        "",
        "Suspending",
        "2 pods to save and stop",
    ),
    "a suspended job has no pod that runs": (
        suspending.gone(),
        "",
        "Suspended",
        "Nothing runs until the job is resumed",
    ),
    "pods that failed when they were told to stop are no incident": (
        suspending.fails(0, code=137).fails(1, code=1),
        "",
        "Suspended",
        "Nothing runs until the job is resumed",
    ),
    "a job resumes with a new attempt": (
        suspended.asks(suspend=False),
        "+2.0 +2.1",
        "Pending",
        "Creating 2 pods",
    ),
    "pods that ended in suspension are removed when the job resumes": (
        ended_in_suspension.asks(suspend=False),
        "-1.0/full -1.1/full +2.0 +2.1",
        "Pending",
        "Creating 2 pods",
    ),
    "a suspension that is called off half-way is a new attempt all the same": (
        suspending.asks(suspend=False),
        "",
        "Pending",
        "Waiting for 2 pods of the last attempt to end",
    ),
    "and creates nothing before the stopped pods are gone": (
        suspending.asks(suspend=False).decided(2),
        "",
        "Pending",
        "Waiting for 2 pods of the last attempt to end",
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
    "and stays half-way while it has to wait for its Service": (
        suspending.asks(suspend=False).service(Service.FOREIGN).decided(2).service(Service.OURS),
        "",
        "Pending",
        "Waiting for 2 pods of the last attempt to end",
    ),
    # resize
    "another number of nodes ends the gang with the time to save": (
        two.running().asks(nodes=3),
        "-1.0/full -1.1/full",
        "Restarting",
        "From 2 to 3 nodes",
    ),
    "and starts it again with the new size": (
        two.running().asks(nodes=3).decided().gone(),
        "+2.0 +2.1 +2.2",
        "Restarting",
        "Creating 3 of 3 pods",
    ),
    "a job may shrink to one node": (
        two.running().asks(nodes=1).decided().gone(),
        "+2.0",
        "Restarting",
        "Creating 1 of 1 pod",
    ),
    "a resize does not wait for a backoff": (
        broken.gone().asks(nodes=1).decided(),
        "+3.0",
        "Restarting",
        "Creating 1 of 1 pod",
    ),
    "a suspended job resumes with the size that it has then": (
        suspended.asks(nodes=1).decided().asks(suspend=False),
        "+2.0",
        "Pending",
        "Creating 1 pod",
    ),
    # what is lost with its node
    "the survivors of a lost node end soon, and so does, for the API, its own pod": (
        two.running().node_dies(1),
        "-1.0/5 -1.1/5",
        "Restarting",
        f"Rank 1 failed: {LOST}; restart not counted in 0.9 s",
    ),
    "a pod that is about to go anyway is not deleted again": (
        two.running().node_dies(1).after(21),
        "-1.0/5",
        "Restarting",
        f"Rank 1 failed: {LOST}; restart not counted in 0.9 s",
    ),
    "its pod may still run until it is overdue": (
        lost_node.after(14),
        "",
        "Restarting",
        "Waiting for 1 pod of the last attempt to end",
    ),
    "and is not waited for after that, although it never goes": (
        lost_node.after(15),
        "+2.0 +2.1",
        "Restarting",
        "Creating 2 of 2 pods",
    ),
    # what the cluster refuses
    "what is refused is told in the cluster's words": (
        over_quota,
        "",
        "Pending",
        "exceeded quota",
    ),
    "and tried again when it is time": (
        over_quota.after(5),
        "+1.1",
        "Pending",
        "exceeded quota",
    ),
    "and forgotten when it is accepted": (
        over_quota.after(5).decided().accepted(),
        "",
        "Starting",
        f"0 of 2 pods running; {NO_NODE}",
    ),
    "an incident goes before what is refused": (
        over_quota.fails(0),
        "",
        "Restarting",
        "Rank 0 failed: Application: exit code 1; restart 1 of 6 in 0.9 s",
    ),
    # other containers
    "other containers may go on as long as the job does": (
        two.running().succeeds(0).lingers(0),
        "",
        "Running",
        "1 of 2 nodes finished",
    ),
    "and end with it": (
        finished.lingers(0),
        "-1.0/5",
        "Succeeded",
        "2 nodes finished",
    ),
    # the Service
    "another's Service under the job's name is not touched": (
        two.service(Service.FOREIGN),
        "",
        "Pending",
        "Service digits exists and belongs to somebody else: delete it, or give the job another name",
    ),
    "the Service of a deleted job of the same name is waited for": (
        two.service(Service.FORMER),
        "",
        "Pending",
        "Waiting for Service digits of the deleted job of the same name to go away",
    ),
    "the job starts when the name is free": (
        two.service(Service.FORMER).decided().service(Service.MISSING),
        "service +1.0 +1.1",
        "Pending",
        "Creating 2 pods",
    ),
    "a job whose own Service is there already does not make it twice": (
        two.service(Service.OURS),
        "+1.0 +1.1",
        "Pending",
        "Creating 2 pods",
    ),
}


@pytest.mark.parametrize(("scene", "plan", "state", "message"), TABLE.values(), ids=TABLE)
def test_a_job_s_life(scene: Scene, plan: str, state: str, message: str) -> None:
    assert verdict(scene) == (plan, state, message)


@pytest.mark.parametrize("scene", [row[0] for row in TABLE.values()], ids=TABLE)
def test_the_same_moment_gives_the_same_decision_also_to_an_operator_that_reads_the_status_anew(scene: Scene) -> None:
    assert scene.decision == scene.decision
    assert scene.read_anew().decision == scene.decision


@pytest.mark.parametrize("scene", [row[0] for row in TABLE.values()], ids=TABLE)
def test_once_carried_out_nothing_is_left_to_do_or_say(scene: Scene) -> None:
    settled = scene.settled()
    assert settled.decision == Decision(wake_at=settled.decision.wake_at)
