"""Wraps a model for DistributedDataParallel so that every start of a run computes alike."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ddpjob_trainer.task import Task
from ddpjob_trainer.world import World

from .random_state import undisturbed


def parallel(model: nn.Module, world: World, device: torch.device) -> nn.Module:
    """The model as the loop calls it: its gradients are averaged over all processes."""
    if world.alone:
        return model
    return DistributedDataParallel(
        model,
        device_ids=[device.index] if device.type == "cuda" else None,
        forward_sync_buffers=_buffers_enter_a_step(model),
    )


def _buffers_enter_a_step(model: nn.Module) -> bool:
    """Whether rank 0's buffers must be sent to all before each step.

    Batch normalisation's need not, which saves up to a fifth of a small network's step: a step that updates its
    statistics does not read them. Rank 0's are sent before each evaluation, and they are what is saved.
    """
    return any(
        next(module.buffers(recurse=False), None) is not None
        for module in model.modules()
        if not isinstance(module, nn.modules.batchnorm._BatchNorm)  # noqa: SLF001  (their common base)
    )


def warm_up(model: nn.Module, task: Task, batches: Iterator[tuple[Any, Any]]) -> None:
    """One forward and backward pass that leaves no trace, so that all real steps use the same gradient buckets.

    DDP arranges its buckets anew after the first backward pass, in the order in which the gradients came. From three
    processes on the order of a sum depends on the layout, so a first step differs in the last bits from the same step
    in the middle of a run; with this pass no real step is a first one.
    """
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    with undisturbed():
        inputs, target = next(batches)
        torch.autograd.backward(task.loss(model(inputs), target))
    model.zero_grad(set_to_none=True)
    with torch.no_grad():
        for buffer, before in buffers:
            buffer.copy_(before)
