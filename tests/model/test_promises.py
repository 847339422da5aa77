"""Wrong actions are noticed. Each is done in a world in which everything was right until then."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from ddpjob_operator.api import DDPJobStatus
from ddpjob_operator.engine import Action, CreatePod, Decision, DeleteJob, DeletePod, Snapshot, StopPod, decide

from . import promises, test_search
from .operator import Operator
from .pods import RealPod
from .world import TEMPLATE, World

SPEC = {"nodes": 2, "restart": {"maxRestarts": 1, "backoffSeconds": 0}, "template": TEMPLATE}

Deed = Callable[[World, list[Action]], object]
"""Does something to a running gang of two. The second argument is what the operator has done so far."""


def _running() -> tuple[World, list[Action]]:
    world, done = World(SPEC), list[Action]()
    its = Operator(world)
    for _ in range(10):
        its.look()
        its.write()
        done += its.to_do
        while its.to_do:
            its.act()
        for pod in world.pods.values():
            world.start(pod)
        world.pass_time(1)
    assert [pod.running for pod in world.pods.values()] == [True, True]
    return world, done


def _first(world: World) -> RealPod:
    return next(pod for pod in world.pods.values() if pod.rank == 0)


def _made_first(done: list[Action]) -> CreatePod:
    return next(action for action in done if isinstance(action, CreatePod))


def _pod_twice(world: World, done: list[Action]) -> None:
    world.pods["an-older-one"] = world.pods.pop(_first(world).name)
    world.carry_out(_made_first(done), world.version)


def _pod_again(world: World, done: list[Action]) -> None:
    _delete(None)(world, done)
    world.pass_time(60)
    world.carry_out(_made_first(done), world.version)


def _do(action: Action) -> Deed:
    return lambda world, _: world.carry_out(action, world.version)


def _delete(grace: int | None) -> Deed:
    return lambda world, _: world.carry_out(DeletePod(_first(world).name, _first(world).uid, grace), world.version)


def _say(**changes: Any) -> Deed:
    def write(world: World, _: list[Action]) -> None:
        world.write(DDPJobStatus.model_validate_json(json.dumps({**world.status.to_dict(), **changes})))

    return write


def _say_over(world: World, done: list[Action]) -> None:
    conditions = world.status.to_dict()["conditions"]
    _say(conditions=[*conditions, {**conditions[0], "type": "Failed", "status": "True", "reason": "Application"}])(
        world, done
    )


WRONG: dict[str, tuple[Deed, Callable[..., object]]] = {
    "a pod beside one of its rank": (_pod_twice, promises.check_creation),
    "a pod that was ended comes back": (_pod_again, promises.check_creation),
    "a pod is gone while its trainer may go on": (_delete(0), promises.check_deletion),
    "a job is deleted before its end": (_do(DeleteJob()), promises.check_job_deletion),
    "two attempts in one step": (_say(attempt=3), promises._check_counters),
    "a restart without an incident": (_say(attempt=2, restarts=1), promises._check_counters),
    "an attempt without new pods": (_say(attempt=2), promises._check_incarnations),
    "a gang of more than were asked for": (_say(nodes=3), promises._check_size),
    "ranks that have not finished": (_say(completedIndexes="0-1"), promises._check_success),
    "an end beside pods that run": (_say_over, promises.check_status),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_deed_is_caught(name: str) -> None:
    deed, by = WRONG[name]
    with pytest.raises(AssertionError) as caught:
        deed(*_running())
    assert by.__name__ in [entry.name for entry in caught.traceback]


def test_what_may_be_done_is_not() -> None:
    world, _ = _running()
    _delete(None)(world, [])
    _do(StopPod(_first(world).name, _first(world).uid))(world, [])
    _say(message="more is said of it")(world, [])


def _deaf(snapshot: Snapshot) -> Decision:
    """Does nothing about a pod that has failed."""
    failed = any(pod.exit and pod.exit.code for pod in snapshot.pods)
    return Decision() if failed else decide(snapshot)


def _chatty(snapshot: Snapshot) -> Decision:
    """Decides depending on texts that were written for people."""
    decision = decide(snapshot)
    return Decision(wake_at=decision.wake_at) if "Noise" in snapshot.job.status.message else decision


@pytest.mark.parametrize(
    ("wrong", "words"), [(_deaf, "stuck as"), (_chatty, "decided otherwise where")], ids=["deaf", "chatty"]
)
def test_a_search_finds_where_an_operator_goes_wrong(
    wrong: Callable[[Snapshot], Decision], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("operator", "promises", "world"):
        monkeypatch.setattr(f"tests.model.{module}.decide", wrong)
    with pytest.raises(AssertionError, match=words):
        test_search.test_every_path_ends_as_its_faults_say_whether_the_operator_crashes_or_not(
            test_search.CASES["one pod, to be deleted in its time"]
        )
