"""Undoes a step whose gradients were not finite, on the device, so that the CPU need not wait for the gradients.

Everything that a step changes is copied before the step, which takes as much memory again as weights and optimizer
state.
"""

from collections.abc import Iterator
from typing import Any

import torch
from ddpjob_rank.errors import ConfigError
from torch import Tensor, nn
from torch.optim import Optimizer

SCHEDULED = frozenset({"params", "lr", "initial_lr", "momentum", "betas"})
"""A schedule may change the values under these keys of a parameter group. Other numbers must not change."""


class Masked:
    """A copy of model, optimizer and average before a step. Without an optimizer, a copy of the model's buffers."""

    def __init__(self, model: nn.Module, optimizer: Optimizer | None, average: nn.Module | None) -> None:
        self._optimizer = optimizer
        self._buffers = [
            (module, name, buffer, buffer.detach().clone())
            for module in model.modules()
            for name, buffer in module._buffers.items()  # noqa: SLF001
            if buffer is not None
        ]
        weights = [] if optimizer is None else [*model.parameters(), *_of(average)]
        self._weights = [(weight, weight.detach().clone()) for weight in weights]
        self._state = {parameter: _copied(known) for parameter, known in optimizer.state.items()} if optimizer else {}
        self._settings = _settings(optimizer) if optimizer else []

    def put_back_unless(self, finite: Tensor) -> None:
        """Undoes, on the device, the step that was made after the copy, unless `finite` is true.

        Raises:
            ConfigError: The optimizer keeps something that cannot be restored on the device.
        """
        with torch.no_grad():
            for weight, before in self._weights:
                _put_back(weight, before, finite)
            for module, name, buffer, before in self._buffers:
                _put_back_buffer(module, name, buffer, before, finite)
            if self._optimizer:
                self._put_back_state(self._optimizer, finite)

    def _put_back_state(self, optimizer: Optimizer, finite: Tensor) -> None:
        if _settings(optimizer) != self._settings:
            raise _unmasked(optimizer, "a number in its parameter groups that changes from step to step")
        created = []
        for parameter, known in optimizer.state.items():
            before = self._state.get(parameter, {})
            for name, value in known.items():
                _check(optimizer, name, value, before.get(name), finite.device)
                if not isinstance(value, Tensor):
                    continue
                if name in before:
                    _put_back(value, before[name], finite)
                else:
                    created.append((parameter, name))
        # `not finite` waits for the device, but is evaluated only if state was created, usually in the first step.
        if created and not finite:
            for parameter, name in created:
                del optimizer.state[parameter][name]


def _of(average: nn.Module | None) -> Iterator[Tensor]:
    if average is not None:
        yield from average.parameters()
        yield from average.buffers()


def _copied(known: dict[str, Any]) -> dict[str, Any]:
    return {name: value.detach().clone() if isinstance(value, Tensor) else value for name, value in known.items()}


def _settings(optimizer: Optimizer) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in group.items() if name not in SCHEDULED and not isinstance(value, Tensor)}
        for group in optimizer.param_groups
    ]


def _put_back(tensor: Tensor, before: Tensor, finite: Tensor) -> None:
    tensor.copy_(torch.where(finite, tensor, before))


def _put_back_buffer(module: nn.Module, name: str, buffer: Tensor, before: Tensor, finite: Tensor) -> None:
    """Restores a buffer, whether the module has written into it or has replaced its tensor."""
    now = module._buffers[name]  # noqa: SLF001
    if now is buffer:
        _put_back(buffer, before, finite)
    elif now is not None and now.shape == before.shape:
        setattr(module, name, torch.where(finite, now, before))


def _check(optimizer: Optimizer, name: str, value: object, before: object, device: torch.device) -> None:
    """Checks a value of the optimizer's state after a step: it must be a tensor on the device, or unchanged.

    Raises:
        ConfigError: The value cannot be restored on the device.
    """
    if isinstance(value, Tensor):
        if value.device != device:
            raise _unmasked(
                optimizer, f"its {name} on the {value.device.type} (capturable=True or fused=True may help)"
            )
    elif not (value is None or isinstance(value, bool | str) or value == before):
        raise _unmasked(optimizer, f"its {name} of type {type(value).__name__}")


def _unmasked(optimizer: Optimizer, what: str) -> ConfigError:
    return ConfigError(
        f"--on-divergence skip: a step of the optimizer {type(optimizer).__name__} cannot be left out, "
        f"because it keeps {what}, and only tensors on the model's device can be restored; use another "
        "optimizer, or"
        " --on-divergence stop"
    )
