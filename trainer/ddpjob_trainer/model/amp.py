"""Mixed precision: autocast, and the scaling of the loss, without which 16-bit gradients would become 0."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch
from ddpjob_rank.errors import ConfigError
from torch.amp import GradScaler
from torch.optim import Optimizer

from ddpjob_trainer.options import Precision

Autocast = Callable[[], AbstractContextManager[object]]
"""A function that makes the context in which the model and its loss are computed."""

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def autocast(precision: Precision, device: torch.device) -> Autocast:
    """The autocast context of a precision; for fp32, a context that does nothing.

    Raises:
        ConfigError: The GPU can only emulate bf16.
    """
    if precision == "fp32":
        return nullcontext
    if precision == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        name = torch.cuda.get_device_name(device)
        raise ConfigError(f"--precision bf16: {name} does not support bf16; use --precision fp16")
    return partial(torch.autocast, device.type, DTYPES[precision])


def scaler(precision: Precision, device: torch.device) -> GradScaler | None:
    """The scaler of the loss for fp16; None for other precisions: bf16 has the range of fp32 and needs no scaling."""
    return GradScaler(device.type) if precision == "fp16" else None


def updated(scaler: GradScaler, optimizer: Optimizer) -> bool:
    """Makes the optimizer take its step unless a gradient is infinite or NaN; returns whether it did.

    All ranks do the same, because all have the same gradients.
    """
    before = scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    return scaler.get_scale() >= before
