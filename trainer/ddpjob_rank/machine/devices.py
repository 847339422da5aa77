"""A GPU has two numbers, one on its machine and one among the GPUs that a process sees. Both count from 0."""

from collections.abc import Iterable, Mapping

VISIBLE = "CUDA_VISIBLE_DEVICES"


def renumbering(indices: Iterable[int], env: Mapping[str, str]) -> str | None:
    """Explains which GPUs of the machine have the numbers `indices` in this process; None if they have the same.

    The machine's numbers are CUDA's. They agree with nvidia-smi's only if all GPUs are of one model, or if
    CUDA_DEVICE_ORDER is PCI_BUS_ID.
    """
    if VISIBLE not in env:
        return None
    shown = [name.strip() for name in env[VISIBLE].split(",")]
    pairs = [f"device {index} here is {_gpu(shown[index])}" for index in indices if index < len(shown)]
    return f"{', '.join(pairs)} ({VISIBLE}={env[VISIBLE]})" if pairs else None


def _gpu(name: str) -> str:
    """An entry of CUDA_VISIBLE_DEVICES for a message: a number, or the identifier of a GPU or of a part of a GPU."""
    return f"GPU {name} of the machine" if name.isdecimal() else name
