"""Prepares a model for training: moves, compiles and wraps it, so that every start computes the same numbers."""

import io
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import redirect_stdout
from typing import Any

import torch
from ddpjob.random_state import rng_preserved
from ddpjob_rank.console import say
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.world import World
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from ddpjob_trainer.config import TrainConfig
from ddpjob_trainer.options import DATA_PARALLEL, CommunicationConfig
from ddpjob_trainer.task import Task

from . import modes
from .amp import Autocast
from .buffers import buffers_kept
from .compression import PowerSGD, compress

UNUSED = "Expected to have finished reduction in the prior iteration"
"""The beginning of DistributedDataParallel's message that parameters got no gradient."""


def prepare_model(model: nn.Module, config: TrainConfig, world: World, device: torch.device) -> nn.Module:
    """Moves a model to its device, and applies the options. The names of the parameters stay the same.

    Raises:
        ConfigError: An option is not available on this device.
    """
    if config.communication.sync_bn and not world.alone:
        if device.type == "cpu":
            raise ConfigError(
                "--sync-bn: torch has no synchronised batch normalisation for the CPU; leave it out, or train on GPUs"
            )
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
    model = model.to(device)
    if config.computing.channels_last:
        model = model.to(memory_format=torch.channels_last)
        model.register_forward_pre_hook(_channels_last)
    if config.computing.compile:
        _compile(model, device)
    return model


def wrap(
    model: nn.Module, config: TrainConfig, world: World, device: torch.device
) -> tuple[nn.Module, PowerSGD | None]:
    """The wrapped model that a training step calls, and its PowerSGD state, if it uses that communication hook."""
    if not world.alone:
        ddp = parallel(model, config.communication, device)
        return ddp, compress(ddp, config.communication)
    return modes.data_parallel(model, config.mode, device) if config.mode.mode == DATA_PARALLEL else model, None


def parallel(model: nn.Module, settings: CommunicationConfig, device: torch.device) -> DistributedDataParallel:
    """Wraps a model in DistributedDataParallel, which averages its gradients over all processes."""
    ddp = DistributedDataParallel(
        model,
        device_ids=[device.index] if device.type == "cuda" else None,
        bucket_cap_mb=settings.bucket_cap_mb,
        gradient_as_bucket_view=settings.gradient_as_bucket_view,
        static_graph=settings.static_graph,
        find_unused_parameters=settings.find_unused_parameters,
    )
    # The constructor's argument will not do: with `broadcast_buffers=False`, rank 0 would not send its buffers at
    # construction either, and torch 2.8 and 2.11 have no `forward_sync_buffers`.
    ddp.broadcast_buffers = _buffers_enter_a_step(model)
    return ddp


def averaged(model: nn.Module, decay: float | None) -> AveragedModel | None:
    """An exponential moving average of a model's parameters and buffers, to be updated after each step."""
    if decay is None:
        return None
    keep = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
    return AveragedModel(model, multi_avg_fn=keep, use_buffers=True)


def unused_parameters(error: RuntimeError, model: nn.Module) -> ConfigError | None:
    """The error for the user if DDP reports that parameters got no gradient; None if `error` is another error."""
    indices = re.search(r"did not receive grad for rank \d+: ([\d ]+)", str(error))
    if not (UNUSED in str(error) and indices):
        return None
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    named = ", ".join(names[int(index)] for index in indices[1].split())
    return ConfigError(
        f"the loss does not depend on these parameters of the model: {named}. Use them in each step, or freeze them"
        " (requires_grad_(False)), or train with --find-unused-parameters"
    )


def _channels_last(_: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """A forward pre-hook that converts a model's input images to the channels-last layout of its weights."""
    return tuple(
        argument.contiguous(memory_format=torch.channels_last)
        if isinstance(argument, Tensor) and argument.dim() == len("NCHW")
        else argument
        for argument in arguments
    )


def _compile(model: nn.Module, device: torch.device) -> None:
    """Has the model compiled, in place, at its first call. Its class and its parameters' names stay the same."""
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        say(f"--compile: there is no compiler {compiler} (set CXX to use another): the model is not compiled")
    else:
        say(f"--compile: the model is compiled for {device} when it is first called, which takes a while")
        model.compile()


def _buffers_enter_a_step(model: nn.Module) -> bool:
    """Whether rank 0's buffers must be sent to all ranks before each step.

    Buffers of batch normalisation need not be sent, because a step that updates these statistics does not read them.
    Not sending them saves up to a fifth of a small network's step. Rank 0's statistics are sent before each
    evaluation, and are saved.
    """
    return any(
        next(module.buffers(recurse=False), None) is not None
        for module in model.modules()
        if not isinstance(module, nn.modules.batchnorm._BatchNorm)  # noqa: SLF001  (their common base)
    )


def warm_up(model: nn.Module, task: Task, batches: Iterator[tuple[Any, Any]], autocast: Autocast) -> None:
    """Makes a forward and backward pass that changes nothing, so that all steps use the same gradient buckets.

    DDP rearranges its buckets after the first backward pass, in the order in which the gradients arrived. With three
    or more processes, the order of a sum depends on the layout of the buckets. Without this pass, the first step
    after a start would therefore differ in the last bits from the same step in the middle of a run. A static graph
    takes two passes, because DDP learns the graph in the first pass. The model's output to stdout is hidden, because
    it would seem to belong to a step.
    """
    static = isinstance(model, DistributedDataParallel) and model.static_graph
    with rng_preserved(), buffers_kept(model.modules()), redirect_stdout(io.StringIO()):
        inputs, target = next(batches)
        for _ in range(2 if static else 1):
            with autocast():
                loss = task.loss(model(inputs), target)
            torch.autograd.backward(loss)
    model.zero_grad(set_to_none=True)
