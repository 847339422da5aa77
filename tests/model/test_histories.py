"""Random histories of a job: whatever happens in whatever order, what must never be never is, and it ends well.

`HYPOTHESIS_PROFILE=deep pytest tests/model` tries many more, and others every time.
"""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from ddpjob_operator.engine import Service
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from .world import TEMPLATE, Operator, RealPod, World

# Code, the runtime's word, last words.
EXITS: dict[str, tuple[int, str, str]] = {
    "an exception": (1, "Error", "ValueError: no"),
    "a signal": (139, "Error", ""),
    "a kill": (137, "Error", ""),
    "out of memory": (137, "OOMKilled", ""),
    "a lost peer": (1, "Error", "RuntimeError: Connection closed by peer"),
    "stopped by somebody": (143, "Error", ""),
    "saved and stopped": (205, "Error", ""),
    "a report of a lost peer": (
        1,
        "Error",
        json.dumps({"cause": "PeerLost", "message": "rank 1 is gone", "step": 7}),
    ),
}
FINAL_EXITS: dict[str, tuple[int, str, str]] = {
    "bad input": (2, "Error", json.dumps({"cause": "ConfigError", "message": "no data"})),
    "no such program": (128, "StartError", "no such file"),
}
SPECS = st.fixed_dictionaries(
    {
        "nodes": st.integers(1, 3),
        "restart": st.fixed_dictionaries(
            {
                "maxRestarts": st.sampled_from([0, 1, 3, 100]),
                "windowSeconds": st.sampled_from([60, 10_000_000]),
                "backoffSeconds": st.sampled_from([0, 1, 100]),
            }
        ),
    },
    optional={"activeDeadlineSeconds": st.sampled_from([100, 10_000])},
)
ROUNDS_TO_THE_END = 30

STEPS = {"look": Operator.look, "write": Operator.write, "act": Operator.act, "round": Operator.round}
PATIENT = ["round", "round round", "round round round"]
HASTY = ["", "look", "look write", "look write act", "look write act act", "write", "act", "write act", "act act"]
OPERATOR = st.sampled_from(PATIENT * 3 + HASTY)
"""What the operator gets done before the next thing happens. To look is to forget what was not carried out."""

which = st.integers(0, 7)


def happens(*, when: Callable[["Histories"], Any] = bool, **draws: Any) -> Callable[[Callable[..., None]], Any]:
    """Something that happens to the world, where it can; then the operator gets some way."""

    def of(change: Callable[..., None]) -> Any:
        def step(self: "Histories", then: str, **drawn: Any) -> None:
            change(self, **drawn)
            self.operate(then)

        step.__name__ = change.__name__
        where_it_can: Any = precondition(when)
        ruled: Any = rule(then=OPERATOR, **draws)
        return where_it_can(ruled(step))

    return of


class Histories(RuleBasedStateMachine):
    """Pods, user, clock and operator take turns as they like."""

    @initialize(spec=SPECS, service=st.sampled_from([Service.MISSING, Service.MISSING, *Service]))
    def submit(self, spec: dict[str, Any], service: Service) -> None:
        self.world = World({**spec, "template": TEMPLATE}, service=service)
        self.operator = Operator(self.world)

    def operate(self, steps: str) -> None:
        for step in steps.split():
            STEPS[step](self.operator)

    # Pods.

    def pick(self, pods: list[RealPod], index: int) -> RealPod:
        return pods[index % len(pods)]

    @property
    def waiting(self) -> list[RealPod]:
        return [pod for pod in self.world.live if not pod.running and not pod.deleting]

    @property
    def going(self) -> list[RealPod]:
        return [pod for pod in self.world.pods.values() if pod.deleting and not pod.dead]

    @happens(index=which, when=lambda self: self.waiting)
    def pod_starts(self, index: int) -> None:
        self.pick(self.waiting, index).running = True

    @happens(when=lambda self: self.waiting)
    def all_pods_start(self) -> None:
        for pod in self.waiting:
            pod.running = True

    @happens(index=which, how=st.sampled_from(sorted(EXITS)), when=lambda self: self.world.live)
    def pod_fails(self, index: int, how: str) -> None:
        self.world.end(self.pick(self.world.live, index), *EXITS[how])

    @happens(
        index=which,
        how=st.sampled_from(sorted(FINAL_EXITS)),
        really=st.integers(0, 9),
        when=lambda self: self.world.live,
    )
    def pod_fails_for_good(self, index: int, how: str, really: int) -> None:
        if really == 0:
            self.world.end(self.pick(self.world.live, index), *FINAL_EXITS[how])

    @happens(index=which, when=lambda self: any(pod.running for pod in self.world.live))
    def pod_succeeds(self, index: int) -> None:
        self.world.end(self.pick([pod for pod in self.world.live if pod.running], index), 0, "Completed")

    @happens(index=which, when=lambda self: self.world.pods)
    def pod_vanishes(self, index: int) -> None:
        self.world.pods.pop(self.pick(list(self.world.pods.values()), index).name)

    @happens(index=which, when=lambda self: self.world.pods)
    def pod_is_deleted_by_hand(self, index: int) -> None:
        self.pick(list(self.world.pods.values()), index).delete(self.world.now)

    @happens(index=which, when=lambda self: self.world.live)
    def node_of_a_pod_dies(self, index: int) -> None:
        self.pick(self.world.live, index).dead = True

    @happens(index=which, when=lambda self: self.going)
    def deleted_pod_is_gone(self, index: int) -> None:
        self.world.pods.pop(self.pick(self.going, index).name)

    @happens(
        index=which,
        code=st.sampled_from([0, 1, 137, 143, 205]),
        when=lambda self: any(pod.live for pod in self.going),
    )
    def deleted_pod_ends(self, index: int, code: int) -> None:
        self.world.end(self.pick([pod for pod in self.going if pod.live], index), code)

    # The rest of the world.

    @happens(seconds=st.sampled_from([0.5, 5.0, 70.0, 200.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @happens(suspend=st.sampled_from([True, False, False]))
    def user_suspends_or_resumes(self, *, suspend: bool) -> None:
        self.world.ask(suspend=suspend)

    @happens(meanwhile=OPERATOR)
    def user_suspends_and_thinks_better_of_it(self, meanwhile: str) -> None:
        self.world.ask(suspend=True)
        self.operate(meanwhile)
        self.world.ask(suspend=False)

    @happens(nodes=st.integers(1, 3))
    def user_resizes(self, nodes: int) -> None:
        self.world.ask(nodes=nodes)

    @happens(service=st.sampled_from([Service.OURS, *Service]))
    def service_changes(self, service: Service) -> None:
        self.world.service = service

    # What must always be.

    @invariant()
    def live_pods_are_one_gang(self) -> None:
        self.world.check_gang()

    def teardown(self) -> None:
        """Once the faults stop, the job reaches its end, or its suspension and from there its end.

        Then there is nothing left to do.
        """
        if not hasattr(self, "world"):
            return
        self.operator.die()
        self.drive_to_rest()
        self.world.ask(suspend=False)
        self.drive_to_rest()
        assert self.world.status.finished

    def drive_to_rest(self) -> None:
        for _ in range(ROUNDS_TO_THE_END):
            self.operator.round()
            if self.at_rest():
                break
            self.all_goes_well()
        self.check_rest()

    def at_rest(self) -> bool:
        status = self.world.status
        suspended = self.world.spec.get("suspend", False) and status.state == "Suspended"
        return (status.finished or suspended) and not self.world.live

    def all_goes_well(self) -> None:
        world = self.world
        world.service = Service.MISSING if world.service in {Service.FORMER, Service.FOREIGN} else world.service
        for pod in self.going:
            world.pods.pop(pod.name)
        for pod in world.pods.values():
            if pod.dead:
                pod.delete(world.now)  # Kubernetes' node controller does, and no more than that.
        for pod in world.live:
            if pod.running:
                world.end(pod, 0, "Completed")
            pod.running = pod.live
        world.now = max(world.now, self.operator.decision.wake_at or world.now) + timedelta(milliseconds=1)

    def check_rest(self) -> None:
        world = self.world
        assert self.at_rest(), f"after {ROUNDS_TO_THE_END} rounds: {world.status}\n{world.pods}"
        self.operator.round()
        self.operator.look()
        assert self.operator.decision.empty
        assert self.operator.decision.wake_at is None


class TestHistories(Histories.TestCase):  # type: ignore[misc,valid-type]
    settings = settings(max_examples=3 * settings().max_examples, stateful_step_count=60)


pytestmark = pytest.mark.timeout(3600)
