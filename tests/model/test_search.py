"""Every history of small jobs: they end well, or for a reason that faults justify.

Neither the order of events nor crashes of the operator may change that.

Each case visits all of its moments, 59,000 in all cases together, and prints how many. `HYPOTHESIS_PROFILE=deep` adds
larger cases. Moments that differ only in the numbers of ranks, or in texts for people, are visited once. Time passes
only while nobody is at work.
"""

import os
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from ddpjob_operator.api import ConditionType, DDPJobStatus
from ddpjob_operator.engine import Queue

from .groups import Groups
from .kueue import Kueue
from .search import (
    ANY,
    CANCEL,
    DELETE_ALL,
    DELETE_GROUP,
    DELETE_PLACE,
    DEVICE_FAILED,
    EVICT,
    NO_ERROR,
    SANDBOX_LOST,
    SUSPEND,
    By,
    Graph,
    Search,
)

CRASH = frozenset({By.CRASH})
COST_NOTHING = (SUSPEND, CANCEL, NO_ERROR, EVICT, DELETE_PLACE)
IN_QUEUE = Kueue(Queue("training"), served=True)
no_wait = {"backoffSeconds": 0}
WELL = "AllRanksSucceeded"


@dataclass(frozen=True)
class Case:
    """A job, the largest number of these faults, and the reasons with which the job may end."""

    nodes: int
    faults: tuple[str, ...]
    at_most: int
    ends: set[str]
    spec: dict[str, Any] = field(default_factory=dict)
    there: dict[str, Any] = field(default_factory=dict)
    """What else the world contains."""

    @cached_property
    def whole_spec(self) -> dict[str, Any]:
        """The spec as a user writes it."""
        return {"nodes": self.nodes, **self.spec, "restart": {**no_wait, **self.spec.get("restart", {})}}


CASES: dict[str, Case] = {
    "one pod, two faults": Case(1, ANY, 2, {WELL}),
    "one pod, and no restart": Case(1, ANY, 2, {WELL, "MaxRestartsExceeded"}, {"restart": {"maxRestarts": 0}}),
    "one pod, and no disruption": Case(
        1, ANY, 2, {WELL, "MaxDisruptionsExceeded"}, {"restart": {"maxDisruptions": 0}}
    ),
    "one pod, and a node that loses its sandbox": Case(
        1, (SANDBOX_LOST,), 1, {WELL}, {"restart": {"maxRestarts": 0}}
    ),
    "one pod, suspended twice": Case(1, (SUSPEND,), 2, {WELL}),
    "one pod, to be deleted in its time": Case(1, ("exit 1",), 1, {WELL}, {"ttlSecondsAfterFinished": 60}),
    "one pod on the only node, which breaks twice": Case(
        1, (DEVICE_FAILED,), 2, {WELL}, there={"machines": ("node-0",)}
    ),
    "two pods, one fault": Case(2, ANY, 1, {WELL}),
    "two pods, one error too many": Case(
        2, ("exit 1",), 2, {WELL, "MaxRestartsExceeded"}, {"restart": {"maxRestarts": 1}}
    ),
    "two pods, suspended once": Case(2, (SUSPEND,), 1, {WELL}),
    "one pod, cancelled, suspended before or after": Case(1, (CANCEL, SUSPEND), 2, {WELL, "Cancelled"}),
    "one pod, and a rule against errors, before or after": Case(1, ("exit 1", NO_ERROR), 2, {WELL, "Application"}),
    "two pods, all of them deleted by hand": Case(2, (DELETE_ALL,), 1, {WELL}),
    "two pods, of which rank 0 is enough": Case(
        2, (SUSPEND,), 1, {WELL, "RankZeroSucceeded"}, {"successPolicy": "RankZero"}
    ),
    "two pods, and a deadline": Case(2, ("exit 1",), 1, {WELL, "DeadlineExceeded"}, {"activeDeadlineSeconds": 100}),
    "two pods in a PodGroup, one fault": Case(
        2, ("exit 1", DELETE_GROUP), 1, {WELL}, there={"groups": Groups(served=True)}
    ),
    "two pods in a queue, evicted once": Case(2, (EVICT,), 1, {WELL}, there={"kueue": IN_QUEUE}),
    "one pod in a queue, one fault": Case(1, (EVICT, DELETE_PLACE), 1, {WELL}, there={"kueue": IN_QUEUE}),
    "three pods that come up and finish": Case(3, (), 0, {WELL}),
    "three pods, one error": Case(3, ("exit 1",), 1, {WELL}),
    "three pods, one error too many": Case(
        3, ("exit 1",), 1, {WELL, "MaxRestartsExceeded"}, {"restart": {"maxRestarts": 0}}
    ),
}
DEEP: dict[str, Case] = {
    "one pod, three faults": Case(1, (*ANY, SUSPEND), 3, {WELL}),
    "two pods, two faults": Case(2, ANY, 2, {WELL}),
    "two pods on the only nodes, one of which breaks": Case(
        2, (DEVICE_FAILED,), 1, {WELL}, there={"machines": ("node-0", "node-1")}
    ),
    "three pods, a lost node": Case(3, ("node lost",), 1, {WELL}),
    "three pods, one deleted by hand": Case(3, ("deleted by hand",), 1, {WELL}),
    "three pods, suspended": Case(3, (SUSPEND,), 1, {WELL}),
}
ALL = {**CASES, **(DEEP if os.environ.get("HYPOTHESIS_PROFILE") == "deep" else {})}


FULL = {
    "one pod, two faults": "two pods meet one, a pod that may have no disruption two, test_histories.py many",
    "one pod, and no restart": "one pod may have no disruption, two pods one error too many",
    "one pod, suspended twice": "a pod is suspended before or after it is cancelled; unit/engine/test_suspending.py",
    "two pods, suspended once": "a pod is suspended before or after it is cancelled; unit/engine/test_suspending.py",
    "two pods, of which rank 0 is enough": "unit/engine/test_life.py and test_suspending.py; cluster/test_success.py",
    "two pods, all of them deleted by hand": "one pod is deleted by hand, and saves; two pods meet one fault",
    "three pods, one error": "two pods meet one fault, three one error too many",
    "three pods that come up and finish": "three pods that meet one error too many do so as well",
}


def _case(name: str) -> ParameterSet:
    return pytest.param(ALL[name], id=name, marks=pytest.mark.full(FULL[name]) if name in FULL else ())


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("case", [_case(name) for name in ALL])
def test_every_path_ends_as_its_faults_say_whether_the_operator_crashes_or_not(case: Case) -> None:
    graph = Search(case.whole_spec, case.faults, case.at_most, **case.there).explore()
    ends = graph.ends()
    print(f"{len(graph.moments)} moments, {sum(map(len, graph.moves))} moves, {len(ends)} ends")
    reasons = {number: _check_end(case, graph, number) for number in ends}
    assert set(reasons.values()) == case.ends
    _check_crashes(graph, reasons)


def _check_end(case: Case, graph: Graph, number: int) -> str:
    """The reason of an end, which the faults must justify."""
    status, faults = graph.moments[number].world.status, graph.moments[number].faults
    assert status.finished, f"stuck as {status.state} ({status.message}) after: {graph.history(number)}"
    errors, edits = faults.count("exit 1"), sum(faults.count(edit) for edit in COST_NOTHING)
    disruptions, limits = len(faults) - errors - edits, case.whole_spec["restart"]
    reason = _reason(status)
    told = f"{reason}, {status.restarts} restarts, {status.disruptions} disruptions after: {graph.history(number)}"
    assert status.restarts <= errors, told
    assert status.disruptions <= disruptions, told
    assert reason != "MaxRestartsExceeded" or errors > limits["maxRestarts"], told
    assert reason != "MaxDisruptionsExceeded" or disruptions > limits["maxDisruptions"], told
    return reason


def _reason(status: DDPJobStatus) -> str:
    ends = (status.condition(kind) for kind in (ConditionType.COMPLETE, ConditionType.FAILED))
    return next(end.reason for end in ends if end is not None)


def _check_crashes(graph: Graph, reasons: dict[int, str]) -> None:
    """Checks that each moment leads to an end, and that crashes do not add any other end."""
    bits = {reason: 1 << index for index, reason in enumerate(sorted(set(reasons.values())))}
    ends = {number: bits[reason] for number, reason in reasons.items()}
    with_crashes, without = graph.reached(ends), graph.reached(ends, CRASH)
    of_itself = graph.reached(ends, CRASH | {By.CHANCE})
    for number, moment in enumerate(graph.moments):
        assert of_itself[number], f"no end is to be reached after: {graph.history(number)}"
        if moment.idle:
            assert with_crashes[number] == without[number], f"crashes change the end after: {graph.history(number)}"
    for number, crashed in graph.crashes():
        assert not without[crashed] & ~without[number], f"a crash changes the end after: {graph.history(number)}"
