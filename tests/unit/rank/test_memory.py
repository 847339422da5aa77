"""That the kernel killed a process for want of memory, by the files in which it counts."""

from pathlib import Path

import pytest
from ddpjob_rank.machine import memory

V1 = "7:pids:/\n4:memory:/pod/trainer\n0::/\n"
V2 = "0::/pod/trainer\n"
OOM_CONTROL = "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"
EVENTS = "low 0\nhigh 0\nmax 7\noom 1\noom_kill 3\noom_group_kill 0\n"


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.mark.parametrize(
    ("files", "kills"),
    [
        ({}, 0),
        ({"proc/self/cgroup": V2}, 0),
        ({"proc/self/cgroup": V2, "sys/fs/cgroup/pod/trainer/memory.events": EVENTS}, 3),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.events": EVENTS}, 3),
        ({"proc/self/cgroup": V1, "sys/fs/cgroup/memory/pod/trainer/memory.oom_control": OOM_CONTROL}, 2),
        ({"proc/self/cgroup": V1, "sys/fs/cgroup/memory/memory.oom_control": OOM_CONTROL}, 2),
        ({"proc/self/cgroup": V2, "sys/fs/cgroup/pod/trainer/memory.events": "low 0\n"}, 0),
        ({"proc/self/cgroup": "0::/pod/trainer/own/part\n", "sys/fs/cgroup/pod/trainer/memory.events": EVENTS}, 3),
    ],
    ids=[
        "no cgroups",
        "nobody counts",
        "v2",
        "v2 in a container",
        "v1",
        "v1 in a container that knows its name outside",
        "a kernel that does not count kills",
        "v2 in a cgroup of one's own in a container",
    ],
)
def test_kills_are_read_from_the_own_cgroup(tmp_path: Path, files: dict[str, str], kills: int) -> None:
    write(tmp_path, files)
    assert memory.kills(tmp_path) == kills


@pytest.mark.parametrize(
    ("files", "together"),
    [
        ({}, False),
        ({"proc/self/cgroup": V2}, False),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.oom.group": "1\n"}, True),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.oom.group": "0\n"}, False),
        (
            {
                "proc/self/cgroup": "0::/own\n",
                "sys/fs/cgroup/own/memory.oom.group": "0\n",
                "sys/fs/cgroup/memory.oom.group": "1\n",
            },
            True,
        ),
        ({"proc/self/cgroup": V1, "sys/fs/cgroup/memory/memory.oom_control": OOM_CONTROL}, False),
    ],
    ids=["no cgroups", "no such file", "a kubelet's default", "singleProcessOOMKill", "from above", "v1"],
)
def test_whether_all_are_killed_together_is_read_from_version_2(
    tmp_path: Path, files: dict[str, str], *, together: bool
) -> None:
    write(tmp_path, files)
    assert memory.kills_together(tmp_path) is together


MEMINFO = "MemTotal: 9000 kB\nMemAvailable:  8 kB\n"
LIMITED = {"memory.max": "7000\n", "memory.current": "3000\n", "memory.stat": "anon 1\ninactive_file 500\n"}
LIMITED_V1 = {
    "memory.limit_in_bytes": "7000\n",
    "memory.usage_in_bytes": "3000\n",
    "memory.stat": "inactive_file 1\ntotal_inactive_file 500\n",
}


def under(directory: str, files: dict[str, str]) -> dict[str, str]:
    return {f"sys/fs/cgroup{directory}/{name}": text for name, text in files.items()}


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({}, 0),
        ({"proc/meminfo": MEMINFO}, 8192),
        ({"proc/meminfo": MEMINFO, "proc/self/cgroup": V2, **under("/pod/trainer", LIMITED)}, 4500),
        ({"proc/meminfo": MEMINFO, "proc/self/cgroup": "0::/\n", **under("", LIMITED)}, 4500),
        ({"proc/meminfo": MEMINFO, "proc/self/cgroup": V1, **under("/memory", LIMITED_V1)}, 4500),
        ({"proc/meminfo": MEMINFO, "proc/self/cgroup": V2, **under("/pod", LIMITED | {"memory.max": "max\n"})}, 8192),
        ({"proc/self/cgroup": V2, **under("/pod", LIMITED), **under("", LIMITED | {"memory.max": "3600"})}, 1100),
        ({"proc/self/cgroup": V2, **under("/pod", LIMITED | {"memory.current": "7600"})}, 0),
        (
            {"proc/meminfo": "MemAvailable:  4 kB\n", "proc/self/cgroup": V2, **under("/pod", LIMITED)},
            4096,
        ),
    ],
    ids=[
        "unknown",
        "no cgroups",
        "v2",
        "v2 in a container",
        "v1 in a container",
        "v2 without a limit",
        "a smaller limit further up",
        "more used than allowed",
        "a machine with less",
    ],
)
def test_free_is_what_the_limits_and_the_machine_leave(tmp_path: Path, files: dict[str, str], free: int) -> None:
    write(tmp_path, files)
    assert memory.free(tmp_path) == free


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("DataLoader worker (pid 17) is killed by signal: Killed. ", True),
        ("DataLoader worker (pid(s) 17, 18) exited unexpectedly", True),
        ("A process in the process pool was terminated abruptly while the future was running or pending.", True),
        ("DataLoader worker (pid 17) is killed by signal: Segmentation fault. ", False),
        ("shard 3 is empty", False),
    ],
)
def test_an_error_may_tell_that_a_process_was_killed(text: str, *, lost: bool) -> None:
    assert memory.lost_a_process(RuntimeError(text)) is lost
