"""What an incident costs, and how long the gang waits after it."""

from datetime import timedelta

import pytest
from ddpjob_operator.api import Budget, DDPJob, Restart
from ddpjob_operator.engine.incidents.price import backoff, present

from .builders import START, Moment, a_document, a_job
from .tables import Table, rows, verdict

PEER = "Connection closed by peer"
HOUR = 3600.0


def gang(**restart: int) -> Moment:
    return a_job(nodes=2, restart=restart).running()


def account(moment: Moment) -> tuple[int, int, Budget]:
    """Counted restarts, disruptions, and what is used of the budget."""
    return moment.status.restarts, moment.status.disruptions, moment.status.bookkeeping.budget


once = gang().fails(0).decided().restarted()

COSTS: dict[str, tuple[Moment, int, int, Budget]] = {
    "a job that runs has used nothing": (gang(), 0, 0, Budget()),
    "an incident costs one restart": (gang().fails(0).decided(), 1, 0, Budget(used=1, streak=1)),
    "however many ranks it took down": (gang().fails(0, 1).decided(), 1, 0, Budget(used=1, streak=1)),
    "however often the operator looks": (gang().fails(0).decided(4), 1, 0, Budget(used=1, streak=1)),
    "even if it dies in between": (gang().fails(0).said().said().decided(), 1, 0, Budget(used=1, streak=1)),
    "the next one costs one more": (once.fails(1).decided(), 2, 0, Budget(used=2, streak=2)),
    "a lost peer alone costs one": (
        gang().fails(0, message=PEER, at=-10).decided(),
        1,
        0,
        Budget(used=1, streak=1),
    ),
    "a deleted pod costs nothing, but is waited for": (
        gang().deleted_by_hand(0).decided(),
        *(0, 1, Budget(disruptions=1, streak=1)),
    ),
    "a vanished pod likewise": (gang().vanishes(0).decided(), 0, 1, Budget(disruptions=1, streak=1)),
    "a rank that ended when its pod was deleted likewise": (
        gang().deleted_by_hand(0).fails(0, code=205).decided(),
        *(0, 1, Budget(disruptions=1, streak=1)),
    ),
    "also if others lost it as a peer": (
        gang().deleted_by_hand(0).fails(0, code=143).fails(1, message=PEER).decided(),
        *(0, 1, Budget(disruptions=1, streak=1)),
    ),
    "a rank that something stopped in a pod that nobody deletes costs one": (
        gang().fails(0, code=143).decided(),
        *(1, 0, Budget(used=1, streak=1)),
    ),
    "an error is not excused by a node that is lost at its end": (
        gang().fails(0).decided().overdue(1).decided(),
        *(1, 0, Budget(used=1, streak=1)),
    ),
    "a pod whose sandbox its node has lost costs nothing, and is not waited for until it ends": (
        gang().loses_its_sandbox(1).decided(),
        *(0, 1, Budget(disruptions=1, streak=1)),
    ),
    "one that saves and exits with 0 there has not succeeded": (
        gang().loses_its_sandbox(1).succeeds(1).decided(),
        *(0, 1, Budget(disruptions=1, streak=1)),
    ),
    "suspension costs nothing": (gang().asks(suspend=True).decided().gone().decided(), 0, 0, Budget()),
    "a resize costs nothing": (gang().asks(nodes=3).decided(), 0, 0, Budget()),
    "an hour of health frees the whole budget": (
        once.after(HOUR).fails(0).decided(),
        *(2, 0, Budget(used=1, streak=1)),
    ),
    "a second less does not": (once.after(HOUR - 1).fails(0).decided(), 2, 0, Budget(used=2, streak=2)),
    "health is told by when a rank failed, not by when it was seen": (
        once.after(10).fails(0).after(HOUR).decided(),
        *(2, 0, Budget(used=2, streak=2)),
    ),
    "time that the gang spends coming up is not health": (
        gang().fails(0).decided().gone().after(1).decided(2).after(HOUR).runs(0).fails(1).decided(),
        *(2, 0, Budget(used=2, streak=2)),
    ),
    "health before a resize counts": (once.after(HOUR).asks(nodes=3).decided(), 1, 0, Budget()),
    "health before a suspension counts": (once.after(HOUR).asks(suspend=True).decided(), 1, 0, Budget()),
    "suspension itself is not health": (
        once.asks(suspend=True).decided().gone().decided().after(HOUR).decided(),
        *(1, 0, Budget(used=1, streak=1)),
    ),
}


@pytest.mark.parametrize(("moment", "restarts", "disruptions", "budget"), COSTS.values(), ids=COSTS)
def test_costs(moment: Moment, restarts: int, disruptions: int, budget: Budget) -> None:
    assert account(moment) == (restarts, disruptions, budget)


bounded = gang(maxRestarts=2, backoffSeconds=0)
twice = bounded.fails(0).restarted().fails(0).restarted()
taken = gang(maxDisruptions=2, backoffSeconds=0).vanishes(0).restarted().vanishes(0).restarted()

TABLE: Table = {
    "the last restart is one": (
        bounded.fails(0).restarted().fails(0),
        "-2.1/5",
        "Restarting",
        "Rank 0 failed: Application: exit code 1; restart 2 of 2 in 0.0 s",
    ),
    "the next counted incident is the end": (
        twice.fails(1, message="ValueError: no"),
        "-3.0/5",
        "Running",
        "Stopping 1 pod: Rank 1 failed: Application: ValueError: no; no restarts left (maxRestarts: 2)",
    ),
    "unless the job was healthy for a window before it": (
        twice.after(HOUR).fails(1, message="ValueError: no"),
        "-3.0/5",
        "Restarting",
        "Rank 1 failed: Application: ValueError: no; restart 1 of 2 in 0.0 s",
    ),
    "a disruption is none": (
        twice.vanishes(0),
        "-3.1/5",
        "Restarting",
        "Rank 0 failed: PodDeleted: the pod vanished; restart (not counted) in 0.0 s",
    ),
    "also where no restart was allowed at all": (
        gang(maxRestarts=0, backoffSeconds=0).vanishes(0),
        "-1.1/5",
        "Restarting",
        "Rank 0 failed: PodDeleted: the pod vanished; restart (not counted) in 0.0 s",
    ),
    "or where fewer are allowed than are used": (
        twice.asks(restart={"maxRestarts": 1, "backoffSeconds": 0}).vanishes(0),
        "-3.1/5",
        "Restarting",
        "Rank 0 failed: PodDeleted: the pod vanished; restart (not counted) in 0.0 s",
    ),
    "more restarts than were allowed at first are heeded": (
        twice.asks(restart={"maxRestarts": 3, "backoffSeconds": 0}).fails(0),
        "-3.1/5",
        "Restarting",
        "Rank 0 failed: Application: exit code 1; restart 3 of 3 in 0.0 s",
    ),
    "where disruptions are limited one more is the end": (
        taken.vanishes(0),
        "-3.1/5",
        "Running",
        "Stopping 1 pod: Rank 0 failed: PodDeleted: the pod vanished; more than 2 disruptions (maxDisruptions)",
    ),
    "unless the job was healthy for a window": (
        taken.after(HOUR).vanishes(0),
        "-3.1/5",
        "Restarting",
        "Rank 0 failed: PodDeleted: the pod vanished; restart (not counted) in 0.0 s",
    ),
    "counted failures are not limited by it": (
        taken.fails(0),
        "-3.1/5",
        "Restarting",
        "Rank 0 failed: Application: exit code 1; restart 1 of 6 in 0.0 s",
    ),
    "none may be allowed": (
        gang(maxDisruptions=0).vanishes(0),
        "-1.1/5",
        "Running",
        "Stopping 1 pod: Rank 0 failed: PodDeleted: the pod vanished; more than 0 disruptions (maxDisruptions)",
    ),
}


@rows(TABLE)
def test_limits(moment: Moment, expected: tuple[str, str, str]) -> None:
    assert verdict(moment) == expected


@pytest.mark.parametrize(
    ("supervised", "unknown", "step", "whole"),
    [(True, False, -1, False), (True, False, 1, True), (True, True, -1, True), (False, False, -1, True)],
    ids=["waits since then", "has gone on", "how far it is was lost", "nobody would tell"],
)
def test_after_an_hour_the_budget_is_whole_but_for_a_gang_that_is_known_to_wait(
    *, supervised: bool, unknown: bool, step: float, whole: bool
) -> None:
    kinds = ["Running", *(["ProgressUnknown"] if unknown else [])]
    said = {"status": "True", "reason": "Any", "message": "", "observedGeneration": 1}
    status = {
        "bookkeeping": {"supervised": supervised, "budget": {"used": 2}},
        "progress": {"lastStepTime": (START + timedelta(seconds=step)).isoformat()},
        "conditions": [{"type": kind, "lastTransitionTime": START.isoformat(), **said} for kind in kinds],
    }
    job = DDPJob.from_dict({**a_document(), "status": status})
    assert present(job.spec, job.status, START + timedelta(seconds=HOUR)) == Budget(used=0 if whole else 2)


REASONS: dict[str, tuple[Moment, str]] = {
    "MaxRestartsExceeded": (twice.fails(1), "MaxRestartsExceeded"),
    "MaxDisruptionsExceeded": (taken.vanishes(1), "MaxDisruptionsExceeded"),
}


@pytest.mark.parametrize(("moment", "reason"), REASONS.values(), ids=REASONS)
def test_the_end_of_a_budget_has_its_reason_and_the_incident_is_no_restart(moment: Moment, reason: str) -> None:
    failed = moment.settled().gone().settled()
    assert failed.status.conditions[-1].reason == reason
    assert account(failed) == account(moment), "the incident that was not answered is not a restart"
    assert failed.status.last_incident is not None
    assert failed.status.last_incident.node == 1


def test_without_a_limit_any_number_of_disruptions_is_answered() -> None:
    moment = gang(maxRestarts=0, backoffSeconds=0)
    for _ in range(30):
        moment = moment.vanishes(0).restarted()
    assert account(moment) == (0, 30, Budget(disruptions=30, streak=30))


@pytest.mark.parametrize("cause", ["ConfigError", "StorageFull"])
def test_a_cause_that_a_restart_cannot_mend_ends_the_job_at_once(cause: str) -> None:
    moment = gang().reports(1, cause=cause, message="see here").settled().gone().settled()
    assert moment.status.state == "Failed"
    assert moment.status.conditions[-1].reason == cause
    assert moment.status.message == f"Rank 1 failed: {cause}: see here"
    assert account(moment) == (0, 0, Budget())


def test_a_container_that_cannot_start_ends_the_job_at_once() -> None:
    moment = a_job(nodes=2).created().fails(1, code=128, reason="StartError", message="no such file").settled()
    assert moment.gone().settled().status.state == "Failed"


def test_the_wait_doubles_up_to_its_limit_and_jitter_only_shortens_it() -> None:
    restart = Restart(backoff_seconds=10, max_backoff_seconds=60)
    for streak, full in enumerate((10, 20, 40, 60, 60), start=1):
        assert full * 0.8 <= backoff(restart, streak, "uid").total_seconds() <= full
    assert backoff(restart, 10_000, "uid") <= timedelta(seconds=60)


def test_the_jitter_differs_from_job_to_job_and_from_wait_to_wait_and_never_for_one() -> None:
    assert len({backoff(Restart(), 1, f"uid-{job}") for job in range(20)}) == 20
    longest = Restart().max_backoff_seconds
    waits = {backoff(Restart(backoff_seconds=longest), streak, "uid") for streak in range(1, 21)}
    assert len(waits) == 20, "two jobs that once waited alike do so only once"
    assert backoff(Restart(), 3, "uid") == backoff(Restart(), 3, "uid")


def test_no_backoff_is_no_wait() -> None:
    assert backoff(Restart(backoff_seconds=0), 5, "uid") == timedelta(0)
    assert gang(backoffSeconds=0).fails(0, 1).decided(2).status.attempt == 2
