"""Jobs whose pods may be evicted only after a checkpoint."""

from datetime import timedelta

import pytest
from ddpjob_operator.engine import DISRUPTION_BUDGET

from .builders import START, Moment, a_job, made, plan
from .tables import Table, rows, verdict

careful = a_job(nodes=2, disruption="AfterCheckpoint").guarded()
up = careful.created().runs(0, 1).decided()
running = careful.running()
NEVER = "spec.disruption has no effect: "
ALL_RUN = "2 nodes running"


def saved(moment: Moment, seconds: int) -> Moment:
    """It reports a checkpoint that was saved so many seconds after the start."""
    return moment.hears(checkpoint={"step": 100, "time": (START + timedelta(seconds=seconds)).isoformat()})


unsaved = saved(running.after(10), 10).after(30).settled()
restarting = unsaved.fails(1).decided()
resumed = unsaved.asks(suspend=True).decided().gone().settled().after(7200).asks(suspend=False).settled()
SAVED, HOUR, SECOND = START + timedelta(seconds=10), timedelta(hours=1), timedelta(seconds=1)

TABLE: Table = {
    "no pod is protected while the gang comes up": (
        careful.created().runs(0),
        "",
        "Starting",
        "1 of 2 pods running; rank 1: waiting to be scheduled",
    ),
    "once all run, each is": (careful.created().runs(0, 1), "budget", "Running", ALL_RUN),
    "which is said nowhere": (running, "", "Running", ALL_RUN),
    "a save lets them go": (saved(running.after(60), 60), "-budget", "Running", ALL_RUN),
    "for half a minute": (saved(running.after(60), 60).settled().after(29.9), "", "Running", ALL_RUN),
    "and no longer": (saved(running.after(60), 60).settled().after(30), "budget", "Running", ALL_RUN),
    "one that saves oftener is never protected": (
        saved(saved(running.after(60), 60).settled().after(29), 89).settled().after(29),
        "",
        "Running",
        ALL_RUN,
    ),
    "nor is one that has not saved within an hour": (running.after(3600), "-budget", "Running", ALL_RUN),
    "but before that it is": (running.after(3599), "", "Running", ALL_RUN),
    "nor is one whose last save is longer ago": (unsaved.at(SAVED + HOUR), "-budget", "Running", ALL_RUN),
    "but before that it is, too": (unsaved.at(SAVED + HOUR - SECOND), "", "Running", ALL_RUN),
    "until it saves again": (
        saved(unsaved.at(SAVED + HOUR).settled(), 3610).settled().after(30),
        "budget",
        "Running",
        ALL_RUN,
    ),
    "resumed long after its last save, it is": (resumed.created().runs(0, 1), "budget", "Running", ALL_RUN),
    "for as long as one that has never saved": (
        resumed.running().after(3600),
        "-budget",
        "Running",
        ALL_RUN,
    ),
    "the administrator can set another time": (
        unsaved.allows(drain_protection_seconds=7200).at(SAVED + HOUR),
        "",
        "Running",
        ALL_RUN,
    ),
    "to the second": (
        unsaved.allows(drain_protection_seconds=600).at(SAVED + timedelta(seconds=600)),
        "-budget",
        "Running",
        ALL_RUN,
    ),
    "or have no drain wait, which is said": (
        up.guarded().allows(drain_protection_seconds=0),
        "",
        "Running",
        f"{ALL_RUN}; {NEVER}the operator's administrator has disabled drain protection (drainProtectionSeconds: 0)",
    ),
    "nor longer": (
        unsaved.allows(drain_protection_seconds=0),
        "-budget",
        "Running",
        ALL_RUN,
    ),
    "of a gang that is no longer whole, nothing is worth waiting for": (
        unsaved.fails(1),
        "-1.0/5 -budget",
        "Restarting",
        "Rank 1 failed: Application: exit code 1; restart 1 of 6 in 0.9 s",
    ),
    "when it has come up again, it is": (restarting.ready_again().settled().runs(0, 1), "budget", "Running", ALL_RUN),
    "a suspended one is not": (
        unsaved.asks(suspend=True),
        "-1.0/full -1.1/full -budget",
        "Suspending",
        "Waiting for 2 pods to save and stop",
    ),
    "nor one that has finished": (unsaved.succeeds(0, 1), "-budget", "Succeeded", "2 nodes finished"),
    "one that no longer asks for it is not": (unsaved.asks(disruption="Allow"), "-budget", "Running", ALL_RUN),
    "one that asks for it while it runs is": (
        a_job(nodes=2).guarded().running().asks(disruption="AfterCheckpoint"),
        "budget",
        "Running",
        ALL_RUN,
    ),
    "one that asks for nothing never is": (a_job(nodes=2).guarded().running(), "", "Running", ALL_RUN),
    "if the operator may make none, that is said": (
        running.unguarded(),
        "",
        "Running",
        f"{ALL_RUN}; {NEVER}the operator is not permitted to create PodDisruptionBudgets",
    ),
    "if it is refused, too": (
        up.guarded().refused("Forbidden", "no"),
        "",
        "Running",
        f"{ALL_RUN}; {NEVER}no",
    ),
    "and tried again": (
        up.guarded().refused("Forbidden", "no").after(5),
        "budget",
        "Running",
        f"{ALL_RUN}; {NEVER}no",
    ),
    "gone by hand, it is made again": (running.guarded(), "budget", "Running", ALL_RUN),
}


@rows(TABLE)
def test_drains_wait_for_a_checkpoint(moment: Moment, expected: tuple[str, str, str]) -> None:
    assert verdict(moment) == expected


@pytest.mark.parametrize(
    ("moment", "seconds"),
    [(running, 3600), (saved(running.after(60), 60).settled(), 90), (unsaved, 3610)],
    ids=["to give up", "to close again", "to give up after a save"],
)
def test_it_looks_again_when_time_changes_whether_pods_are_protected(moment: Moment, seconds: int) -> None:
    due = moment.decision.wake_at
    assert due is not None
    assert (due - running.snapshot.now).total_seconds() == seconds
    assert plan(moment.at(due))


def test_the_budget_refuses_every_eviction_of_the_jobs_own_pods() -> None:
    (budget,) = made(careful.created().runs(0, 1).decision, DISRUPTION_BUDGET)
    assert budget["spec"] == {
        "maxUnavailable": 0,
        "selector": {"matchLabels": {"ddpjob.dev/job-uid": "uid-1"}},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    assert budget["metadata"]["ownerReferences"][0]["uid"] == "uid-1"
