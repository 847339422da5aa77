"""Checks that the weights of a model are finite numbers."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from ddpjob_rank.console import listed
from ddpjob_rank.errors import DivergedError
from torch import Tensor, nn

from .shard_files import local

NAMED_PARAMETERS = 3
"""The largest number of parameters that a message names."""

NUMPYS = frozenset({torch.float16, torch.float32, torch.float64})
"""Floating-point types that NumPy has too."""


def finite_parameters(model: nn.Module) -> frozenset[str]:
    """The names of the trainable parameters that are finite now, as far as this rank has them.

    Buffers and frozen parameters are left out, because they may be infinite on purpose, as masks are. If all
    parameters are frozen, as those of a moving average are, all count as trainable.
    """
    parameters = dict(model.named_parameters())
    trained = {name: value for name, value in parameters.items() if value.requires_grad} or parameters
    return frozenset(name for name, value in trained.items() if is_finite(local(value).cpu()))


def check_parameters(weights: Mapping[str, Any], names: Iterable[str], model: str = "the model") -> None:
    """Checks that the weights with these names, if present, are finite. `model` is for the message.

    Raises:
        DivergedError: A weight is not finite.
    """
    # Sharded state contains the tensors' names in place of the tensors. Each rank checked its tensors before writing
    # them.
    there = [name for name in sorted(names) if isinstance(weights.get(name), Tensor)]
    if wrong := [name for name in there if not is_finite(weights[name])]:
        raise DivergedError(
            f"training has diverged: these parameters of {model} are not finite numbers: "
            f"{listed(wrong, NAMED_PARAMETERS)}"
        )


def is_finite(numbers: Tensor) -> bool:
    """Whether all numbers of a tensor in CPU memory are finite. Uses one thread, because another may be training."""
    known = numbers.numel() and (numbers.is_floating_point() or numbers.is_complex())
    if not known:
        return True
    plain = (torch.view_as_real(numbers) if numbers.is_complex() else numbers).detach()
    array = (plain if plain.dtype in NUMPYS else plain.float()).numpy()
    with np.errstate(invalid="ignore"):
        return bool(np.isfinite(array.min()) and np.isfinite(array.max()))
