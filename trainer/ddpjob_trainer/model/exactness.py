"""PyTorch's settings that determine whether a GPU computes the same numbers each time, and how exact they are.

On a CPU the same program always computes the same bits. On a GPU, cuDNN may choose the fastest algorithm by trying
several, some kernels add numbers in the order in which their threads arrive, and TF32 rounds the factors of products.
"""

import os
from typing import Any

import torch
from ddpjob_rank.console import say

from ddpjob_trainer.options import ComputingConfig

WORKSPACE, FIXED = "CUBLAS_WORKSPACE_CONFIG", ":4096:8"
"""cuBLAS computes the same bits only with a workspace of a fixed size (https://docs.nvidia.com/cuda/cublas/)."""


def prepare(config: ComputingConfig) -> None:
    """Makes PyTorch deterministic if `--deterministic` is given. Call it before cuBLAS reads its variable.

    After this, an operation that has no deterministic form raises a RuntimeError that names the operation.
    """
    if not config.deterministic:
        return
    os.environ.setdefault(WORKSPACE, FIXED)
    torch.use_deterministic_algorithms(mode=True)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True


def log_settings(device: torch.device, *, leads: bool) -> None:
    """Logs the settings on rank 0 if it trains on a GPU; on a CPU there is no choice."""
    if leads and device.type == "cuda":
        say(f"exactness: {description()}")


def description() -> str:
    """PyTorch's present settings, such as `TF32 in convolutions, cudnn.benchmark off, not deterministic`."""
    cudnn = torch.backends.cudnn
    kinds = {"products": torch.backends.cuda.matmul, "convolutions": getattr(cudnn, "conv", cudnn)}
    rounded = [kind for kind, settings in kinds.items() if _rounds(settings)]
    return ", ".join(
        [
            f"TF32 in {' and '.join(rounded)}" if rounded else "no TF32",
            "cuDNN tries which algorithms are fastest" if torch.backends.cudnn.benchmark else "cudnn.benchmark off",
            "deterministic" if torch.are_deterministic_algorithms_enabled() else "not deterministic",
        ]
    )


def _rounds(settings: Any) -> bool:
    """Whether the factors of an operation are rounded to TF32."""
    if hasattr(settings, "fp32_precision"):
        return bool(settings.fp32_precision == "tf32")
    return bool(settings.allow_tf32)  # In torch 2.8.
