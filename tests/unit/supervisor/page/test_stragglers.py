"""Who holds the others up, by what each process needs for its own work."""

import random
import time
from typing import Any

import pytest
from ddpjob_supervisor.page.stragglers import Comparison, Work, stragglers
from ddpjob_supervisor.watch.beat import BeatDocument

S = 0.100
"""What is usual: seconds of own work."""


@pytest.mark.parametrize(
    ("seconds", "per_node", "named"),
    [
        ([], 1, []),
        ([S], 1, []),
        ([0.0, 0.0, 0.0], 1, []),
        ([S, S], 1, []),
        ([S, 1.4 * S], 1, []),
        ([S, 1.6 * S], 1, [(1, 1.6)]),
        ([S, 1.6 * S], 2, [(1, 1.6)]),
        ([0.0, S], 1, []),
        ([S, S, 1.2 * S], 1, []),
        ([S, 1.4 * S, S], 1, [(1, 1.4)]),
        ([S, S, S, 1.6 * S], 2, [(3, 1.6)]),
        ([S, S, 1.6 * S, 1.6 * S], 2, [(2, 1.6), (3, 1.6)]),
        ([S, S, 1.6 * S, 1.6 * S], 1, []),
        ([S, S, S, 2 * S, 3 * S, S, S, S], 1, [(4, 3.0), (3, 2.0)]),
        ([0.5 * S, 0.7 * S, S, 1.1 * S, 1.4 * S, 1.6 * S], 1, []),
        ([S] * 20 + [2 * S] * 9, 1, [(rank, 2.0) for rank in range(20, 28)]),
    ],
    ids=[
        "nobody",
        "alone",
        "no work at all",
        "two alike",
        "two, one a little slow",
        "two, one slow",
        "two of one node, one slow",
        "two, one with no work",
        "three, one a little slow",
        "three, one slow",
        "a slow process of two nodes",
        "a slow node of two",
        "half are slow",
        "two slow ones among many",
        "all differ",
        "more than are named",
    ],
)
def test_who_is_named(seconds: list[float], per_node: int, named: list[tuple[int, float]]) -> None:
    works = {rank: Work(rank // per_node, own, S) for rank, own in enumerate(seconds)}
    assert [(one.rank, pytest.approx(one.slowdown)) for one in stragglers(works)] == named
    assert all(one.node == one.rank // per_node for one in stragglers(works))


@pytest.mark.parametrize(("step_seconds", "named"), [(None, 1), (0.01, 1), (0.02, 0)])
def test_what_is_little_beside_the_step_holds_nobody_up(step_seconds: float | None, named: int) -> None:
    works = {rank: Work(rank, own, step_seconds) for rank, own in enumerate([0.001, 0.001, 0.001, 0.002])}
    assert len(stragglers(works)) == named


def beat(process: int, *, node: int | None = None, **seconds: float) -> BeatDocument:
    return {"rank": process, "node": process if node is None else node, "stepSeconds": 0.2, "seconds": seconds}


BEGUN = 1000
"""What the clock shows at the beginning: nothing depends on it."""


def compared(*beats: BeatDocument, seconds: int = 40) -> Comparison:
    """What is known once these have been said each second for so long."""
    comparison = Comparison()
    for now in range(BEGUN, BEGUN + seconds):
        comparison.add(1, beats, float(now))
    return comparison


@pytest.mark.parametrize(
    ("parts", "named", "slowest"),
    [
        ([{"data": 0.01, "forward": 0.03}] * 2 + [{"data": 0.08, "forward": 0.03}], [2], 2),
        ([{"forward": 0.03, "optimizer": 0.01}] * 2 + [{"forward": 0.03, "optimizer": 0.08}], [2], 2),
        ([{"forward": 0.04, "backward": 0.12}] * 2 + [{"forward": 0.08, "backward": 0.08}], [2], 2),
        ([{"forward": 0.04, "backward": 0.12}] + [{"forward": 0.041, "backward": 0.05}] * 2, [], None),
        (
            [{"forward": 0.04, "backward": 0.12, "communication": 0.08}] * 2
            + [{"forward": 0.04, "backward": 0.12, "communication": 0.01}],
            [2],
            2,
        ),
        (
            [{"forward": 0.04, "backward": 0.12}] * 2 + [{"forward": 0.04, "backward": 0.12, "communication": 0.01}],
            [],
            None,
        ),
        ([{"backward": 0.1}, {"backward": 0.2}, {"backward": 0.1}], [], None),
        ([{}, {}, {}], [], None),
    ],
    ids=[
        "slow data",
        "slow optimizer",
        "a slow forward, for which the others wait in backward",
        "those that wait in backward are not slow",
        "a slow backward, which is known by how little it waits",
        "a backward that says nothing where one does not know how long it waits",
        "backward alone",
        "whole steps alone",
    ],
)
def test_own_work_is_what_waits_for_nobody(
    parts: list[dict[str, float]], named: list[int], slowest: int | None
) -> None:
    comparison = compared(*(beat(process, **seconds) for process, seconds in enumerate(parts)))
    assert [one.rank for one in comparison.stragglers] == named
    if slowest is not None:
        assert comparison.slowest == slowest


def test_nobody_is_named_before_a_window_is_full_nor_after_a_restart() -> None:
    slow = [beat(0, data=0.05), beat(1, data=0.1)]
    assert compared(*slow, seconds=29).stragglers == ()
    comparison = compared(*slow)
    assert [(one.rank, one.slowdown) for one in comparison.stragglers] == [(1, 2.0)]
    comparison.add(2, slow, BEGUN + 41.0)
    assert (comparison.stragglers, comparison.slowest) == ((), None)


def test_a_straggler_is_named_with_what_holds_down_its_gpu() -> None:
    hot = beat(1, data=0.1) | {"slowed": "GPU 1 is slowed down: it is too hot"}
    assert [one.slowed for one in compared(beat(0, data=0.05), hot).stragglers] == [hot["slowed"]]
    assert [one.slowed for one in compared(beat(0, data=0.05), beat(1, data=0.1)).stragglers] == [None]


def test_who_is_slow_for_a_moment_is_not_named_and_who_recovers_is_named_no_more() -> None:
    comparison = Comparison()

    def go_on(begin: int, end: int, data: float) -> list[int]:
        for now in range(begin, end):
            comparison.add(1, [beat(0, data=0.05), beat(1, data=data), beat(2, data=0.05)], float(now))
        return [one.rank for one in comparison.stragglers]

    assert go_on(0, 40, 0.05) == []
    assert go_on(40, 50, 0.2) == []
    assert go_on(50, 70, 0.2) == [1]
    assert go_on(70, 110, 0.05) == []


def test_the_slowest_node_is_known_before_anybody_is_a_straggler_and_one_node_is_none() -> None:
    assert compared(beat(0, data=0.05), beat(1, data=0.06), seconds=5).slowest == 1
    assert compared(beat(0, node=0, data=0.05), beat(1, node=0, data=0.06), seconds=5).slowest is None


def test_noise_names_nobody_and_a_slow_one_stands_out_of_it() -> None:
    noise = random.Random(2)
    comparison, named = Comparison(), set()
    for now in range(600):
        beats = [beat(rank, data=noise.gauss(0.05, 0.005), forward=noise.gauss(0.05, 0.005)) for rank in range(16)]
        comparison.add(1, beats, float(now))
        named |= {one.rank for one in comparison.stragglers}
    assert named == set()
    for now in range(600, 640):
        beats = [beat(rank, data=noise.gauss(0.1 if rank == 5 else 0.05, 0.005), forward=0.05) for rank in range(16)]
        comparison.add(1, beats, float(now))
    assert [one.rank for one in comparison.stragglers] == [5]


def test_a_thousand_processes_cost_little() -> None:
    parts: dict[str, Any] = {"data": 0.01, "forward": 0.05, "backward": 0.1, "communication": 0.02}
    beats = [beat(rank, node=rank // 8, **parts) for rank in range(1024)]
    comparison = Comparison()
    began = time.process_time()
    for now in range(60):
        comparison.add(1, beats, float(now))
    milliseconds = (time.process_time() - began) / 60 * 1e3
    print(f"comparison of 1,024 processes: {milliseconds:.2f} ms of CPU for each second")
    assert milliseconds < 100
