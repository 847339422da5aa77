"""The GPUs that the processes of a node use, and their NUMA nodes. Pure, except that it reads /sys."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from ddpjob_rank.machine.devices import VISIBLE

from .health import Gpu

Shown = Sequence[Gpu | None]
"""The GPUs of a process in its own numbering, from 0. None stands for a MIG instance, which is not monitored."""


def visible(gpus: Sequence[Gpu], env: Mapping[str, str]) -> Shown:
    """The GPUs that CUDA shows to processes with this environment.

    As in CUDA, each name is an index or the beginning of a UUID, and the list ends before the first name that matches
    no GPU. (https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables)
    """
    if VISIBLE not in env:
        return gpus
    shown: list[Gpu | None] = []
    for name in (part.strip() for part in env[VISIBLE].split(",")):
        gpu = next((gpu for gpu in gpus if name == str(gpu.index) or (name and gpu.uuid.startswith(name))), None)
        if gpu is None and not name.startswith("MIG-"):
            break
        shown.append(gpu)
    return shown


def of_rank(shown: Shown, local_rank: int, processes: int) -> list[Gpu]:
    """The GPUs of one process: the GPU whose number is its local rank, or all GPUs if it is the only process."""
    own = shown if processes == 1 else shown[local_rank : local_rank + 1]
    return [gpu for gpu in own if gpu is not None]


def nodes_of(shown: Shown, processes: int, root: Path = Path("/")) -> list[int | None]:
    """The NUMA node of each process's GPUs; None if it is unknown, or if they belong to several nodes."""
    each = ({_node(gpu, root) for gpu in of_rank(shown, local, processes)} for local in range(processes))
    return [nodes.pop() if len(nodes) == 1 else None for nodes in each]


def _node(gpu: Gpu, root: Path) -> int | None:
    try:
        node = int((root / "sys/bus/pci/devices" / (gpu.pci or "none") / "numa_node").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None  # The firmware reports -1 if it has no information.
