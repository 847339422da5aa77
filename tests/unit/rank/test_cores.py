"""Each rank's share of the cores that a container may use."""

import os
from pathlib import Path

import pytest
from ddpjob_rank.machine.cores import cores_of_each, threads_of_each, threads_within

V2, QUOTA, PERIOD = "cpu.max", "cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"


@pytest.mark.parametrize(
    ("limits", "processes", "threads"),
    [
        ({}, 1, 8),
        ({}, 2, 4),
        ({}, 16, 1),
        ({V2: "200000 100000\n"}, 1, 2),
        ({V2: "max 100000\n"}, 1, 8),
        ({V2: "150000 100000\n"}, 1, 1),
        ({V2: "400000 100000\n"}, 2, 2),
        ({V2: "6400000 100000\n"}, 2, 4),
        ({QUOTA: "300000\n", PERIOD: "100000\n"}, 1, 3),
        ({QUOTA: "-1\n", PERIOD: "100000\n"}, 1, 8),
        ({QUOTA: "no number\n", PERIOD: "100000\n"}, 1, 8),
        ({QUOTA: "100000\n", PERIOD: "0\n"}, 1, 8),
    ],
)
def test_ranks_share_what_the_container_may_use(
    limits: dict[str, str], processes: int, threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    for name, content in limits.items():
        file = tmp_path / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    assert threads_of_each(processes, tmp_path) == threads


@pytest.mark.parametrize(
    ("usable", "machine", "limit", "processes", "cores"),
    [
        ({4, 5, 6, 7}, 64, "max 100000", 2, [{4, 5}, {6, 7}]),
        ({4, 5, 6, 7}, 64, "400000 100000", 2, [{4, 5}, {6, 7}]),
        ({4, 5, 6}, 64, "max 100000", 2, [{4}, {5}]),
        ({0, 1, 2, 3}, 4, "max 100000", 2, None),
        (set(range(4, 64)), 64, "400000 100000", 2, None),
        ({4, 5, 6, 7}, 64, "max 100000", 1, None),
        ({4}, 64, "max 100000", 2, None),
    ],
    ids=[
        *("divided", "divided under a limit", "a core left over"),
        *("the whole machine", "a shared pool", "one process", "too few"),
    ],
)
def test_cores_are_divided_only_where_they_are_the_containers_alone(
    *,
    usable: set[int],
    machine: int,
    limit: str,
    processes: int,
    cores: list[set[int]] | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "sys/fs/cgroup" / V2
    file.parent.mkdir(parents=True)
    file.write_text(limit)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: usable)
    monkeypatch.setattr(os, "cpu_count", lambda: machine)
    assert cores_of_each(processes, tmp_path) == cores


HALVES = ["0-47,96-143", "48-95,144-191"]
"""The NUMA nodes of two Xeon 8468."""
LEFT, RIGHT = ({*range(48 * node, 48 * node + 48), *range(48 * node + 96, 48 * node + 144)} for node in range(2))


@pytest.mark.parametrize(
    ("usable", "limit", "near", "cores"),
    [
        (set(range(192)), "max 100000", [0, 0, 0, 0, 1, 1, 1, 1], [LEFT] * 4 + [RIGHT] * 4),
        (set(range(192)), "6400000 100000", [1, 0], [RIGHT, LEFT]),
        (set(range(1, 192)), "6400000 100000", [0, 1], [LEFT - {0}, RIGHT]),
        (set(range(192)), "max 100000", [0, None], [LEFT, LEFT | RIGHT]),
        (set(range(192)), "max 100000", [1], [RIGHT]),
        ({0, 1, 96, 97}, "max 100000", [0], None),
        ({0, 1, 96, 97}, "100000 100000", [1, 1], None),
        (set(range(192)), "max 100000", [None, None], None),
        (set(range(192)), "max 100000", [], None),
        (set(range(32, 192)), "max 100000", [0], None),
    ],
    ids=[
        *("a pod that has its machine alone", "a limited one", "a shared pool", "unknown of one", "one process"),
        *("all that it may use is there", "nothing that it may use is there", "unknown of all", "no GPUs"),
        "one process that has cores of its own",
    ],
)
def test_where_cores_are_not_the_containers_alone_a_rank_has_the_whole_node_of_its_gpu(
    *,
    usable: set[int],
    limit: str,
    near: list[int | None],
    cores: list[set[int]] | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup" / V2).write_text(limit)
    for number, cpus in enumerate(HALVES):
        (tmp_path / f"sys/devices/system/node/node{number}").mkdir(parents=True)
        (tmp_path / f"sys/devices/system/node/node{number}/cpulist").write_text(cpus)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: usable)
    monkeypatch.setattr(os, "cpu_count", lambda: 192)
    assert cores_of_each(max(1, len(near)), tmp_path, near) == cores


@pytest.mark.parametrize(
    ("cores", "threads"),
    [
        ([LEFT] * 4 + [RIGHT] * 4, [24] * 8),
        ([LEFT, LEFT], [48, 48]),
        ([RIGHT], [96]),
        ([LEFT, LEFT | RIGHT], [96, 96]),
    ],
    ids=["four each", "both on one node", "alone on a node", "one on all"],
)
def test_ranks_that_share_a_node_share_its_threads(
    cores: list[set[int]], threads: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(192)))
    assert threads_within([*map(frozenset, cores)], tmp_path) == threads
