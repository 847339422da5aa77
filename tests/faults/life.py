"""Lives of jobs, and what an operator writes in them: the table of an uneventful life, each row a place for faults.

The job has two nodes. In its long life it is made, runs, loses rank 1, restarts, is suspended, resumed, scaled to
three nodes, finishes, and goes when its time is over. In its brief one it has a NetworkPolicy, is suspended, resumed
without it, ends at its deadline, and goes.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from tests.cluster.jobs import FOR_LONG, a_job, steered

from .calls import Place, phase_of, place_of
from .faults import On
from .witness import Manifest, NeverError, Witness

NAME = "life"
DEADLINE_SECONDS = 1
HEARING_SECONDS = 5.0
TRIES = 10
"""A node that is busy may overhear that a pod is to end, where it has just begun to run it."""


class User(Protocol):
    """Who makes, changes and deletes things in the namespace."""

    witness: Witness

    async def create(self, kind: str, body: Manifest) -> None:
        """Makes something."""

    async def merge(self, kind: str, name: str, body: Manifest) -> None:
        """Changes something."""


Act = Callable[[User], Awaitable[None]]
Reached = Callable[[Witness], bool]


@dataclass(frozen=True, slots=True)
class Stage:
    """What a user or fate does, and what is to come of it."""

    name: str
    act: Act
    reached: Reached


def _running(attempt: int, nodes: int) -> Reached:
    def reached(there: Witness) -> bool:
        status = there.status()
        said = (status.get("state"), status.get("attempt"), status.get("ready"))
        running = [place_of(pod) for pod in there.pods() if phase_of(pod) == "runs"]
        return said == ("Running", attempt, f"{nodes}/{nodes}") and len(running) == nodes

    return reached


def _suspended(there: Witness) -> bool:
    return there.status().get("state") == "Suspended"


def _succeeded(there: Witness) -> bool:
    return there.status().get("state") == "Succeeded"


async def _submit(user: User) -> None:
    await user.create("ddpjobs", a_job(NAME, annotations=FOR_LONG, restart={"backoffSeconds": 0}))


async def _submit_closed(user: User) -> None:
    await user.create("ddpjobs", a_job(NAME, annotations=FOR_LONG, networkPolicy="Enabled"))


async def _rank_1_fails(user: User) -> None:
    await _tell(user, rank=1, exit_code="1")


async def _all_ranks_finish(user: User) -> None:
    await _tell(user)


async def _tell(user: User, rank: int | None = None, **how: str) -> None:
    """The pods that run, or that of one rank, end now."""
    told = [
        pod["metadata"]
        for pod in user.witness.pods()
        if phase_of(pod) == "runs" and rank in {None, (place_of(pod) or (None,))[0]}
    ]
    for again in range(TRIES):
        for metadata in told:
            annotations = steered(runs_for="0s", told=str(again), **how)
            await user.merge("pods", metadata["name"], {"metadata": {"annotations": annotations}})
        with suppress(NeverError):
            await user.witness.until("ended", lambda there: _ended(there, told), HEARING_SECONDS)
            return
    raise NeverError(f"the nodes do not hear that pods are to end\n{user.witness}")


def _ended(there: Witness, told: list[Manifest]) -> bool:
    pods = there.objects["pods"]
    return all(phase_of(pods[one["uid"]]) != "runs" for one in told if one["uid"] in pods)


def _change(**spec: object) -> Act:
    async def act(user: User) -> None:
        await user.merge("ddpjobs", NAME, {"spec": spec})

    return act


def _failed(there: Witness) -> bool:
    return there.status().get("state") == "Failed"


async def _let_time_be_over(user: User) -> None:
    await asyncio.sleep(2 * DEADLINE_SECONDS)  # Since it has started, at least; so it is over when it is set.
    await _change(activeDeadlineSeconds=DEADLINE_SECONDS)(user)


_STAGES = (
    Stage("run", _submit, _running(1, 2)),
    Stage("restart", _rank_1_fails, _running(2, 2)),
    Stage("suspend", _change(suspend=True), _suspended),
    Stage("resume", _change(suspend=False), _running(3, 2)),
    Stage("scale", _change(nodes=3), _running(4, 3)),
    Stage("finish", _all_ranks_finish, _succeeded),
    Stage("expire", _change(ttlSecondsAfterFinished=0), Witness.nothing),
)
_BRIEF_STAGES = (
    Stage("run", _submit_closed, _running(1, 2)),
    Stage("suspend", _change(suspend=True), _suspended),
    Stage("resume", _change(suspend=False, networkPolicy="Disabled"), _running(2, 2)),
    Stage("deadline", _let_time_be_over, _failed),
    _STAGES[-1],
)


@dataclass(frozen=True, slots=True)
class Row:
    """A write of the operator, and when it is to come."""

    stage: str
    name: str
    on: On


def _pod(stage: str, verb: str, rank: int, incarnation: int) -> Row:
    place: Place = (rank, incarnation)
    return Row(stage, f"{verb}-pod-{rank}-of-{incarnation}", On(verb, "pods", place=place))


def _status(stage: str, name: str, says: str, nth: int = 1) -> Row:
    return Row(stage, f"status-{name}", On("patch", "ddpjobs", "status", word=says, nth=nth))


_WRITES = (
    _status("run", "start-1", "attempt-1-Pending"),
    Row("run", "create-service", On("create", "services")),
    _pod("run", "create", 0, 1),
    _pod("run", "create", 1, 1),
    _status("run", "created-1", "attempt-1-*-created"),
    _status("run", "running-1", "attempt-1-Running-created"),
    _status("restart", "restart-2", "attempt-2-Restarting"),
    _pod("restart", "delete", 0, 1),
    _status("restart", "start-2", "attempt-2-Restarting", nth=2),
    _pod("restart", "create", 0, 2),
    _pod("restart", "create", 1, 2),
    _status("restart", "created-2", "attempt-2-*-created"),
    _status("restart", "running-2", "attempt-2-Running-created"),
    _status("suspend", "suspending", "attempt-2-Suspending*"),
    _pod("suspend", "delete", 0, 2),
    _pod("suspend", "delete", 1, 2),
    _status("suspend", "suspended", "attempt-2-Suspended"),
    _status("resume", "start-3", "attempt-3-Pending"),
    _pod("resume", "create", 0, 3),
    _pod("resume", "create", 1, 3),
    _status("resume", "created-3", "attempt-3-*-created"),
    _status("resume", "running-3", "attempt-3-Running-created"),
    _status("scale", "restart-4", "attempt-4-Restarting"),
    _pod("scale", "delete", 0, 3),
    _pod("scale", "delete", 1, 3),
    _status("scale", "start-4", "attempt-4-Restarting", nth=2),
    _pod("scale", "create", 0, 4),
    _pod("scale", "create", 1, 4),
    _pod("scale", "create", 2, 4),
    _status("scale", "created-4", "attempt-4-*-created"),
    _status("scale", "running-4", "attempt-4-Running-created"),
    _status("finish", "succeeded", "attempt-4-Succeeded*"),
    Row("expire", "delete-job", On("delete", "ddpjobs")),
)
"""In this order; a status that says what the pods do meanwhile may come once more, or with the next one."""

_BRIEF_WRITES = (
    _status("run", "start-1", "attempt-1-Pending"),
    Row("run", "create-networkpolicy", On("create", "networkpolicies")),
    Row("run", "create-service", On("create", "services")),
    _pod("run", "create", 0, 1),
    _pod("run", "create", 1, 1),
    _status("run", "created-1", "attempt-1-*-created"),
    _status("run", "running-1", "attempt-1-Running-created"),
    _status("suspend", "suspending", "attempt-1-Suspending*"),
    _pod("suspend", "delete", 0, 1),
    _pod("suspend", "delete", 1, 1),
    _status("suspend", "suspended", "attempt-1-Suspended"),
    _status("resume", "start-2", "attempt-2-Pending"),
    Row("resume", "delete-networkpolicy", On("delete", "networkpolicies")),
    _pod("resume", "create", 0, 2),
    _pod("resume", "create", 1, 2),
    _status("resume", "created-2", "attempt-2-*-created"),
    _status("resume", "running-2", "attempt-2-Running-created"),
    _pod("deadline", "patch", 0, 2),
    _pod("deadline", "patch", 1, 2),
    _status("deadline", "failed", "attempt-2-Failed*"),
    Row("expire", "delete-job", On("delete", "ddpjobs")),
)


@dataclass(frozen=True, slots=True)
class Life:
    """What happens in it, and what an operator writes."""

    name: str
    stages: tuple[Stage, ...]
    """After the last but one nothing is left to do; the last one takes the job away."""
    writes: tuple[Row, ...]


LONG = Life("long", _STAGES, _WRITES)
BRIEF = Life("brief", _BRIEF_STAGES, _BRIEF_WRITES)

EVENTS = tuple(
    Row(stage, f"event-{reason}", On("create", "events", word=reason))
    for stage, reason in (
        ("run", "Created"),
        ("run", "Running"),
        ("restart", "Restarting"),
        ("suspend", "Suspended"),
        ("finish", "Succeeded"),
    )
)
"""Kubernetes events: written behind the work's back, the first time that something is said."""
