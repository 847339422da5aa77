"""Each rank's share of the cores that a container may use."""

import os
from pathlib import Path

import pytest
from ddpjob_rank.machine.cores import cores_of_each, threads_of_each

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
