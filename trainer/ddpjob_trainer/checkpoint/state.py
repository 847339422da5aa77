"""The state of a run: everything that a resumed run needs to make the same steps as an uninterrupted run."""

import warnings
from typing import Any

import torch
from ddpjob.checkpoint.encoding import PLAIN, StateDict, first_lines
from ddpjob.checkpoint.plain_values import NotPlainError, plain
from ddpjob.training.named import check_settings, difference
from ddpjob_rank.console import say
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.world import World
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import AveragedModel

from ddpjob_trainer.model.learner import Learner

RATES = ("lr", "initial_lr")
"""A schedule sets the values under these keys of an optimizer's parameter groups."""


def shared(learner: Learner) -> StateDict:
    """The state that is the same on all ranks. Its tensors are not copies: training changes them.

    Raises:
        ConfigError: It has a value that could not be read back without running code from the checkpoint.
    """
    state = {
        "model": learner.model.state_dict(),
        "optimizer": learner.optimizer.state_dict(),
        "scheduler": learner.scheduler.state_dict() if learner.scheduler else None,
        "scaler": learner.scaler.state_dict() if learner.scaler else None,
        "average": _average(learner.average) if learner.average else None,
    }
    try:
        plain(state)
    except NotPlainError as error:
        part = error.keys.pop()
        raise ConfigError(f"the {part}'s state_dict() cannot be saved: {error}. {PLAIN}") from error
    return state


def of_rank(learner: Learner) -> StateDict:
    """The state that differs from rank to rank, apart from random generators: the state of gradient compression."""
    return {"compression": learner.compression.capture() if learner.compression else None}


def evaluated(state: StateDict) -> dict[str, Tensor]:
    """The weights and buffers that evaluation uses, from a decoded state: the moving average's, if there is one."""
    average = state["shared"].get("average")
    weights: dict[str, Tensor] = average["model"] if average else state["shared"]["model"]
    return weights


def load(learner: Learner, state: StateDict, steps: int) -> list[str]:
    """Restores a learner from the shared state of a checkpoint, which was saved after `steps` steps.

    Returns, in words, the settings of the optimizer that the state has changed. The learner copies the tensors of the
    state, so that the memory of the state can be freed.

    Raises:
        ConfigError: The state belongs to another model or optimizer.
    """
    asked = _settings(learner)
    begun = [{name: group[name] for name in RATES if name in group} for group in learner.optimizer.param_groups]
    try:
        learner.model.load_state_dict(state["model"])
        check_settings(learner.optimizer, state["optimizer"])
        learner.optimizer.load_state_dict(state["optimizer"])
        _own(learner.optimizer)
    except (RuntimeError, ValueError, KeyError) as error:
        differs = difference(learner.model.state_dict(), state.get("model", {}))
        raise ConfigError(
            f"the checkpoint is from another {'model' if differs else 'optimizer'} than the workload's:"
            f" {differs or first_lines(error)}. Name another --checkpoint-dir, or the workload that wrote it"
        ) from error
    if learner.scheduler and state["scheduler"]:
        learner.scheduler.load_state_dict(state["scheduler"])
    elif learner.scheduler:
        _catch_up(learner.scheduler, begun, steps=steps)
    # Scaler and average may have been turned on or off since the save, so the state or the learner may lack them.
    if learner.scaler and (scaler := state.get("scaler")):
        learner.scaler.load_state_dict(scaler)
    if learner.average:
        average = state.get("average") or {"updates": 0, "model": state["model"]}
        learner.average.module.load_state_dict(average["model"])
        learner.average.n_averaged.fill_(average["updates"])
    saved = _settings(learner)
    return [f"{name} {value}, not {asked[name]}" for name, value in saved.items() if asked.get(name, value) != value]


def _own(optimizer: Optimizer) -> None:
    """Copies the optimizer's CPU tensors, because load_state_dict copies tensors only if their device changes."""
    for known in optimizer.state.values():
        for name, value in known.items():
            if isinstance(value, Tensor) and value.device.type == "cpu":
                known[name] = value.clone()


def load_compression(learner: Learner, ranks: list[StateDict], world: World, device: torch.device) -> None:
    """Restores PowerSGD on each rank, with the compression errors that the rank still has to correct."""
    saved = [errors for own in ranks if (errors := own.get("compression")) is not None]
    if learner.compression is None or len(saved) < len(ranks):
        return
    if not learner.compression.restore(saved, world, device) and world.leads:
        say(
            "PowerSGD starts over: --bucket-cap-mb, --powersgd-rank or --find-unused-parameters differ "
            "from the checkpoint's"
        )


def _catch_up(scheduler: LRScheduler, begun: list[dict[str, Any]], steps: int) -> None:
    """Advances a schedule, which the checkpoint does not contain, by `steps` from the initial rates in `begun`."""
    for group, rates in zip(scheduler.optimizer.param_groups, begun, strict=True):
        group.update(rates)
    with warnings.catch_warnings():
        # torch would warn that the optimizer has not made a step yet: its steps were made by an earlier process.
        warnings.simplefilter("ignore")
        for _ in range(steps):
            scheduler.step()


def _settings(learner: Learner) -> dict[str, float]:
    """The settings of the optimizer's first parameter group. With a schedule, `lr` is the initial learning rate.

    A checkpoint of a run without a schedule has no initial rate; a new schedule then begins with the rate of the
    options.
    """
    group = learner.optimizer.param_groups[0]
    known = {"lr": group.get("initial_lr" if learner.scheduler else "lr"), "weight_decay": group.get("weight_decay")}
    return {name: value for name, value in known.items() if isinstance(value, int | float)}


def _average(average: AveragedModel) -> StateDict:
    """The state of the moving average, whose tensors have the names of the model's own parameters."""
    return {"updates": int(average.n_averaged), "model": average.module.state_dict()}
