"""What is known of an incident only after it was answered, and what follows from it."""

from typing import Any

import pytest
from ddpjob_operator.api import Budget, ConditionType

from tests.support.exit_codes import among

from .builders import Moment, a_job
from .tables import Table, rows, verdict

PEER = "RuntimeError: [gloo] Connection closed by peer"


def gang(**restart: Any) -> Moment:
    return a_job(nodes=2, restart={"backoffSeconds": 0, **restart}).running()


def peer_lost(moment: Moment) -> Moment:
    """Rank 0 has lost a peer, and that was answered; nothing is known yet of rank 1, which was told to stop."""
    return moment.fails(0, message=PEER, at=-10).decided()


def looping(moment: Moment) -> Moment:
    """Rank 0 has failed at the same step twice, and the gang runs again."""
    for _ in range(2):
        moment = moment.reports(0, message="no", step=7).restarted()
    return moment


def resumed(moment: Moment) -> Moment:
    """It was suspended, and resumed a day later."""
    return moment.suspended().after(86400).asks(suspend=False).decided(2)


three_fails = {"rules": [{"exitCodes": among(3), "action": "Fail"}]}
three_is_free = {"rules": [{"exitCodes": among(3), "action": "RestartFree"}]}
no_oom = {"rules": [{"causes": ["OutOfMemory"], "action": "Fail"}]}
oom_is_free = {"rules": [{"causes": ["OutOfMemory"], "action": "RestartFree"}], "backoffSeconds": 0}
free_oom = a_job(nodes=3, restart=oom_is_free).running().fails(0).restarted()
silent = peer_lost(gang()).overdue(1)
refused = peer_lost(gang(maxRestarts=0))
third = looping(gang()).after(20).reports(0, message="no", step=7, cause="PeerLost", at=-10).decided()

NO_NODE = "0 of 2 pods running; rank 0 and 1 more: waiting to be scheduled"
LOST_PEER = f"Rank 0 failed: PeerLost: {PEER}"
NODE_LOST = "Rank 1 failed: NodeLost: Kubernetes node node-1 does not answer (1 more rank failed with it)"
OOM = "Rank 1 failed: OutOfMemory: killed by SIGKILL (1 more rank failed with it)"
TABLE: Table = {
    # answered by a restart
    "while nothing more is known the next attempt waits for the pods": (
        peer_lost(gang()),
        "",
        "Restarting",
        "Waiting for 1 pod of the previous attempt to stop",
    ),
    "a pod that goes without a word was the one that was lost": (
        silent,
        "",
        "Restarting",
        f"{NODE_LOST}; restart (not counted)",
    ),
    "and the gang starts again without it": (
        silent.decided(),
        "-1.0/5",
        "Restarting",
        "Removing the pods of the previous attempt",
    ),
    "a pod that ended because it was told to says nothing new": (
        peer_lost(gang(**no_oom)).former_fails(1, code=137),
        "+2.0 +2.1",
        "Restarting",
        "Creating 2 of 2 pods",
    ),
    "the rules are asked again when more is known, and may say Fail": (
        peer_lost(gang(**no_oom)).former_fails(1, code=137, reason="OOMKilled"),
        "",
        "Failed",
        OOM,
    ),
    "also where the size is to change": (
        peer_lost(gang(**no_oom)).asks(nodes=3).former_fails(1, code=137, reason="OOMKilled"),
        "",
        "Failed",
        OOM,
    ),
    "which does not keep a lost node from being free": (
        silent.asks(nodes=3),
        "",
        "Restarting",
        f"{NODE_LOST}; restart (not counted)",
    ),
    # judged once
    "what was answered by a restart is not judged anew when the job resumes: that it could not start": (
        resumed(gang().fails(1, code=128, reason="StartError", message="no such file").restarted()),
        "",
        "Starting",
        NO_NODE,
    ),
    "nor by a rule that came later": (
        resumed(gang().fails(1, code=3).restarted().asks(restart=three_fails)),
        "",
        "Starting",
        NO_NODE,
    ),
    "be it after a resize": (
        gang().fails(1, code=3).restarted().asks(restart=three_fails, nodes=3).decided().gone().decided(),
        "",
        "Restarting",
        "0 of 3 pods running; rank 0 and 2 more: waiting to be scheduled",
    ),
    "nor, while the next attempt waits for the pods": (
        gang().fails(0, code=3).decided().asks(restart=three_fails),
        "",
        "Restarting",
        "Waiting for 1 pod of the previous attempt to stop",
    ),
    "but by the rules of the moment where more is known": (
        peer_lost(gang()).asks(restart=no_oom).former_fails(1, code=137, reason="OOMKilled"),
        "",
        "Failed",
        OOM,
    ),
    "a rule that came later does not excuse the end": (
        refused.asks(restart={"rules": [{"causes": ["PeerLost"], "action": "RestartFree"}]}),
        "",
        "Running",
        f"Stopping 1 pod: {LOST_PEER}; no restarts left (maxRestarts: 0)",
    ),
    # answered by the end
    "one restart too many is the end": (
        refused,
        "",
        "Running",
        f"Stopping 1 pod: {LOST_PEER}; no restarts left (maxRestarts: 0)",
    ),
    "unless it turns out to be a disruption": (
        refused.overdue(1),
        "-1.0/5",
        "Restarting",
        f"{NODE_LOST}; restart (not counted) in 0.0 s",
    ),
    "after which the job goes on": (
        refused.overdue(1).decided(),
        "+2.0 +2.1",
        "Restarting",
        "Creating 2 of 2 pods",
    ),
    "another failure is no disruption, and it is the one that is told": (
        refused.fails(1, code=137, reason="OOMKilled"),
        "",
        "Failed",
        f"{OOM}; no restarts left (maxRestarts: 0)",
    ),
    "nor does a node that is lost at its end excuse an error": (
        gang(maxRestarts=0).fails(0, message="ValueError: no").decided().overdue(1),
        "",
        "Failed",
        "Rank 0 failed: Application: ValueError: no; no restarts left (maxRestarts: 0)",
    ),
    "a crash loop is the end": (
        third,
        "",
        "Running",
        "Stopping 1 pod: Rank 0 failed: PeerLost: no; three times in a row training got no further than step 7",
    ),
    "unless its last turn was a disruption": (
        third.overdue(1),
        "-3.0/5",
        "Restarting",
        f"{NODE_LOST}; restart (not counted) in 0.0 s",
    ),
    "a disruption too many is the end all the same": (
        peer_lost(gang(maxRestarts=0, maxDisruptions=0)).overdue(1),
        "",
        "Failed",
        f"{NODE_LOST}; no restarts left (maxRestarts: 0)",
    ),
    "a deadline is one, whoever was lost": (
        peer_lost(a_job(nodes=2, activeDeadlineSeconds=60).running()).after(60).decided().overdue(1),
        "",
        "Failed",
        "The job was active for longer than 60 s (activeDeadlineSeconds)",
    ),
    "what is over is not looked back on": (
        refused.gone().settled().overdue(),
        "",
        "Failed",
        f"{LOST_PEER}; no restarts left (maxRestarts: 0)",
    ),
}


@rows(TABLE)
def test_hindsight(moment: Moment, expected: tuple[str, str, str]) -> None:
    assert verdict(moment) == expected


# Restarts, disruptions, and what is used of the budget.
ACCOUNTS: dict[str, tuple[Moment, int, int, Budget]] = {
    "a lost peer costs a restart": (peer_lost(gang()), 1, 0, Budget(used=1, streak=1)),
    "which is given back when its node turns out to be lost": (
        silent.decided(),
        *(0, 1, Budget(disruptions=1, streak=1)),
    ),
    "once": (silent.settled(), 0, 1, Budget(disruptions=1, streak=1)),
    "and not where no disruption is left": (
        peer_lost(gang(maxDisruptions=0)).overdue(1).decided(),
        *(1, 0, Budget(used=1, streak=1)),
    ),
    "and only that one": (
        peer_lost(gang().fails(0).restarted()).overdue(1).decided(),
        *(1, 1, Budget(used=1, disruptions=1, streak=2)),
    ),
    "a failure that ended the job has cost nothing": (refused, 0, 0, Budget()),
    "and costs a disruption when it turns out to be one": (
        refused.overdue(1).decided(),
        *(0, 1, Budget(disruptions=1, streak=1)),
    ),
    "nor does a rule that came later give one back": (
        gang().fails(1, code=3).restarted().asks(restart=three_is_free, nodes=3).settled(),
        *(1, 0, Budget(used=1, streak=1)),
    ),
    "a disruption stays one, whatever comes to light": (
        gang().deleted_by_hand(0).decided().former_fails(1, code=137, reason="OOMKilled").decided(),
        *(0, 1, Budget(disruptions=1, streak=1)),
    ),
    "and what it has not cost is not given back": (
        free_oom.fails(0, code=143).decided().former_fails(1).decided().former_fails(2, reason="OOMKilled").decided(),
        *(1, 1, Budget(used=1, disruptions=1, streak=2)),
    ),
}


@pytest.mark.parametrize(("moment", "restarts", "disruptions", "budget"), ACCOUNTS.values(), ids=ACCOUNTS)
def test_what_hindsight_costs(moment: Moment, restarts: int, disruptions: int, budget: Budget) -> None:
    assert (moment.status.restarts, moment.status.disruptions, moment.status.bookkeeping.budget) == (
        restarts,
        disruptions,
        budget,
    )


def test_what_is_learned_corrects_the_history_and_adds_nothing_to_it() -> None:
    known = silent.decided().status
    assert [(failure.node, failure.cause, failure.action) for failure in known.incidents] == [
        (1, "NodeLost", "RestartFree")
    ]


def test_what_is_learned_of_the_last_incident_leaves_those_before_it_as_they_are() -> None:
    before = gang().fails(1, code=3).restarted()
    known = peer_lost(before).former_fails(1, code=137, reason="OOMKilled").decided().status
    assert [(failure.attempt, failure.cause) for failure in known.incidents] == [
        (2, "OutOfMemory"),
        (1, "Application"),
    ]
    assert known.incidents[1:] == before.status.incidents


def test_the_history_says_of_an_incident_what_it_has_cost() -> None:
    known = (
        gang()
        .deleted_by_hand(0)
        .fails(0, code=143)
        .decided()
        .former_fails(1, code=137, reason="OOMKilled")
        .decided()
        .status.last_incident
    )
    assert known is not None
    assert (known.node, known.cause, known.action) == (1, "OutOfMemory", "RestartFree")


def test_a_job_that_was_excused_does_not_say_any_more_that_it_will_fail() -> None:
    excused = refused.overdue(1).decided()
    assert not excused.status.is_true(ConditionType.FAILURE_TARGET)
    running = excused.restarted()
    assert running.status.state == "Running"
    failed = running.fails(0).settled().gone().settled()
    assert failed.status.state == "Failed"


def test_a_job_that_was_excused_waits_as_long_as_it_says_before_it_starts_again() -> None:
    job = a_job(nodes=2, restart={"maxRestarts": 0, "backoffSeconds": 10})
    excused = job.running().fails(0, message="Broken pipe", at=-10).decided().overdue(1).decided()
    assert excused.status.backoff_until is not None
    wait = (excused.status.backoff_until - excused.snapshot.now).total_seconds()
    assert 8.0 <= wait <= 10.0
    assert excused.status.message.endswith(f"restart (not counted) in {wait:.1f} s")


def test_an_incident_that_was_seen_only_in_part_is_told_in_the_end_of_the_job() -> None:
    failed = refused.fails(1, code=137, reason="OOMKilled").settled()
    assert failed.status.last_incident is not None
    assert (failed.status.last_incident.cause, failed.status.last_incident.node) == ("OutOfMemory", 1)


def test_the_sentence_names_the_rank_that_the_failure_names() -> None:
    """Also where only the rank turns out to be another one, and the cause is the same."""
    later = gang().fails(0, message="ValueError: no").decided().former_fails(1, message="KeyError: 3", at=-5).said()
    failure = later.status.last_incident
    assert failure is not None
    assert (failure.node, failure.message) == (1, "KeyError: 3")
    assert later.status.message.startswith("Rank 1 failed: Application: KeyError: 3 (1 more rank failed with it)")
