"""Restarts in place: what supervisors answer by themselves is charged, and a pod that is lost is replaced alone."""

import json
from datetime import timedelta
from typing import Any

import pytest
from ddpjob_operator.api import Budget
from ddpjob_operator.engine import CreatePod
from ddpjob_operator.engine.changes import changed

from tests.support.exit_codes import among, other_than
from tests.support.variables import variables_of

from .builders import START, Moment, a_job, plan, told
from .tables import Table, rows, verdict

NO_WAIT = {"backoffSeconds": 0}
SERVICE = "digits-8cx92"


def an_incident(attempt: int, **other: Any) -> dict[str, Any]:
    """An incident that ended an attempt, as a supervisor tells it."""
    time = START.isoformat().replace("+00:00", "Z")
    node = other.get("node", 1)
    told = {"attempt": attempt, "time": time, "node": node, "rank": node, "cause": "Application", "exitCode": 137}
    return {**told, "signal": 9, "message": "killed by SIGKILL", "step": 100 + attempt, **other}


def test_the_next_program_of_a_held_gang_is_the_next_attempt_and_no_restart() -> None:
    held = supervised().hears("Holding", attempt=2, hold={"message": "held: train.py has ended"})
    assert plan(held) == ""
    status = held.settled().status
    assert (status.attempt, status.restarts, status.incidents) == (2, 0, ())


def test_a_held_gang_has_the_progress_of_the_program_that_runs_and_else_none() -> None:
    runs = {"hold": {"message": "held: train.py runs"}}
    first = supervised().hears(attempt=2, progress={"step": 300, "attempt": 2}, **runs).settled()
    assert first.status.display.progress == "step 300"
    gathers = first.hears("Gathering", attempt=2, hold={"message": "held: train.py has ended"}, missing=[1]).settled()
    holds = first.hears("Holding", attempt=3, hold={"message": "held: train.py has ended"}).settled()
    begins = holds.hears("Running", attempt=3, **runs).settled()
    for moment in (gathers, holds, begins):
        assert (moment.status.progress, moment.status.display.progress) == (None, "")


def supervised(**restart: Any) -> Moment:
    """Three nodes that run, and whose supervisors were heard."""
    return a_job(nodes=3, restart=restart).running().hears().settled()


@told
def as_reported(moment: Moment, then: Moment) -> Moment:
    """All that was heard is what was heard then."""
    return moment.but(report=then.snapshot.report)


gang = supervised().after(60)
again = gang.hears(attempt=2, incidents=[an_incident(1)])
both = gang.hears(attempt=3, incidents=[an_incident(1), an_incident(2, node=2, cause="StorageFull")])
gave_up = again.settled().fails(0, code=204, at=-10).decided()
WORDS = {"cause": "Application", "message": "killed by SIGKILL"}
SILENT = "Rank 1 failed: NodeLost: Kubernetes node node-1 is not ready: silent"
same_step = [an_incident(attempt, step=7) for attempt in (1, 2, 3)]
LATER = (START + timedelta(seconds=30)).isoformat()
TODAY = (START + timedelta(hours=10)).isoformat()

evicted = gang.disrupted(1, "EvictionByEvictionAPI", "a drain")
killed = gang.fails(1, code=137, message="step 12: loss 0.3")
waits_for_1 = gang.hears("Gathering", missing=[1])
replaced = evicted.decided().gone().decided()
saves = gang.disrupted(1, "EvictionByEvictionAPI", "a drain", seconds=600)
two_lost = evicted.decided().after(1).disrupted(2, "EvictionByEvictionAPI", "a drain")
all_lost = two_lost.decided().after(1).disrupted(0, "EvictionByEvictionAPI", "a drain")
gathers = a_job(nodes=3).running().hears("Gathering", missing=[1])
all_lost_in_a_wait = (
    replaced.runs(1)
    .hears(attempt=2)
    .settled()
    .after(5)
    .disrupted(1, "EvictionByEvictionAPI", "a drain")
    .decided()
    .after(1)
    .disrupted(0, "EvictionByEvictionAPI", "a drain")
    .disrupted(2, "EvictionByEvictionAPI", "a drain")
    .decided()
    .gone()
)
new_first = gang.deleted_by_hand(0).decided().gone().decided().runs(0)
unasked = (
    replaced.runs(1).decided().hears("Gathering", attempt=1, missing=[1]).decided().hears_nothing("refused").after(31)
)
long_since = replaced.runs(1).hears(attempt=2).settled().after(36000).hears(attempt=2).settled()
rank_zero = (
    a_job(nodes=3, successPolicy="RankZero")
    .running()
    .hears()
    .settled()
    .disrupted(1, "EvictionByEvictionAPI", "a drain")
)
dead_node = waits_for_1.after(60).node_has("node-1", "is not ready: silent")

stalls_and_waits = (
    gang.after(1).hears("Gathering", attempt=2, incidents=[an_incident(1, cause="Stalled", signal=None)], missing=[1])
).settled()

IN_PLACE = "Rank 1 failed: Application: killed by SIGKILL; restart 1 of 6, in place"
EVICTED = "Rank 1 failed: Evicted: a drain"
KILLED = "Rank 1 failed: Application: killed by SIGKILL; restart 1 of 6"
UNHEARD = "Rank 1 failed: PeerLost: rank 1's supervisor has not answered rank 0's for 60 s; restart 1 of 6 in 0.9 s"
LOOPS = (
    "Stopping 3 pods: Rank 1 failed: Application: killed by SIGKILL; three times in a row training got no further "
    "than step 7"
)
TABLE: Table = {
    # what supervisors did
    "a new pod that runs waits for a node no more, be it that nobody has said more yet": (
        replaced.decided().runs(1),
        "",
        "Restarting",
        f"{EVICTED}; restart (not counted); replacing its pod",
    ),
    "a restart in place costs what any other costs, and touches no pod": (again, "", "Restarting", IN_PLACE),
    "and then the job runs again": (again.decided(), "", "Running", "3 nodes running"),
    "but not before its ranks do": (
        gang.hears("Preflight", attempt=2, incidents=[an_incident(1)]).decided(),
        "",
        "Restarting",
        IN_PLACE,
    ),
    "for which rank 0 may have to wait for another": (
        gang.hears("Gathering", attempt=2, incidents=[an_incident(1)], missing=[1]).decided(),
        "",
        "Restarting",
        "Rank 0's supervisor is waiting for rank 1",
    ),
    "nor is that said any longer than it is so": (
        gang.hears("Gathering", attempt=2, incidents=[an_incident(1)], missing=[1]).decided(2).hears("Preflight"),
        "",
        "Restarting",
        IN_PLACE,
    ),
    "an operator that was restarted meanwhile waits until it has heard": (
        again.decided().awaits_report(),
        "",
        "Restarting",
        IN_PLACE,
    ),
    "but not for ever": (
        again.decided().hears("Preflight").hears_nothing("no route to host").after(30),
        "",
        "Running",
        "3 nodes running; no route to host",
    ),
    "an incident is charged once, as often as it is heard of": (
        again.settled().hears(attempt=2, incidents=[an_incident(1)]),
        "",
        "Running",
        "3 nodes running",
    ),
    "of several that are heard of at once each is charged": (
        gang.hears(attempt=3, incidents=[an_incident(1), an_incident(2, node=2, message="no")]).decided(),
        "",
        "Restarting",
        "Rank 2 failed: Application: no; restart 2 of 6, in place",
    ),
    "one that has not been answered yet is not: the pods will tell of it": (
        gang.hears("Stopping", attempt=1, incidents=[an_incident(1)]),
        "",
        "Running",
        "3 nodes running",
    ),
    "unless the others wait already: then it is answered": (
        gang.hears("Gathering", attempt=1, incidents=[an_incident(1)], missing=[2]).decided(),
        "",
        "Restarting",
        "Rank 0's supervisor is waiting for rank 2",
    ),
    "a new attempt without a word of why is taken note of": (
        gang.hears(attempt=4),
        "",
        "Running",
        "3 nodes running",
    ),
    "what a former rank 0 said is none of it": (
        as_reported(gang.deleted_by_hand(0).decided().gone().decided(), again),
        "",
        "Restarting",
        "2 of 3 pods running; rank 0: waiting to be scheduled",
    ),
    # where that is the end
    "what the rules call final is, be it answered already": (
        supervised(rules=[{"signals": ["SIGKILL"], "action": "Fail"}]).hears(attempt=2, incidents=[an_incident(1)]),
        "!1.1 -1.0/5 -1.2/5",
        "Running",
        ("Stopping 3 pods: Rank 1 failed: Application: killed by SIGKILL (spec.restart.rules[0] says Fail)"),
    ),
    "so is what no rule has to name": (
        both.decided(),
        "!1.2 -1.0/5 -1.1/5",
        "Restarting",
        "Stopping 3 pods: Rank 2 failed: StorageFull: killed by SIGKILL",
    ),
    "and what they call so once more is known": (
        supervised(rules=[{"causes": ["NodeLost"], "action": "Fail"}])
        .after(60)
        .hears("Gathering", attempt=2, incidents=[an_incident(1, cause="PeerLost")], missing=[1])
        .settled()
        .node_dies(1),
        "-1.0/5 -1.1/5 -1.2/5",
        "Restarting",
        ("Stopping 3 pods: Rank 1 failed: NodeLost: Taint manager: deleting due to NoExecute taint"),
    ),
    "and one restart too many": (
        supervised(maxRestarts=0).hears(attempt=2, incidents=[an_incident(1)]),
        "!1.1 -1.0/5 -1.2/5",
        "Running",
        ("Stopping 3 pods: Rank 1 failed: Application: killed by SIGKILL; no restarts left (maxRestarts: 0)"),
    ),
    "and a crash loop": (
        gang.hears(attempt=4, incidents=same_step).decided(2),
        "!1.1 -1.0/5 -1.2/5",
        "Restarting",
        LOOPS,
    ),
    "but where training has gone on meanwhile, and further, it is none": (
        gang.hears(attempt=4, incidents=same_step, progress={"step": 8, "lastStepTime": LATER}).decided(2),
        "",
        "Restarting",
        "Rank 1 failed: Application: killed by SIGKILL; restart 3 of 6, in place",
    ),
    "going on as far as before is one": (
        gang.hears(attempt=4, incidents=same_step, progress={"step": 7, "lastStepTime": LATER}).decided(2),
        "!1.1 -1.0/5 -1.2/5",
        "Restarting",
        LOOPS,
    ),
    "and so is what was further before": (
        gang.hears(attempt=4, incidents=same_step, progress={"step": 8, "lastStepTime": START.isoformat()}).decided(
            2
        ),
        "!1.1 -1.0/5 -1.2/5",
        "Restarting",
        LOOPS,
    ),
    # a pod that is lost
    "a pod that is taken away is replaced alone, at once": (
        evicted,
        "",
        "Restarting",
        f"{EVICTED}; restart (not counted); replacing its pod",
    ),
    "once it has ended": (evicted.decided(), "", "Restarting", "Waiting for 1 pod of the previous attempt to stop"),
    "and not before": (evicted.decided().gone(), "+2.1", "Restarting", "Creating 1 of 3 pods"),
    "however long it takes to go": (
        evicted.decided().after(720).gone(),
        "+2.1",
        "Restarting",
        "Creating 1 of 3 pods",
    ),
    "the others wait for it": (
        replaced,
        "",
        "Restarting",
        "2 of 3 pods running; rank 1: waiting to be scheduled",
    ),
    "until all train again": (
        replaced.runs(1).decided().hears("Gathering", missing=[1]),
        "",
        "Restarting",
        "Rank 0's supervisor is waiting for rank 1",
    ),
    "and then the job runs again, with a pod that is younger than the others": (
        replaced.runs(1).decided().hears(attempt=2),
        "",
        "Running",
        "3 nodes running",
    ),
    "rank 0 is replaced as well": (
        gang.deleted_by_hand(0).decided().gone(),
        "+2.0",
        "Restarting",
        "Creating 1 of 3 pods",
    ),
    "a pod that vanished is": (
        gang.vanishes(2),
        "",
        "Restarting",
        "Rank 2 failed: PodDeleted: the pod vanished; restart (not counted); replacing its pod",
    ),
    "so is one whose supervisor was killed, which counts and stays for its log": (
        killed,
        "",
        "Restarting",
        f"{KILLED}; replacing its pod in 0.9 s",
    ),
    "after a wait": (killed.decided().after(1), "+2.1", "Restarting", "Creating 1 of 3 pods"),
    "for want of memory too": (
        gang.fails(1, code=137, reason="OOMKilled"),
        "",
        "Restarting",
        "Rank 1 failed: OutOfMemory: killed by SIGKILL; restart 1 of 6; replacing its pod in 0.9 s",
    ),
    "two pods that go at once are one incident": (
        gang.node_dies(1, 2),
        "-1.1/5 -1.2/5",
        "Restarting",
        (
            "Rank 1 failed, one of several at the same moment: NodeLost: Taint manager: deleting due to NoExecute "
            "taint (1 more rank failed with it); restart (not counted); replacing 2 pods"
        ),
    ),
    "so are two that go one after the other": (
        two_lost,
        "",
        "Restarting",
        f"{EVICTED} (1 more rank failed with it); restart (not counted); replacing its pod",
    ),
    "and both have their time to save": (
        saves.decided().after(1).disrupted(2, "EvictionByEvictionAPI", "a drain", seconds=600),
        "",
        "Restarting",
        f"{EVICTED} (1 more rank failed with it); restart (not counted); replacing its pod",
    ),
    "of which both are replaced": (two_lost.decided().gone(), "+2.1 +2.2", "Restarting", "Creating 2 of 3 pods"),
    "and all that there are, where none is left that could wait": (
        all_lost,
        "",
        "Restarting",
        f"{EVICTED} (2 more ranks failed with it); restart (not counted)",
    ),
    "of which all are replaced": (all_lost.decided().gone(), "+3.0 +3.1 +3.2", "Restarting", "Creating 3 of 3 pods"),
    "even if a new pod exists that has no node yet": (
        replaced.after(1)
        .disrupted(0, "EvictionByEvictionAPI", "a drain")
        .disrupted(2, "EvictionByEvictionAPI", "a drain"),
        "-2.1/full",
        "Restarting",
        f"{EVICTED} (2 more ranks failed with it); restart (not counted)",
    ),
    "a second disruption on the heels of the first waits": (
        replaced.runs(1).after(5).disrupted(1, "EvictionByEvictionAPI", "a drain"),
        "",
        "Restarting",
        f"{EVICTED}; restart (not counted); replacing its pod in 2.0 s",
    ),
    "so does the whole gang if all others are lost meanwhile": (
        all_lost_in_a_wait.after(0.9),
        "",
        "Restarting",
        f"{EVICTED} (2 more ranks failed with it); restart (not counted)",
    ),
    "but only for what is left of that wait": (
        all_lost_in_a_wait.after(1.0),
        "+4.0 +4.1 +4.2",
        "Restarting",
        "Creating 3 of 3 pods",
    ),
    "a gang that starts again as a whole has all pods of an age": (
        replaced.runs(1).hears(attempt=2).settled().reports(0, message="no").decided().gone().after(9),
        "+3.0 +3.1 +3.2",
        "Restarting",
        "Creating 3 of 3 pods",
    ),
    # where the whole gang has to go
    "supervisors that give up say so, and all go": (
        gang.reports(1, code=137, cause="Application", message="two attempts got nowhere").fails(0, 2, code=204),
        "-1.0/5 -1.2/5",
        "Restarting",
        (
            "Rank 1 failed: Application: two attempts got nowhere (2 more ranks failed with it); restart 1 of 6 in "
            "0.9 s"
        ),
    ),
    "one that failed in place before, and now for good, is the first one all the same": (
        gave_up.former_fails(1, code=137, message=json.dumps({**WORDS, "attempt": 2})).decided(),
        "-1.0/5",
        "Restarting",
        "Rank 1 failed: Application: killed by SIGKILL (1 more rank failed with it); restart 2 of 6",
    ),
    "but not by what it said of then": (
        gave_up.former_fails(1, code=137, message=json.dumps({**WORDS, "attempt": 1})).decided(),
        "",
        "Restarting",
        "Rank 0 failed: PeerLost: exit code 204; restart 2 of 6 in 2.0 s",
    ),
    "with mode Recreate they always do": (
        supervised(mode="Recreate").disrupted(1, "EvictionByEvictionAPI", "a drain"),
        "-1.0/full -1.2/full",
        "Restarting",
        f"{EVICTED}; restart (not counted) in 0.9 s",
    ),
    "and where no supervisor was ever heard": (
        a_job(nodes=3).running().disrupted(1, "EvictionByEvictionAPI", "a drain"),
        "-1.0/full -1.2/full",
        "Restarting",
        f"{EVICTED}; restart (not counted) in 0.9 s",
    ),
    "one that was heard once need not be heard now": (
        evicted.awaits_report(),
        "",
        "Restarting",
        f"{EVICTED}; restart (not counted); replacing its pod",
    ),
    "where a rank has finished, it cannot start again alone": (
        gang.succeeds(2).disrupted(1, "EvictionByEvictionAPI", "a drain"),
        "-1.0/full -1.2/full",
        "Restarting",
        f"{EVICTED}; restart (not counted) in 0.9 s",
    ),
    "be the pod gone of the one that has": (
        gang.succeeds(2).settled().vanishes(2).settled().disrupted(1, "EvictionByEvictionAPI", "a drain"),
        "-1.0/full",
        "Restarting",
        f"{EVICTED}; restart (not counted) in 0.9 s",
    ),
    "nor where that is found out when its new pod is to be made": (
        evicted.decided().gone().succeeds(0),
        "-1.0/full -1.2/full",
        "Restarting",
        f"{EVICTED}; restart (not counted); rank 0 has finished, so the whole gang starts again",
    ),
    "which leaves the lost one its time to save": (
        saves.decided().succeeds(0),
        "-1.0/full -1.2/full",
        "Restarting",
        f"{EVICTED}; restart (not counted); rank 0 has finished, so the whole gang starts again",
    ),
    "or runs already, and waits for what will not come": (
        killed.decided().after(1).settled().runs(1).succeeds(0),
        "-1.0/5 -1.2/5 -2.1/5",
        "Restarting",
        f"{KILLED}; rank 0 has finished, so the whole gang starts again",
    ),
    "be rank 0 the one that waits": (
        new_first.hears("Gathering", missing=[1]).succeeds(1),
        "-1.1/full -1.2/full -2.0/full",
        "Restarting",
        (
            "Rank 0 failed: PodDeleted: the pod is being deleted; restart (not counted); rank 1 has finished, so "
            "the whole gang starts again"
        ),
    ),
    "with the time that it was to wait": (
        killed.decided().succeeds(0).decided().gone(),
        "",
        "Restarting",
        f"{KILLED}; rank 0 has finished, so the whole gang starts again",
    ),
    "also where its supervisor could not be asked for a while, and then misses the one that finished": (
        unasked.decided().succeeds(2).hears("Gathering", attempt=2, missing=[2]),
        "-1.0/full -1.2/full -2.1/full",
        "Restarting",
        f"{EVICTED}; restart (not counted); rank 2 has finished, so the whole gang starts again",
    ),
    "be the pod gone of the one that is missed": (
        unasked.decided().succeeds(2).settled().vanishes(2).hears("Gathering", attempt=2, missing=[2]),
        "-1.0/full -2.1/full",
        "Restarting",
        f"{EVICTED}; restart (not counted); rank 2 has finished, so the whole gang starts again",
    ),
    "or where the operator is another one by then, and the pods' times tell": (
        replaced.succeeds(2).after(5).runs(1).awaits_report(),
        "-1.0/full -1.2/full -2.1/full",
        "Restarting",
        f"{EVICTED}; restart (not counted); rank 2 has finished, so the whole gang starts again",
    ),
    "which may have missed that all trained with the new pod": (
        replaced.runs(1).decided().after(7200).awaits_report().succeeds(0, 2),
        "",
        "Restarting",
        f"{EVICTED}; restart (not counted); replacing its pod",
    ),
    "a pod that was replaced long ago does not wait": (
        long_since.hears("Preflight", attempt=3, incidents=[an_incident(2, time=TODAY)]).settled().succeeds(2),
        "",
        "Restarting",
        IN_PLACE,
    ),
    "nor does one that has finished itself, be its pod gone": (
        replaced.runs(1).decided().succeeds(1).settled().vanishes(1),
        "",
        "Restarting",
        f"{EVICTED}; restart (not counted); replacing its pod",
    ),
    "nor does one that has finished itself": (
        replaced.runs(1).succeeds(1),
        "",
        "Restarting",
        f"{EVICTED}; restart (not counted); replacing its pod",
    ),
    "where rank 0 alone counts and is done, it may end": (
        rank_zero.decided().gone().decided().runs(1).hears("Done", attempt=1).succeeds(2),
        "",
        "Restarting",
        f"{EVICTED}; restart (not counted); replacing its pod",
    ),
    "but one that finishes together with the new pod has finished": (
        replaced.runs(1).hears(attempt=2).succeeds(0),
        "",
        "Running",
        "1 of 3 nodes finished: rank 0",
    ),
    "also where all of it happens between two looks": (
        replaced.runs(1).hears("Done", attempt=2).succeeds(0),
        "",
        "Running",
        "1 of 3 nodes finished: rank 0",
    ),
    "where nobody is left to wait, all are new": (
        a_job().running().hears().settled().deleted_by_hand(0),
        "",
        "Restarting",
        "Rank 0 failed: PodDeleted: the pod is being deleted; restart (not counted) in 0.9 s",
    ),
    "a new pod that finds no place is not waited for for ever": (
        replaced.after(720),
        "-1.0/5 -1.2/5 -2.1/5",
        "Pending",
        (
            "2 of 3 pods could be scheduled within 600 s (scheduleTimeoutSeconds): stopping all pods, and "
            "trying again in 2.0 s"
        ),
    ),
    # a supervisor that rank 0's does not hear
    "a supervisor that is missed has its time": (
        waits_for_1.after(59),
        "",
        "Running",
        "Rank 0's supervisor is waiting for rank 1",
    ),
    "then all pods are replaced, and its own keeps its log": (
        waits_for_1.after(60),
        "!1.1 -1.0/5 -1.2/5",
        "Restarting",
        UNHEARD,
    ),
    "unless its node turns out to be lost: then only that rank's": (
        dead_node,
        "-1.1/5",
        "Restarting",
        f"{SILENT}; restart (not counted); replacing its pod",
    ),
    "what was heard long ago tells of nobody who is missed now": (
        waits_for_1.hears_nothing("refused").after(60),
        "",
        "Running",
        "Rank 0's supervisor is waiting for rank 1",
    ),
    "it has it also where rank 0's node is in another time": (
        supervised()
        .after(600)
        .hears("Gathering", began=-91, now=(START + timedelta(seconds=510)).isoformat(), missing=[1])
        .after(58),
        "",
        "Running",
        "Rank 0's supervisor is waiting for rank 1",
    ),
    "the time of a pod that started later counts from there": (
        supervised().hears("Gathering", began=-300, missing=[1]).after(59),
        "",
        "Running",
        "Rank 0's supervisor is waiting for rank 1",
    ),
    "in the first gathering a new supervisor has its time as well": (
        gathers.after(59),
        "",
        "Running",
        "Rank 0's supervisor is waiting for rank 1",
    ),
    "and one that never comes is given up just so": (
        gathers.after(60),
        "!1.1 -1.0/5 -1.2/5",
        "Restarting",
        UNHEARD,
    ),
    "unless its node turns out to be lost, then too": (
        gathers.after(60).node_has("node-1", "is not ready: silent"),
        "-1.1/5",
        "Restarting",
        f"{SILENT}; restart (not counted); replacing its pod",
    ),
    "an image that took long to come takes nothing of that time": (
        a_job(nodes=2).created().runs(0).hears("Gathering", missing=[1]).after(300).runs(1).after(59),
        "",
        "Running",
        "Rank 0's supervisor is waiting for rank 1",
    ),
    "nobody is given up while rank 0 itself has said nothing": (
        a_job(nodes=3).running().hears_nothing("nothing listens there").after(1e6),
        "",
        "Running",
        "3 nodes running",
    ),
    "a new rank 0 waits for the others just so": (
        new_first.hears("Gathering", missing=[1]).after(59),
        "",
        "Restarting",
        "Rank 0's supervisor is waiting for rank 1",
    ),
    "and one whose pod does not run is not missed": (
        replaced.hears("Gathering", began=-300, missing=[1]).after(300),
        "",
        "Restarting",
        "2 of 3 pods running; rank 1: waiting to be scheduled",
    ),
}


@rows(TABLE)
def test_restarts_in_place(moment: Moment, expected: tuple[str, str, str]) -> None:
    assert verdict(moment) == expected


# Restarts, disruptions, what is used of the budget, and the attempt that follows.
@told
def evicted_at(step: int | None, moment: Moment) -> Moment:
    """Rank 0's pod is evicted a minute after it finished a step, or any, and a new one runs with the others."""
    then = moment.after(60)
    if step is not None:
        then = then.hears(progress={"step": step, "lastStepTime": then.snapshot.now.isoformat()}).settled()
    return (
        then.disrupted(0, "EvictionByEvictionAPI")
        .settled()
        .gone()
        .settled()
        .after(60)
        .settled()
        .runs(0)
        .hears()
        .settled()
    )


ACCOUNTS: dict[str, tuple[Moment, int, int, Budget, int]] = {
    "a restart in place counts": (again.decided(), 1, 0, Budget(used=1, streak=1), 2),
    "once": (
        again.settled().hears(attempt=2, incidents=[an_incident(1)]).settled(),
        1,
        0,
        Budget(used=1, streak=1),
        2,
    ),
    "an operator that dies after it has said so counts it once": (
        again.said().settled(),
        *(1, 0, Budget(used=1, streak=1), 2),
    ),
    "each of several counts, and where training got further in between the backoff starts over": (
        gang.hears(attempt=3, incidents=[an_incident(1), an_incident(2)]).settled(),
        *(2, 0, Budget(used=2, streak=1), 3),
    ),
    "so it does where it has since, whatever the incident itself says": (
        gang.hears(
            attempt=3,
            incidents=[an_incident(1), an_incident(2, step=None)],
            progress={"step": 102, "lastStepTime": LATER},
        ).settled(),
        *(2, 0, Budget(used=2, streak=1), 3),
    ),
    "but not where it only got as far as before": (
        gang.hears(
            attempt=3,
            incidents=[an_incident(1), an_incident(2, step=101)],
            progress={"step": 101, "lastStepTime": LATER},
        ).settled(),
        *(2, 0, Budget(used=2, streak=2), 3),
    ),
    "nor where a rank dies again and again before it says how far it is": (
        gang.hears(attempt=4, incidents=[an_incident(attempt, step=None) for attempt in (1, 2, 3)]).settled(),
        *(3, 0, Budget(used=3, streak=3), 4),
    ),
    "one that a rule makes free does not": (
        supervised(rules=[{"signals": ["SIGKILL"], "action": "RestartFree"}])
        .hears(attempt=2, incidents=[an_incident(1)])
        .settled(),
        *(0, 1, Budget(disruptions=1, streak=1), 2),
    ),
    "one that is answered, and is no attempt yet, counts once as well": (
        gang.hears("Gathering", attempt=1, incidents=[an_incident(1)], missing=[2])
        .settled()
        .hears(attempt=2, incidents=[an_incident(1)])
        .settled(),
        *(1, 0, Budget(used=1, streak=1), 2),
    ),
    "of an attempt without a word of why nothing is counted": (gang.hears(attempt=4).settled(), 0, 0, Budget(), 4),
    "a pod that is lost costs what it costs, and the attempt follows on all that were": (
        gang.hears(attempt=3, incidents=[an_incident(2)]).settled().vanishes(2).decided(),
        *(1, 1, Budget(used=1, disruptions=1, streak=2), 4),
    ),
    "what supervisors say of it later is known already": (
        evicted.decided().hears("Gathering", attempt=2, incidents=[an_incident(1, cause="PeerLost")]).settled(),
        *(0, 1, Budget(disruptions=1, streak=1), 2),
    ),
    "pods that are lost together are one incident": (
        two_lost.decided(),
        *(0, 1, Budget(disruptions=1, streak=1), 2),
    ),
    "so are all of a gang, but that the next attempt is made by new pods alone": (
        all_lost.decided(),
        *(0, 1, Budget(disruptions=1, streak=1), 3),
    ),
    "a peer that supervisors lost costs nothing when its pod turns out to be lost": (
        gang.after(1)
        .hears("Gathering", attempt=2, incidents=[an_incident(1, cause="PeerLost")], missing=[1])
        .settled()
        .after(60)
        .node_has("node-1", "is not ready: silent")
        .decided(),
        *(0, 1, Budget(disruptions=1, streak=1), 2),
    ),
    "a node that is lost may hold the others up first": (
        stalls_and_waits.node_dies(1).decided(),
        *(0, 1, Budget(disruptions=1, streak=1), 2),
    ),
    "but another one that is lost then is another incident": (
        stalls_and_waits.node_dies(2).decided(),
        *(1, 1, Budget(used=1, disruptions=1, streak=2), 3),
    ),
    "a new pod that is lost is another incident": (
        replaced.runs(1).after(5).fails(1, code=137).decided(),
        *(1, 1, Budget(used=1, disruptions=1, streak=2), 3),
    ),
    "a pod that is lost on the heels of something else is an incident of its own": (
        gang.hears("Gathering", attempt=2, incidents=[an_incident(1)], missing=[1]).settled().vanishes(1).decided(),
        *(1, 1, Budget(used=1, disruptions=1, streak=2), 3),
    ),
    "to start again as a whole, since others have finished, costs nothing more": (
        killed.decided().after(1).settled().runs(1).succeeds(0).decided(),
        *(1, 0, Budget(used=1, streak=1), 3),
    ),
    "a pod that is taken away may know of attempts as well": (
        evicted.reports(1, code=205, cause="Stopped", attempt=4).decided(),
        *(0, 1, Budget(disruptions=1, streak=1), 5),
    ),
    "a job that is resumed follows on all attempts too": (
        gang.hears(attempt=4).asks(suspend=True).decided().asks(suspend=False).decided(),
        *(0, 0, Budget(), 5),
    ),
    "also where nothing is left of those who told of them": (
        gang.hears(attempt=4).suspended().asks(suspend=False).decided(),
        *(0, 0, Budget(), 5),
    ),
    "a failure report may know of attempts that were never heard of": (
        gang.reports(1, cause="Application", attempt=6, message="no").decided(),
        *(1, 0, Budget(used=1, streak=1), 7),
    ),
    "a disruption does not raise the backoff either where training got further since the one before": (
        evicted_at(9, evicted_at(8, evicted_at(7, gang))),
        *(0, 3, Budget(disruptions=3, streak=1), 4),
    ),
    "it does where it only got as far": (
        evicted_at(7, evicted_at(7, gang)),
        *(0, 2, Budget(disruptions=2, streak=2), 3),
    ),
    "and where it has not yet got so far again, whatever was heard of it before": (
        evicted_at(5, evicted_at(7, gang)),
        *(0, 2, Budget(disruptions=2, streak=2), 3),
    ),
    "also where one comes before the next step": (
        evicted_at(None, evicted_at(7, gang)),
        *(0, 2, Budget(disruptions=2, streak=2), 3),
    ),
    "nor how far it was heard to be before it went back": (
        evicted_at(
            None,
            gang.after(60)
            .hears(progress={"step": 7, "lastStepTime": LATER})
            .reports(1, cause="Application", message="no", step=5)
            .fails(0, 2, code=204)
            .restarted()
            .hears()
            .settled(),
        ),
        *(1, 1, Budget(used=1, disruptions=1, streak=2), 3),
    ),
    "a rank that fails further on than at the disruption before": (
        evicted_at(7, gang)
        .settled()
        .reports(1, cause="Application", message="no", step=8)
        .fails(0, 2, code=204)
        .decided(),
        *(1, 1, Budget(used=1, disruptions=1, streak=1), 3),
    ),
    "one that fails where that was": (
        evicted_at(7, gang)
        .settled()
        .reports(1, cause="Application", message="no", step=7)
        .fails(0, 2, code=204)
        .decided(),
        *(1, 1, Budget(used=1, disruptions=1, streak=2), 3),
    ),
    "five restarts in place that went well do not make the next one, with new pods, wait for longer": (
        gang.hears(attempt=6, incidents=[an_incident(attempt) for attempt in range(1, 6)])
        .settled()
        .reports(1, cause="Application", message="killed by SIGKILL", attempt=6, step=106)
        .fails(0, 2, code=204)
        .decided(),
        *(6, 0, Budget(used=6, streak=1), 7),
    ),
    "after a window of running all is free again": (
        again.settled()
        .after(3600)
        .hears(attempt=3, incidents=[an_incident(2, time="2026-01-01T13:30:00Z")])
        .decided(),
        *(2, 0, Budget(used=1, streak=1), 3),
    ),
    "also where both incidents are heard of at once": (
        gang.after(7200)
        .hears(attempt=3, incidents=[an_incident(1), an_incident(2, time="2026-01-01T13:30:00Z")])
        .settled(),
        *(2, 0, Budget(used=1, streak=1), 3),
    ),
    "a job that nobody hears any more is healthy as long as it runs": (
        gang.hears(progress={"step": 7, "lastStepTime": "2026-01-01T11:59:00Z"})
        .settled()
        .fails(0, message="no")
        .restarted()
        .after(3600)
        .fails(0, message="no")
        .decided(),
        *(2, 0, Budget(used=1, streak=1), 3),
    ),
    "but not where no step was finished in it": (
        gang.hears(progress={"step": 7, "lastStepTime": "2026-01-01T11:59:00Z"})
        .settled()
        .fails(0, message="no")
        .restarted()
        .hears(progress={"step": 7, "lastStepTime": "2026-01-01T11:59:00Z"})
        .settled()
        .after(3600)
        .fails(0, message="not again")
        .decided(),
        *(2, 0, Budget(used=2, streak=2), 3),
    ),
}


@pytest.mark.parametrize(("moment", "restarts", "disruptions", "budget", "attempt"), ACCOUNTS.values(), ids=ACCOUNTS)
def test_what_incidents_cost(moment: Moment, restarts: int, disruptions: int, budget: Budget, attempt: int) -> None:
    status = moment.status
    found = (status.restarts, status.disruptions, status.bookkeeping.budget, status.attempt)
    assert found == (restarts, disruptions, budget, attempt)


def test_an_incident_that_supervisors_tell_of_is_remembered_like_any_other() -> None:
    known = again.decided().status.last_incident
    assert known is not None
    assert (known.node, known.node_name, known.pod) == (1, "node-1", gang.pods[1].name)
    assert (known.attempt, known.signal, known.exit_code, known.step) == (1, "SIGKILL", 137, 101)


def test_what_went_with_an_incident_stays_with_it_when_more_is_known() -> None:
    peers = an_incident(1, node=0, cause="PeerLost", consequences=1, consequenceNodes=[2])
    known = gang.hears("Gathering", attempt=2, incidents=[peers], missing=[1]).settled().node_dies(1).decided()
    (incident,) = known.status.incidents
    assert (incident.cause, incident.node, incident.attempt) == ("NodeLost", 1, 1)
    assert (incident.consequences, incident.consequence_nodes) == (2, (0, 2))


def test_that_more_went_with_it_than_have_names_is_not_forgotten() -> None:
    peers = an_incident(1, node=0, cause="PeerLost", consequences=19, consequenceNodes=[*range(1, 9)])
    many = a_job(nodes=20).running().hears().settled().after(60)
    known = many.hears("Gathering", attempt=2, incidents=[peers], missing=[1]).settled().node_dies(1).decided()
    (incident,) = known.status.incidents
    assert (incident.cause, incident.node, incident.consequences) == ("NodeLost", 1, 19)


def test_a_pod_that_was_replaced_alone_says_nothing_of_the_end_of_the_gang_after_it() -> None:
    alone = (
        gang.fails(1, code=137, reason="OOMKilled").decided().after(1).decided().runs(1).hears(attempt=2).settled()
    )
    ended = alone.after(60).reports(0, cause="PeerLost", message="no", at=-10).decided().gone().decided()
    assert [(failure.cause, failure.node) for failure in ended.status.incidents] == [
        ("PeerLost", 0),
        ("OutOfMemory", 1),
    ]


@pytest.mark.parametrize("cause", ["Application", "PeerLost"])
def test_what_was_answered_in_place_stays_as_it_was_when_the_gang_goes_for_another_reason(cause: str) -> None:
    no_oom = {"causes": ["OutOfMemory"], "action": "Fail"}
    in_place = supervised(rules=[no_oom]).hears(attempt=2, incidents=[an_incident(1, cause=cause)]).settled()
    resized = in_place.after(600).asks(nodes=2).decided()
    known = resized.status
    for later in (resized.former_fails(2, reason="OOMKilled"), resized.overdue(0, 1, 2)):
        then = later.decided().status
        assert (then.state, then.restarts, then.disruptions) == ("Restarting", 1, 0)
        assert then.incidents == known.incidents


def test_pods_of_a_later_gang_say_nothing_of_an_incident_before_it() -> None:
    resized = gang.reports(0, message="no").restarted().asks(nodes=2).decided()
    known = resized.former_fails(1, code=137, reason="OOMKilled").decided().status.last_incident
    assert known is not None
    assert (known.cause, known.node) == ("Application", 0)


def test_each_incident_is_an_event_and_so_is_the_gang_that_runs_again() -> None:
    moment = gang.hears(attempt=3, incidents=[an_incident(1), an_incident(2, node=2)])
    told = [[(event.warning, event.reason) for event in one.decision.events] for one in _rounds(moment)]
    assert told == [[(True, "Restarting")], [(True, "Restarting")], [(False, "Running")], []]


def _rounds(moment: Moment) -> list[Moment]:
    return [moment, moment.decided(), moment.decided(2), moment.decided(3)]


def test_a_new_pod_is_told_which_attempt_it_joins_and_where_the_others_are() -> None:
    env = _env(evicted.decided().gone())
    assert (env["DDPJOB_ATTEMPT"], env["DDPJOB_INCARNATION"], env["NODE_RANK"]) == ("2", "2", "1")
    first = gang.pods[0].name
    assert env["DDPJOB_PEERS"] == f"{first}.{SERVICE}.team.svc:29502,10.0.1.0:29502,10.0.1.2:29502"
    assert env["MASTER_ADDR"] == f"{first}.{SERVICE}.team.svc"


def test_a_pod_that_comes_up_with_the_others_looks_for_rank_0_alone() -> None:
    late = a_job(nodes=3).decided().runs(0).vanishes(2)
    assert _env(late)["DDPJOB_PEERS"] == f"{gang.pods[0].name}.{SERVICE}.team.svc:29502"


@pytest.mark.parametrize("moment", [again, evicted], ids=["in place", "a new pod"])
def test_a_gang_that_was_heard_once_is_remembered_to_have_supervisors(moment: Moment) -> None:
    just_reported = moment._with_status(changed(moment.status, supervised=False))
    assert just_reported.decided().status.bookkeeping.supervised


def test_a_new_rank_0_is_where_the_ones_that_come_after_it_look_for_it() -> None:
    moment = gang.deleted_by_hand(0).decided().gone()
    new = _made(moment)["metadata"]["name"]
    later = moment.decided().runs(0).decided().hears(attempt=2).settled().vanishes(2).decided().after(3)
    assert new != gang.pods[0].name
    assert _env(later)["MASTER_ADDR"] == f"{new}.{SERVICE}.team.svc"


def test_a_gang_of_a_thousand_is_not_listed_in_each_new_pod() -> None:
    large = a_job(nodes=40).running().hears().settled().vanishes(7).decided()
    assert len(_env(large)["DDPJOB_PEERS"].split(",")) == 9


def test_more_pods_than_the_status_can_name_are_replaced_with_all_others() -> None:
    large = a_job(nodes=80).running().hears().settled().vanishes(*range(65))
    assert large.decided().status.bookkeeping.incarnations.default == 2


def _made(moment: Moment) -> dict[str, Any]:
    return next(action.build() for action in moment.decision.actions if isinstance(action, CreatePod))


def _env(moment: Moment) -> dict[str, str]:
    return variables_of(_made(moment)["spec"]["containers"][0])


RIGHTS: dict[str, tuple[Moment, str, str]] = {
    "by default: what is configured wrong, full disks, and broken GPUs": (
        a_job(),
        "5",
        "CheckpointUnusable,ConfigError,Diverged,StorageFull,DeviceFailed",
    ),
    "no more restarts in place than restarts": (
        a_job(restart={"maxRestarts": 3}),
        "3",
        "CheckpointUnusable,ConfigError,Diverged,StorageFull,DeviceFailed",
    ),
    "whatever is used of them: that may be free again before the next incident": (
        a_job(restart={"maxRestarts": 3}).running().fails(0).ready_again(),
        "3",
        "CheckpointUnusable,ConfigError,Diverged,StorageFull,DeviceFailed",
    ),
    "than are allowed": (
        a_job(restart={"inPlaceRestarts": 2}),
        "2",
        "CheckpointUnusable,ConfigError,Diverged,StorageFull,DeviceFailed",
    ),
    "than none in mode Recreate": (
        a_job(restart={"mode": "Recreate"}),
        "0",
        "CheckpointUnusable,ConfigError,Diverged,StorageFull,DeviceFailed",
    ),
    "what rules call final: by its code, its signal, its cause": (
        a_job(
            restart={
                "rules": [
                    {"exitCodes": among(3, *range(64, 79)), "causes": ["Application"], "action": "Fail"},
                    {"signals": ["SIGSEGV"], "action": "Fail"},
                    {"causes": ["OutOfMemory", "Evicted", "StorageFull"], "action": "Fail"},
                    {"exitCodes": other_than(2, 200), "signals": ["SIGBUS"], "action": "Fail"},
                    {"exitCodes": among(9), "action": "RestartFree"},
                ]
            }
        ),
        "5",
        "CheckpointUnusable,ConfigError,Diverged,StorageFull,DeviceFailed,3,64-78,139,OutOfMemory,1,3-199,201-255",
    ),
}


@pytest.mark.parametrize(("moment", "in_place", "left"), RIGHTS.values(), ids=RIGHTS)
def test_what_supervisors_may_decide_themselves(moment: Moment, in_place: str, left: str) -> None:
    env = _env(moment)
    assert (env["DDPJOB_IN_PLACE_RESTARTS"], env["DDPJOB_LEAVE_TO_OPERATOR"]) == (in_place, left)
