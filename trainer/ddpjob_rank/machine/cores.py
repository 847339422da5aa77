"""Which cores this container may use, and each rank's share of them."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from .topology import divide, nodes_of_each, read


def threads_of_each(processes: int, root: Path = Path("/")) -> int:
    """Threads for each of this many processes, so that together they keep busy what the container may use.

    PyTorch looks at the cores that it may run on and not at a limit on their time, and in a container with a limit of
    two on a machine of 64 it would start 64 threads, which wait for each other.
    """
    cores = float(len(_usable()))
    return max(1, int(min([cores, *_quotas(root)])) // processes)


def threads_within(cores: Sequence[frozenset[int]], root: Path = Path("/")) -> list[int]:
    """Threads for each process that is bound to these cores, which several of them may share."""
    most = threads_of_each(len(cores), root)
    return [min(most, max(1, len(own) // cores.count(own))) for own in cores]


def cores_of_each(
    processes: int, root: Path = Path("/"), near: Sequence[int | None] = ()
) -> list[frozenset[int]] | None:
    """Cores of each of this many processes; None if the scheduler should choose.

    `near` is the NUMA node of each process's GPU, where it is known.

    Cores are divided only if they belong to this container alone, as with the kubelet's static CPU manager: otherwise
    the first ranks of all containers of a machine would crowd on the same ones. That manager leaves a shared pool to
    all other containers, and a limit below what may be used shows that this is one of them. Each process then gets
    whole ones, and of one NUMA node if possible: that of its GPU. A single one has them all.

    Otherwise a process gets its GPU's whole NUMA node, which it shares with whoever else runs there.
    """
    usable = _usable()
    shared = len(usable) == os.cpu_count() or any(quota < len(usable) for quota in _quotas(root))
    if not shared:
        return divide(read(usable, root), processes, near) if processes > 1 else None
    return nodes_of_each(read(usable, root), near) if any(node is not None for node in near) else None


def _usable() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _quotas(root: Path) -> Iterator[float]:
    """Limits of this container's CPU time, in cores, from its control groups.

    (https://docs.kernel.org/admin-guide/cgroup-v2.html#cpu, and scheduler/sched-bwc for version 1.)
    """
    for names in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        try:
            words = " ".join((root / "sys/fs/cgroup" / name).read_text(encoding="ascii") for name in names).split()
            quota, period = float(words[0]), float(words[1])
        except (OSError, ValueError, IndexError):  # `max`: no limit.
            continue
        if quota > 0 and period > 0:
            yield quota / period
