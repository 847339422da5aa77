"""The full preflight: who meets whom, and whom its results accuse."""

import itertools
from collections import Counter
from collections.abc import Callable

import pytest
from ddpjob_preflight.pairing import ALL_PAIRS_UP_TO, rounds
from ddpjob_preflight.plan import NO_END, WRONG, WRONGLY, Kind, Outcome, PlanStep, Shape, _trouble, plan
from ddpjob_supervisor.preflight.findings import Finding, Level, verdict

MIB = 1 << 20
FINE = Outcome(seconds=0.016, size=16 * MIB)
CUT = Outcome("no end within 20 s")
FALSE = Outcome(f"{WRONG} at 3 of 4194304 places")

Answer = Callable[[PlanStep, int], Outcome | None]
"""What comes of a step for a rank; None: it is silent."""


@pytest.mark.parametrize("nodes", range(2, ALL_PAIRS_UP_TO + 1))
def test_in_a_small_gang_each_node_meets_each_other_once(nodes: int) -> None:
    played = list(rounds(nodes))
    assert sorted(itertools.chain(*played)) == list(itertools.combinations(range(nodes), 2))
    assert len(played) == nodes - 1 + nodes % 2


@pytest.mark.parametrize("nodes", [*range(2, 40), 64, 100, 1000])
def test_nobody_is_in_two_pairs_of_a_round(nodes: int) -> None:
    for pairs in rounds(nodes):
        present = list(itertools.chain(*pairs))
        assert len(set(present)) == len(present)
        assert all(one < other < nodes for one, other in pairs)


@pytest.mark.parametrize("nodes", [17, 64, 101, 1000])
def test_in_a_large_gang_each_node_meets_several_in_few_rounds(nodes: int) -> None:
    played = list(rounds(nodes))
    meetings = Counter(itertools.chain.from_iterable(itertools.chain(*played)))
    assert min(meetings[node] for node in range(nodes)) >= 2 * (nodes.bit_length() - 1) - 1
    assert len(played) <= 3 * nodes.bit_length()


def went(shape: Shape, answer: Answer, *, devices: bool = False) -> tuple[list[Finding], list[PlanStep]]:
    """What a plan finds, and what was tried."""
    steps, tried = plan(shape, devices=devices), []
    try:
        step = next(steps)
        while True:
            tried.append(step)
            answers = {rank: answer(step, rank) for rank in range(shape.ranks)}
            step = steps.send({rank: outcome for rank, outcome in answers.items() if outcome is not None})
    except StopIteration as end:
        return end.value, tried


def links(bad: set[tuple[int, int]], outcome: Outcome = CUT, per_node: int = 1) -> Answer:
    """A network in which some pairs of nodes cannot exchange data."""

    def answer(step: PlanStep, rank: int) -> Outcome:
        if step.kind is Kind.ALL:
            return outcome if bad else FINE
        mine = {pair for pair in step.pairs if rank // per_node in pair}
        return outcome if mine & bad else FINE

    return answer


def all_of(node: int, nodes: int) -> set[tuple[int, int]]:
    return {pair for pair in itertools.combinations(range(nodes), 2) if node in pair}


@pytest.mark.parametrize(
    ("nodes", "answer", "accused", "said"),
    [
        (
            2,
            links({(0, 1)}),
            [(0, 1)],
            "nodes 0 and 1 failed the all_reduce with each other: no end within 20 s; all",
        ),
        (4, links({(1, 2)}), [(1, 2)], "nodes 1 and 2 failed the all_reduce with each other"),
        (4, links({(1, 2), (0, 3)}), [(0, 3), (1, 2)], "nodes 0 and 3 failed the all_reduce with each other"),
        (3, links(all_of(1, 3)), [(1,)], "node 1 failed the all_reduce with every other node that was tried: no end"),
        (
            6,
            links(all_of(1, 6) | all_of(4, 6)),
            [(1, 4)],
            "nodes 1 and 4 failed the all_reduce with every other node",
        ),
        (6, links(all_of(1, 6) | {(2, 3)}), [(1,), (2, 3)], "node 1 failed"),
        (
            3,
            links(all_of(0, 3) | all_of(1, 3)),
            [()],
            "no two nodes can exchange data: no end within 20 s; all ports",
        ),
        (9, links(all_of(7, 9), FALSE), [(7,)], f"{WRONG} at 3 of 4194304 places; have the machine looked at"),
        (40, links(all_of(7, 40)), [(7,)], "node 7 failed the all_reduce with every other node that was tried"),
    ],
    ids=[
        "two nodes",
        "a link",
        "two links",
        "a node of three",
        "two nodes of six",
        "a node and a link",
        "all",
        "a wrong sum",
        "a node of many",
    ],
)
def test_who_is_to_blame_is_named(nodes: int, answer: Answer, accused: list[tuple[int, ...]], said: str) -> None:
    findings, _ = went(Shape(nodes, 1), answer)
    assert sorted(finding.nodes for finding in findings) == accused, findings
    assert all(finding.level is Level.FAIL and finding.retry for finding in findings)
    assert any(said in finding.message for finding in findings), findings


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        (
            Shape(4, 4),
            "the all_reduce over all 4 ranks failed: no end within 20 s; processes of the node cannot exchange data",
        ),
        (
            Shape(4, 2),
            "the all_reduce over all 4 ranks failed, although each pair of nodes that was tried works: no end",
        ),
    ],
    ids=["one node", "two nodes"],
)
def test_a_failure_that_is_between_no_two_nodes_is_not_laid_on_a_pair(shape: Shape, said: str) -> None:
    findings, _ = went(shape, lambda step, _: CUT if step.kind is Kind.ALL else FINE)
    assert [finding.message[: len(said)] for finding in findings] == [said]


def test_processes_of_a_node_are_counted_to_it() -> None:
    findings, _ = went(Shape(8, 2), links({(1, 2)}, per_node=2))
    assert [finding.nodes for finding in findings] == [(1, 2)]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Kind.ARRIVE, "ranks 2 and 3 on node 1 did not reach rank 0 in time"),
        (Kind.ALL, "ranks 2 and 3 on node 1 stopped answering"),
        (Kind.PAIRS, "ranks 2 and 3 on node 1 stopped answering"),
    ],
)
def test_who_says_nothing_is_named_and_nothing_more_is_tried(kind: Kind, said: str) -> None:
    findings, tried = went(Shape(6, 2), lambda step, rank: None if step.kind is kind and rank in {2, 3} else FINE)
    failed = [finding for finding in findings if finding.level is Level.FAIL]
    assert [(finding.nodes, finding.message[: len(said)]) for finding in failed] == [((1,), said)]
    assert tried[-1].kind is kind


@pytest.mark.parametrize(
    ("ranks", "named"),
    [
        (64, "ranks 8, 9, 10, 11, 12, 13, 14, 15 and 48 more on nodes 1, 2, 3, 4, 5, 6 and 7"),
        (72, "ranks 8, 9, 10, 11, 12, 13, 14, 15 and 56 more on nodes 1, 2, 3, 4, 5, 6, 7 and 8"),
    ],
)
def test_many_silent_ranks_are_not_all_listed(ranks: int, named: str) -> None:
    findings, _ = went(Shape(ranks, 8), lambda _, rank: FINE if rank < 8 else None)
    assert findings[0].message.startswith(f"{named} did not reach")


def test_the_reason_for_each_is_what_its_own_pairs_said() -> None:
    def answer(step: PlanStep, rank: int) -> Outcome:
        link = (0, 1) in step.pairs and rank < 2
        return FALSE if link else links(all_of(4, 5))(step, rank)

    findings, _ = went(Shape(5, 1), answer)
    assert {finding.nodes: (CUT.trouble in finding.message, WRONG in finding.message) for finding in findings} == {
        (4,): (True, False),
        (0, 1): (False, True),
    }


def test_a_node_that_fails_with_three_others_is_not_waited_for_again() -> None:
    _, tried = went(Shape(16, 1), links(all_of(5, 16)))
    assert sum(5 in pair for step in tried for pair in step.pairs) == 3


@pytest.mark.parametrize(
    ("trouble", "cause"),
    [
        (f"{WRONGLY}: 2 wrong values in 8 matrix products", "DeviceFailed"),
        ("CUDA error: uncorrectable ECC error encountered", "DeviceFailed"),
        ("no end within 60 s", "PreflightFailed"),
        ("CUDA out of memory", "PreflightFailed"),
    ],
)
def test_gpus_are_tried_first_and_a_bad_one_ends_it(trouble: str, cause: str) -> None:
    bad = Outcome(trouble)
    findings, tried = went(
        Shape(4, 2), lambda step, rank: bad if step.kind is Kind.DEVICE and rank == 3 else FINE, devices=True
    )
    assert [step.kind for step in tried] == [Kind.ARRIVE, Kind.DEVICE]
    assert [(finding.check, finding.nodes, finding.retry) for finding in findings] == [("gpus", (1,), True)]
    assert findings[0].message.startswith(f"the GPU of rank 3 on node 1 {trouble}")
    error = verdict(findings)
    assert error is not None
    assert (error.cause, error.exit_code) == (cause, 201)


@pytest.mark.parametrize(
    ("shape", "kinds"),
    [
        (Shape(1, 1), [Kind.ARRIVE]),
        (Shape(8, 8), [Kind.ARRIVE, Kind.ALL]),
        (Shape(2, 1), [Kind.ARRIVE, Kind.ALL]),
        (Shape(3, 1), [Kind.ARRIVE, Kind.ALL, Kind.PAIRS, Kind.PAIRS, Kind.PAIRS]),
    ],
    ids=["one process", "one node", "two nodes", "three nodes"],
)
def test_a_healthy_gang_is_through_soon(shape: Shape, kinds: list[Kind]) -> None:
    findings, tried = went(shape, links(set()))
    assert [step.kind for step in tried] == kinds
    told = [("allReduce", Level.OK)] if Kind.ALL in kinds else []
    assert [(finding.check, finding.level) for finding in findings] == told


def test_the_bandwidth_of_the_whole_is_told_as_nccl_tests_do() -> None:
    findings, _ = went(Shape(4, 1), lambda _, rank: Outcome(seconds=0.5 - rank / 10, size=500 * MIB))
    assert findings[0].message == (
        "all_reduce of 500 MiB over 4 ranks: the sum is right; algorithm bandwidth 1.05 GB/s, bus bandwidth 1.57 GB/s"
    )


@pytest.mark.parametrize(
    ("nodes", "seconds", "named"),
    [(4, 0.032, []), (4, 0.033, [(0, 2)]), (3, 0.033, [(0, 2)])],
    ids=["half as fast", "slower", "slower, of three pairs"],
)
def test_the_slowest_pair_is_named_if_it_is_far_behind(
    nodes: int, seconds: float, named: list[tuple[int, int]]
) -> None:
    slow = Outcome(seconds=seconds, size=FINE.size)
    findings, _ = went(Shape(nodes, 1), lambda step, rank: slow if (0, 2) in step.pairs and rank == 2 else FINE)
    assert [finding.nodes for finding in findings if finding.level is Level.WARN] == named
    assert not any(finding.level is Level.FAIL for finding in findings)


@pytest.mark.parametrize(
    ("troubles", "closest"),
    [
        ([], ""),
        (["", ""], ""),
        (["", f"{NO_END} 9 s"], f"{NO_END} 9 s"),
        ([f"{NO_END} 9 s", "Connection closed by peer"], f"{NO_END} 9 s"),
        ([f"{NO_END} 9 s", "", f"{WRONG} at 1 place", f"{WRONG} at 2 places"], f"{WRONG} at 1 place"),
    ],
)
def test_of_several_troubles_the_first_counts_that_is_not_to_have_waited(troubles: list[str], closest: str) -> None:
    assert _trouble(*map(Outcome, troubles)) == closest
