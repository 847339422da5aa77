"""GPUs have two numbers: a process counts its visible ones from 0, whatever the machine calls them."""

from collections.abc import Iterable, Mapping

VISIBLE = "CUDA_VISIBLE_DEVICES"


def renumbering(indices: Iterable[int], env: Mapping[str, str]) -> str | None:
    """What the machine calls the GPUs that have these numbers here; None: the same, since all are visible.

    The machine's numbers are CUDA's: those of nvidia-smi only if all GPUs are alike, or with
    CUDA_DEVICE_ORDER=PCI_BUS_ID.
    """
    if VISIBLE not in env:
        return None
    shown = [name.strip() for name in env[VISIBLE].split(",")]
    pairs = [f"device {index} here is {_gpu(shown[index])}" for index in indices if index < len(shown)]
    return f"{', '.join(pairs)} ({VISIBLE}={env[VISIBLE]})" if pairs else None


def _gpu(name: str) -> str:
    """A number, or the identifier of a GPU or of a part of one."""
    return f"GPU {name} of the machine" if name.isdecimal() else name
