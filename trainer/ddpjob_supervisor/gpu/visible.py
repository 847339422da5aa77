"""Which GPUs the processes of a node use, and where these are. Pure, but for a look at /sys."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from ddpjob_rank.machine.devices import VISIBLE

from .health import Gpu

Shown = Sequence[Gpu | None]
"""What a process counts from 0; None: a part of a GPU (MIG), which is left alone."""


def visible(gpus: Sequence[Gpu], env: Mapping[str, str]) -> Shown:
    """The GPUs that CUDA shows to processes with this environment.

    As with CUDA, names are indexes or the beginnings of UUIDs, and the list ends at the first that names nothing.
    (https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables)
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
    """The GPUs of one of these processes: the one with its local rank, or all if it is the only process."""
    own = shown if processes == 1 else shown[local_rank : local_rank + 1]
    return [gpu for gpu in own if gpu is not None]


def nodes_of(shown: Shown, processes: int, root: Path = Path("/")) -> list[int | None]:
    """The NUMA node of each process's GPUs; None: it is not known, or they are of several nodes."""
    nodes = ({_node(gpu, root) for gpu in of_rank(shown, local, processes)} for local in range(processes))
    return [of_one.pop() if len(of_one) == 1 else None for of_one in nodes]


def _node(gpu: Gpu, root: Path) -> int | None:
    try:
        node = int((root / "sys/bus/pci/devices" / (gpu.pci or "none") / "numa_node").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None  # -1: the firmware does not say.
