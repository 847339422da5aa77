"""After the end: what stays of a finished job, for how long, and that nothing starts it again."""

from typing import Any

from .builders import Moment, a_job
from .tables import Table, rows, verdict

HOLD = ["ddpjob-supervise", "--hold", "1800"]
HELD = {"spec": {"containers": [{"name": "trainer", "image": "any", "command": HOLD}]}}

two = a_job(nodes=2)
finished = two.running().succeeds(0, 1).settled()


def failed(**spec: Any) -> Moment:
    """Rank 0 has failed once too often while rank 1 ran; the decision was carried out and nothing has ended yet."""
    return a_job(nodes=2, restart={"maxRestarts": 0}, **spec).running().fails(0, message="boom").decided()


def done(**spec: Any) -> Moment:
    """Both ranks have finished."""
    return a_job(nodes=2, **spec).running().succeeds(0, 1).settled()


WHY = "Rank 0 failed: Application: boom; no restarts left (maxRestarts: 0)"
TABLE: Table = {
    # finished means finished
    "a finished job stays as it is": (
        finished,
        "",
        "Succeeded",
        "2 nodes finished",
    ),
    "a hold whose supervisors have ended had nothing to run": (
        done(template=HELD),
        "",
        "Succeeded",
        "The hold has ended, because no program has run for its idle time",
    ),
    "it does not miss its pods": (
        finished.vanishes(0, 1),
        "",
        "Succeeded",
        "2 nodes finished",
    ),
    "nor its Service": (
        finished.serves(),
        "",
        "Succeeded",
        "2 nodes finished",
    ),
    "it is not resized": (
        finished.asks(nodes=3),
        "",
        "Succeeded",
        "2 nodes finished",
    ),
    "it is not suspended": (
        finished.asks(suspend=True),
        "",
        "Succeeded",
        "2 nodes finished",
    ),
    "nor resumed": (
        failed().gone().settled().asks(suspend=True).settled().asks(suspend=False),
        "",
        "Failed",
        WHY,
    ),
    "a deadline that passes later is none": (
        done(activeDeadlineSeconds=60).after(60),
        "",
        "Succeeded",
        "2 nodes finished",
    ),
    "more restarts come too late": (
        failed().gone().settled().asks(restart={"maxRestarts": 9}),
        "",
        "Failed",
        WHY,
    ),
    "also where the end is only decided": (
        failed().asks(restart={"maxRestarts": 9}, nodes=3),
        "",
        "Running",
        f"Stopping 1 pod: {WHY}",
    ),
    "a pod of it that appears late is ended": (
        a_job(nodes=2, restart={"backoffSeconds": 0})
        .running()
        .fails(1)
        .restarted()
        .succeeds(0, 1)
        .settled()
        .comes_late(0),
        "-1.0/5",
        "Succeeded",
        "2 nodes finished",
    ),
    # what stays: cleanPodPolicy
    "what still runs is ended, and what has ended keeps its log": (
        failed().said(),
        "",
        "Running",
        f"Stopping 1 pod: {WHY}",
    ),
    "other containers end with the job": (
        finished.lingers(0),
        "-1.0/5",
        "Succeeded",
        "2 nodes finished",
    ),
    "where all pods are to go, they go when the job has finished": (
        failed(cleanPodPolicy="All").gone().decided(),
        "-1.0/5",
        "Failed",
        WHY,
    ),
    "those that finished as well": (
        a_job(nodes=2, cleanPodPolicy="All").running().succeeds(0, 1).decided(),
        "-1.0/5 -1.1/5",
        "Succeeded",
        "2 nodes finished",
    ),
    "where none is to go, what runs goes on, and the job has failed at once": (
        a_job(nodes=2, restart={"maxRestarts": 0}, cleanPodPolicy="None").running().fails(0, message="boom"),
        "",
        "Failed",
        WHY,
    ),
    "and it does after it": (
        failed(cleanPodPolicy="None").settled().lingers(0),
        "",
        "Failed",
        WHY,
    ),
    "a pod that is going anyway is waited for": (
        a_job(nodes=2, restart={"maxRestarts": 0}, cleanPodPolicy="None")
        .running()
        .fails(0, code=137, reason="OOMKilled")
        .deleted_by_hand(1),
        "",
        "Running",
        (
            "Stopping 1 pod: Rank 0 failed: OutOfMemory: killed by SIGKILL (1 more rank failed with it); "
            "no restarts left (maxRestarts: 0)"
        ),
    ),
    "a deadline is one all the same": (
        a_job(nodes=2, cleanPodPolicy="None", activeDeadlineSeconds=60).running().after(60),
        "!1.0 !1.1",
        "Running",
        "Stopping 2 pods: The job was active for longer than 60 s (activeDeadlineSeconds)",
    ),
    "and so is rank 0's success": (
        a_job(nodes=2, cleanPodPolicy="None", successPolicy="RankZero").running().succeeds(0),
        "-1.1/full",
        "Running",
        "Stopping 1 pod: Rank 0 finished",
    ),
    "a pod that only looked out for a place goes in any case": (
        a_job(nodes=2, cleanPodPolicy="None", elastic={"shrinkAfterSeconds": 60})
        .created()
        .placed(0)
        .after(60)
        .ready_again()
        .settled()
        .runs(0)
        .settled()
        .succeeds(0),
        "-2.1/5",
        "Running",
        "Stopping 1 pod: 1 node finished",
    ),
    "also one that comes late": (
        done(cleanPodPolicy="None").comes_late(2, incarnation=1),
        "-1.2/5",
        "Succeeded",
        "2 nodes finished",
    ),
    "another policy is heeded also after the end": (
        finished.asks(cleanPodPolicy="All"),
        "-1.0/5 -1.1/5",
        "Succeeded",
        "2 nodes finished",
    ),
    # for how long: ttlSecondsAfterFinished
    "a finished job stays its time": (
        done(ttlSecondsAfterFinished=60).after(59.9),
        "",
        "Succeeded",
        "2 nodes finished",
    ),
    "and is deleted after it": (
        done(ttlSecondsAfterFinished=60).after(60),
        "-job",
        "Succeeded",
        "2 nodes finished",
    ),
    "a failed one likewise": (
        failed(ttlSecondsAfterFinished=60).after(30).gone().settled().after(60),
        "-job",
        "Failed",
        WHY,
    ),
    "whose time begins when nothing of it runs any more": (
        failed(ttlSecondsAfterFinished=60).after(30).gone().settled().after(59),
        "",
        "Failed",
        WHY,
    ),
    "no time is no time": (
        done(ttlSecondsAfterFinished=0),
        "-job",
        "Succeeded",
        "2 nodes finished",
    ),
    "more time, given before it is over, is heeded": (
        done(ttlSecondsAfterFinished=60).asks(ttlSecondsAfterFinished=600).after(60),
        "",
        "Succeeded",
        "2 nodes finished",
    ),
    "and so is time that is given to a job that had for ever": (
        finished.after(100).asks(ttlSecondsAfterFinished=60),
        "-job",
        "Succeeded",
        "2 nodes finished",
    ),
    "a job that runs is never deleted": (
        a_job(nodes=2, ttlSecondsAfterFinished=0).running().after(1e6),
        "",
        "Running",
        "2 nodes running",
    ),
}


@rows(TABLE)
def test_after_the_end(moment: Moment, expected: tuple[str, str, str]) -> None:
    assert verdict(moment) == expected


def test_a_finished_job_says_when_and_keeps_its_history() -> None:
    moment = two.running().fails(1, message="ValueError: no").restarted().after(7).succeeds(0, 1).settled()
    assert moment.status.completion_time == moment.snapshot.now
    assert [failure.message for failure in moment.status.incidents] == ["ValueError: no"]
