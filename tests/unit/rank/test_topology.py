"""How cores are divided among ranks, on layouts of real machines as Linux shows them in /sys."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from ddpjob_rank.machine.topology import Core, divide, parse_cpu_list, read


def machine(root: Path, cores: Iterable[tuple[int, int, str]], *, nodes: bool = True) -> Path:
    """/sys of a machine: of each core its socket, node and CPUs."""
    system = root / "sys/devices/system"
    by_node: dict[int, list[str]] = {}
    for socket, node, cpus in cores:
        by_node.setdefault(node, []).append(cpus)
        for cpu in parse_cpu_list(cpus):
            directory = system / "cpu" / f"cpu{cpu}" / "topology"
            directory.mkdir(parents=True)
            (directory / "thread_siblings_list").write_text(f"{cpus}\n")
            (directory / "physical_package_id").write_text(f"{socket}\n")
    for node, lists in by_node.items() if nodes else ():
        (system / f"node/node{node}").mkdir(parents=True)
        (system / f"node/node{node}/cpulist").write_text(",".join(lists) + "\n")
    return root


TWO_SOCKETS = [(core // 48, core // 48, f"{core},{core + 96}") for core in range(96)]
"""Two Xeon 8468: CPU n and n + 96 are one core."""
ONE_SOCKET = [(0, 0, f"{2 * core}-{2 * core + 1}") for core in range(8)]
"""A cloud's machine, whose hyper-threads stand beside each other."""
FOUR_NODES_EACH = [(core // 64, core // 16, f"{core},{core + 128}") for core in range(128)]
"""Two EPYC 9554 with NPS4: eight nodes of 16 cores."""
SMALL = [(0, 0, "0"), (0, 0, "1")]


def whole(*cores: int, apart: int) -> set[int]:
    return {cpu for core in cores for cpu in (core, core + apart)}


def shares(root: Path, usable: Iterable[int], ranks: int, near: Sequence[int | None] = ()) -> list[set[int]] | None:
    divided = divide(read({*usable}, root), ranks, near)
    return None if divided is None else [{*cpus} for cpus in divided]


def test_eight_ranks_of_two_sockets_have_whole_cores_of_one_socket(tmp_path: Path) -> None:
    divided = shares(machine(tmp_path, TWO_SOCKETS), range(192), 8)
    assert divided == [whole(*range(12 * rank, 12 * rank + 12), apart=96) for rank in range(8)]


@pytest.mark.parametrize(
    ("layout", "usable", "ranks", "expected"),
    [
        (
            TWO_SOCKETS,
            range(192),
            3,
            [whole(*range(24), apart=96), whole(*range(24, 48), apart=96), whole(*range(48, 96), apart=96)],
        ),
        (ONE_SOCKET, range(16), 4, [{*range(4 * rank, 4 * rank + 4)} for rank in range(4)]),
        (ONE_SOCKET, range(16), 3, [{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}]),
        (
            FOUR_NODES_EACH,
            range(256),
            2,
            [whole(*range(64), apart=128), whole(*range(64, 128), apart=128)],
        ),
        (
            FOUR_NODES_EACH,
            range(256),
            8,
            [whole(*range(16 * rank, 16 * rank + 16), apart=128) for rank in range(8)],
        ),
        (
            FOUR_NODES_EACH,
            range(256),
            4,
            [whole(*range(32 * rank, 32 * rank + 32), apart=128) for rank in range(4)],
        ),
        (TWO_SOCKETS, [3, 4, 99, 5, 48], 2, [{3, 99}, {4}]),
        (TWO_SOCKETS, [3, 99, 48, 144], 2, [{3, 99}, {48, 144}]),
        (SMALL, [0, 1], 2, [{0}, {1}]),
        (SMALL, [0, 1], 3, None),
        (TWO_SOCKETS, [3, 99], 2, None),
    ],
    ids=[
        "nobody straddles two sockets, though one rank then has more",
        "hyper-threads beside each other",
        "an equal number for each, though a core is left over",
        "a socket for each rank, with all its nodes",
        "a node for each rank",
        "two nodes for each rank",
        "an odd part of a machine: most cores count, and of a core what may be used",
        "a core of each socket",
        "two cores",
        "more ranks than cores",
        "two hyper-threads are one core",
    ],
)
def test_ranks_have_whole_cores_that_are_near_each_other(
    layout: list[tuple[int, int, str]],
    usable: Iterable[int],
    ranks: int,
    expected: list[set[int]] | None,
    tmp_path: Path,
) -> None:
    assert shares(machine(tmp_path, layout), usable, ranks) == expected


@pytest.mark.parametrize(
    ("near", "nodes"),
    [
        ([1, 1, 0, 0], [1, 1, 0, 0]),
        ([1, 0, 1, 0], [1, 0, 1, 0]),
        ([0, 0, 0, 0], [0, 0, 0, 0]),
        ([1, None, 0, 0], [0, 0, 1, 1]),
        ([7, 7, 0, 0], [0, 0, 1, 1]),
        ([], [0, 0, 1, 1]),
    ],
    ids=[
        *("as the GPUs stand", "in any order", "all GPUs at one socket"),
        *("unknown of one", "a node that is not this container's", "no GPUs"),
    ],
)
def test_ranks_are_near_their_gpus_if_it_is_known_where_all_are(
    near: list[int | None], nodes: list[int], tmp_path: Path
) -> None:
    divided = shares(machine(tmp_path, TWO_SOCKETS), range(192), 4, near)
    assert divided is not None
    assert [{cpu % 96 // 48 for cpu in cpus} for cpus in divided] == [{node} for node in nodes]
    assert len({cpu for cpus in divided for cpu in cpus}) == sum(map(len, divided)), "nobody shares a core"


def test_where_sys_says_nothing_of_nodes_all_cores_are_alike(tmp_path: Path) -> None:
    root = machine(tmp_path, TWO_SOCKETS, nodes=False)
    divided = shares(root, range(192), 2)
    assert divided == [whole(*range(48), apart=96), whole(*range(48, 96), apart=96)]


def test_where_sys_says_nothing_at_all_each_cpu_is_a_core(tmp_path: Path) -> None:
    assert shares(tmp_path, [4, 5, 6, 7], 2) == [{4, 5}, {6, 7}]


def test_a_number_that_the_system_does_not_tell_counts_as_0(tmp_path: Path) -> None:
    topology = tmp_path / "sys/devices/system/cpu/cpu1/topology"
    topology.mkdir(parents=True)
    (topology / "physical_package_id").write_text("-1\n")
    assert read({0, 1}, tmp_path) == [Core(0, 0, cpu, frozenset({cpu})) for cpu in (0, 1)]
