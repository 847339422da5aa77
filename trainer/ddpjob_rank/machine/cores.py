"""The cores that this container may use, and each rank's share of them."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from .topology import divide, nodes_of_each, read


def threads_of_each(processes: int, root: Path = Path("/")) -> int:
    """How many threads each of `processes` processes gets, so that together they use all CPU time of the container.

    PyTorch counts the cores that it may run on, and ignores a limit on CPU time: in a container with a limit of 2 on
    a machine with 64 cores it would start 64 threads, which wait for each other.
    """
    cores = float(len(_usable()))
    return max(1, int(min([cores, *_quotas(root)])) // processes)


def threads_within(cores: Sequence[frozenset[int]], root: Path = Path("/")) -> list[int]:
    """How many threads each process gets. `cores` are the cores that each process is bound to, and may be shared."""
    most = threads_of_each(len(cores), root)
    return [min(most, max(1, len(own) // cores.count(own))) for own in cores]


def cores_of_each(
    processes: int, root: Path = Path("/"), near: Sequence[int | None] = ()
) -> list[frozenset[int]] | None:
    """The cores to which each of `processes` processes is to be bound; None if the scheduler should choose.

    `near` is the NUMA node of each process's GPU, if it is known.

    Cores are divided only if they belong to this container alone, as with the kubelet's static CPU manager: otherwise
    the first ranks of all containers of a machine would crowd on the same cores. That manager leaves a shared pool of
    cores to all other containers. A CPU limit below the number of usable cores shows that this container is one of
    these. Divided cores are whole cores and, if possible, belong to one NUMA node, that of the process's GPU. A
    single process uses all of them.

    If cores are shared, a process gets all cores of its GPU's NUMA node, which other containers use as well.
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
    """Limits on this container's CPU time, in cores, from its control groups.

    (https://docs.kernel.org/admin-guide/cgroup-v2.html#cpu, and scheduler/sched-bwc for version 1.)
    """
    for names in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        try:
            words = " ".join((root / "sys/fs/cgroup" / name).read_text(encoding="ascii") for name in names).split()
            quota, period = float(words[0]), float(words[1])
        except (OSError, ValueError, IndexError):  # `max` means that there is no limit.
            continue
        if quota > 0 and period > 0:
            yield quota / period
