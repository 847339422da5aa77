"""What cannot be undone waits until the time is certain; what follows from what was seen does not wait for it."""

import ast
from collections.abc import Iterator
from dataclasses import fields
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import ddpjob_operator.engine
import pytest
from ddpjob_operator.engine import (
    CreatePod,
    Delete,
    DeleteJob,
    DeletePod,
    KueueWorkload,
    Needs,
    Placement,
    Pod,
    PodGroup,
    StopPod,
    Waiting,
)
from ddpjob_operator.engine.afterwards import AFTERWARDS
from ddpjob_operator.engine.policies import CHAIN
from ddpjob_operator.engine.policies.verdict import never
from ddpjob_operator.engine.view import DOUBT_RECHECK

from .builders import START, Moment, a_job

two = a_job(nodes=2, restart={"backoffSeconds": 0})
slowly = a_job(nodes=2, restart={"backoffSeconds": 300})
timed = a_job(nodes=2, activeDeadlineSeconds=60)
gang = a_job(nodes=2, restart={"mode": "InPlace", "backoffSeconds": 0}).running().hears().settled()
half = a_job(nodes=2, scheduleTimeoutSeconds=60).decided().placed(0)
elastic = a_job(nodes=3, elastic={"minNodes": 2, "shrinkAfterSeconds": 60}, restart={"backoffSeconds": 0})
lost = two.running().node_dies(1).decided().gone_but(1)
with_ttl = a_job(nodes=2, ttlSecondsAfterFinished=60).running().succeeds(0, 1).settled()
avoiding = two.running().reports(1, cause="DeviceFailed").decided().ready_again().created().placed(0)
stuck = a_job(nodes=2, scheduleTimeoutSeconds=10).created().runs(0).placed(1).waits(1, "ContainerCreating")

WAITS: dict[str, tuple[str, Moment]] = {
    "a finished job is deleted (ttlSecondsAfterFinished)": ("finished", with_ttl.after(60)),
    "what is left of a job that could not be stopped is deleted": (
        "ending",
        timed.running().after(60).decided().after(3600),
    ),
    "a job fails though a pod of it was lost": (
        "ending",
        a_job(nodes=2, restart={"maxRestarts": 0}).running().fails(0).decided().overdue(1),
    ),
    "a job is suspended though a pod of it was lost": (
        "suspended",
        two.running().asks(suspend=True).decided().overdue(1),
    ),
    "a job has run for too long (activeDeadlineSeconds)": ("past_deadlines", timed.running().after(60)),
    "a job has not come up (startDeadlineSeconds)": (
        "past_deadlines",
        a_job(nodes=2, startDeadlineSeconds=60).created().after(60),
    ),
    "a rank does not finish (finishTimeoutSeconds)": (
        "incident",
        a_job(nodes=2, finishTimeoutSeconds=60).running().succeeds(0).settled().after(60),
    ),
    "what a container needs does not come": (
        "incident",
        two.created().placed(0).waits(0, "CreateContainerConfigError", "no such Secret").after(60),
    ),
    "a supervisor is missed": ("incident", gang.hears("Gathering", missing=[1]).after(60)),
    "the pod that failed first does not end": (
        "incident",
        two.running().reports(0, code=204, cause="PeerLost", message="lost").after(11),
    ),
    "the next attempt starts though a pod was lost": ("between_attempts", lost.after(15)),
    "an elastic gang goes on with fewer nodes": ("resized", elastic.created().placed(0, 1).after(60)),
    "a gang stops avoiding broken nodes": ("lifted", avoiding.after(60)),
    "a gang does not find all of its nodes (scheduleTimeoutSeconds)": ("given_back", half.after(120)),
    "a gang does not run on its nodes": ("given_back", stuck.after(100)),
    "a gang gives way to another": ("yields_to_gang_ahead", half.waits(1, "Unschedulable").behind().after(15)),
    "evictions are no longer refused": (
        "protected",
        a_job(nodes=2, disruption="AfterCheckpoint").guarded().running().guarded(there=True).after(3600),
    ),
    "evictions are no longer refused though it saved once": (
        "protected",
        a_job(nodes=2, disruption="AfterCheckpoint")
        .guarded()
        .running()
        .hears(checkpoint={"step": 1, "time": START.isoformat()})
        .guarded(there=True)
        .after(3700)
        .hears(checkpoint={"step": 1, "time": START.isoformat()}),
    ),
    "a pod that was lost is removed by force": (
        "without_lost_pods",
        slowly.running().node_dies(1).decided().gone_but(1).after(15).allows(force_delete_lost_pods=True),
    ),
}
"""What cannot be undone and follows from the time alone: the policy or step that does it, and a moment of it."""

ONLY_SAYS = {
    "corrected": "says what is known of an incident; that its pods were lost waits as for all others",
    "children": "tries again what was refused",
    "reported": "says that a supervisor is silent",
    "derived": "says how many pods run",
    "requested": "tries again what was refused",
    "queue_told": "tries again what was refused",
    "under_way": "says that pods are on a node that is avoided",
    "located": "tries again what was refused",
}
"""Policies and steps whose answer changes with time, but that do nothing then that cannot be undone."""

GOES_BY_NOW = {
    "view.next_look": "only when to look again",
    "view._is_settled": "the settling itself",
    "view.refused": "when to try again",
    "view.reported_running": "how many pods are said to run",
    "view.avoided": "machines that are avoided may be used again",
    "price.present": "a budget becomes whole",
    "incident._all_reported_at": "whether a node's clock is ahead, which is not waited for",
    "evidence._without_end": "which cause it is, of a pod that is in trouble already",
    "start.between_attempts": "the wait before the next attempt",
    "start.children": "when to try again",
    "suspension._undone": "that somebody has resumed the job is said",
    "drains.is_protected": "evictions are refused; that they no longer are waits",
    "supervision._first_lost_at": "whether another supervisor is asked",
    "supervision.is_silent": "that a supervisor is silent is said",
    "supervision.unreachable_message": "that a supervisor is silent is said",
}
"""All that compares something with the present, and why it may."""


def undone(moment: Moment) -> list[object]:
    """What a decision does that cannot be undone."""
    decision, before = moment.decision, moment.status
    ends = (DeleteJob, DeletePod, StopPod, Delete, CreatePod)
    done: list[object] = [action for action in decision.actions if isinstance(action, ends)]
    after = decision.status
    if after is not None:
        said = (
            ("attempt", "finished", "ending", "state")
            if after.state == "Suspended"
            else ("attempt", "finished", "ending")
        )
        done += [name for name in said if getattr(after, name) != getattr(before, name)]
    return done


def test_every_policy_that_waits_for_a_time_is_in_the_table() -> None:
    timed = {one.name for one in (*CHAIN, *AFTERWARDS) if one.due is not never}
    assert timed == {policy for policy, _ in WAITS.values()} | ONLY_SAYS.keys()


@pytest.mark.parametrize("what", WAITS)
def test_it_is_done_once_the_time_is_certain(what: str) -> None:
    assert undone(WAITS[what][1])


@pytest.mark.parametrize("what", WAITS)
def test_it_is_not_done_just_after_a_start_or_a_step_of_the_clock(what: str) -> None:
    moment = WAITS[what][1].unsettled()
    assert undone(moment) == []
    woken = moment.decision.wake_at
    assert woken is not None
    assert woken <= moment.snapshot.now + timedelta(seconds=60), "as soon as it is certain"
    assert undone(moment.after(60)), "and then it is done"


@pytest.mark.parametrize("what", WAITS)
def test_it_is_not_done_while_it_is_too_early_by_the_clock_of_one_server(what: str) -> None:
    moment = WAITS[what][1].doubted(7200)
    assert undone(moment) == []
    woken = moment.decision.wake_at
    assert woken is not None
    assert woken <= moment.snapshot.now + DOUBT_RECHECK, "that server may be heard no more at any time"
    assert undone(moment.doubted(0))


AT_ONCE = {
    "a budget that is spent": a_job(nodes=2, restart={"maxRestarts": 0}).running().fails(0),
    "a failure that is counted": two.running().fails(0, 1),
    "a spec that cannot work": two.created().placed(0).waits(0, "InvalidImageName", "no image can be called so"),
    "success": two.running().succeeds(0, 1),
    "another size that is asked for": two.running().asks(nodes=3),
    "suspension": two.running().asks(suspend=True),
    "a start": two,
    "a pod that is deleted by hand": two.running().deleted_by_hand(1),
}


@pytest.mark.parametrize("what", AT_ONCE)
def test_what_follows_from_what_was_seen_does_not_wait(what: str) -> None:
    moment = AT_ONCE[what]
    assert undone(moment)
    for doubtful in (moment.unsettled(), moment.doubted(7200)):
        assert (doubtful.decision.status, doubtful.decision.actions) == (
            moment.decision.status,
            moment.decision.actions,
        )


def test_a_job_is_deleted_after_seven_days_though_the_operator_restarts_each_day() -> None:
    week, day = timedelta(days=7), timedelta(hours=24)
    job = a_job(nodes=2, ttlSecondsAfterFinished=int(week.total_seconds())).running().succeeds(0, 1).settled()
    began = job.snapshot.now
    starts = [began + timedelta(hours=5) + day * number for number in range(9)]
    # The last start falls on the very moment.
    for instants in (starts, [*starts[:7], began + week - timedelta(seconds=1), began + week + day]):
        at = deleted_at(job, instants)
        assert at is not None
        assert began + week <= at <= began + week + timedelta(seconds=60)


def deleted_at(job: Moment, starts: list[datetime]) -> datetime | None:
    """When it is, by operators that start at these moments and look when the one before them has said."""
    for start, next_start in pairwise(starts):
        moment = job.at(start).unsettled()
        while moment.snapshot.now < next_start:
            if DeleteJob() in moment.decision.actions:
                return moment.snapshot.now
            woken = moment.decision.wake_at
            assert woken is not None
            moment = moment.at(woken)
    return None


def test_a_job_in_doubt_is_looked_at_when_the_moment_comes_and_when_it_is_certain() -> None:
    early = with_ttl.after(30)
    due = START + timedelta(seconds=60)
    assert early.unsettled().decision.wake_at == due
    assert early.doubted(5).decision.wake_at == due
    assert early.after(30).doubted(5).decision.wake_at == due + timedelta(seconds=5)
    assert early.after(30).unsettled(7).decision.wake_at == due + timedelta(seconds=7)


def test_whatever_is_compared_with_the_present_is_known_to_be_harmless() -> None:
    """All else asks `is_due`."""
    root = Path(ddpjob_operator.engine.__file__).parent
    found = {f"{path.stem}.{name}" for path in root.rglob("*.py") for name in _by_now(ast.parse(path.read_text()))}
    assert found == GOES_BY_NOW.keys()


def _by_now(tree: ast.AST) -> Iterator[str]:
    """Functions in which something is compared with what is called `now`."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        compared = (one for one in ast.walk(function) if isinstance(one, ast.Compare))
        if any(_is_now(part) for one in compared for part in ast.walk(one)):
            yield function.name


def _is_now(part: ast.AST) -> bool:
    return (isinstance(part, ast.Attribute) and part.attr == "now") or (
        isinstance(part, ast.Name) and part.id == "now"
    )


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Pod, ("", "", 0, 0)),
        (PodGroup, ("",)),
        (KueueWorkload, ("", "", "", 0, "")),
        (Waiting, ("",)),
        (Placement, ()),
        (Needs, ()),
        (CreatePod, (0, "")),
    ],
    ids=lambda kind: getattr(kind, "__name__", ""),
)
def test_what_nobody_has_said_is_not_so(kind: type[Any], said: tuple[Any, ...]) -> None:
    """Tables compare with the same defaults, so they do not notice another one."""
    seen = kind(*said)
    told = {field.name: getattr(seen, field.name) for field in fields(seen) if field.compare}
    assert not any(told.values()), told
