"""The state of a run as bytes: everything that makes the steps after a resume those of a run that never stopped."""

import pickle
import warnings
from pathlib import Path
from typing import IO, Any, cast

import torch
from ddpjob_rank.console import say
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.world import World
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import AveragedModel

from ddpjob_trainer import random_state
from ddpjob_trainer.model.learner import Learner

from .content import Sink

StateDict = dict[str, Any]
RATES = ("lr", "initial_lr")
"""What a schedule has of each group of an optimizer."""

Where = tuple[int, int, int]
"""Step, epoch, samples of a position."""


def shared(learner: Learner) -> StateDict:
    """What is the same on all ranks; its tensors are those that training goes on with."""
    return {
        "model": learner.model.state_dict(),
        "optimizer": learner.optimizer.state_dict(),
        "scheduler": learner.scheduler.state_dict() if learner.scheduler else None,
        "scaler": learner.scaler.state_dict() if learner.scaler else None,
        "average": _average(learner.average) if learner.average else None,
    }


def of_rank(learner: Learner) -> StateDict:
    """What is each rank's own."""
    return {
        "random": random_state.capture(),
        "compression": learner.compression.capture() if learner.compression else None,
    }


def of_ranks(each: list[StateDict], where: Where) -> StateDict:
    """The rest of the state: what is each rank's own, by rank, already copies; and the position."""
    return {key: [one[key] for one in each] for key in ("random", "compression")} | {"position": where}


def evaluated(state: StateDict) -> dict[str, Tensor]:
    """The weights and buffers in a decoded state that were evaluated: the moving average's, if there is one."""
    average = state.get("average")
    weights: dict[str, Tensor] = average["model"] if average else state["model"]
    return weights


def encode(state: StateDict, file: Sink) -> None:
    """Writes a state as bytes."""
    torch.save(state, cast("IO[bytes]", file))


def decode(file: Path) -> StateDict:
    """A state as it was encoded; runs no code from it (weights_only). Its tensors are read from the file on use."""
    state: StateDict = torch.load(file, map_location="cpu", mmap=True, weights_only=True)
    return state


def prove(file: Path) -> None:
    """Makes sure that an encoded state can be decoded: otherwise that would be noticed only when it is needed.

    Its tensors' numbers are not read.

    Raises:
        ConfigError: It contains something other than tensors and plain values.
    """
    try:
        decode(file)
    except pickle.UnpicklingError as error:
        raise ConfigError(
            "the state of the model, the optimizer or the scheduler cannot be saved: it holds something "
            "other than tensors, numbers, strings, and lists and dicts of them ({first_lines(error)})"
        ) from error


def load(learner: Learner, state: StateDict) -> list[str]:
    """Puts a decoded state into a learner; returns the settings of its optimizer that differed from the state's.

    Nothing of the state is referred to afterwards, so that its memory can go.

    Raises:
        ConfigError: It is another model's.
    """
    asked = _settings(learner)
    begun = [{name: group[name] for name in RATES if name in group} for group in learner.optimizer.param_groups]
    try:
        learner.model.load_state_dict(state["model"])
        learner.optimizer.load_state_dict(state["optimizer"])
        _own(learner.optimizer)
    except (RuntimeError, ValueError, KeyError) as error:
        raise ConfigError(
            f"the checkpoint is from another model or optimizer than the workload's ({first_lines(error)}):"
            " name another --checkpoint-dir, or the workload that wrote it"
        ) from error
    if learner.scheduler and state["scheduler"]:
        learner.scheduler.load_state_dict(state["scheduler"])
    elif learner.scheduler:
        _catch_up(learner.scheduler, begun, steps=state["position"][0])
    # What follows may have been turned off or on since then, and was not always saved.
    if learner.scaler and (scaler := state.get("scaler")):
        learner.scaler.load_state_dict(scaler)
    if learner.average:
        average = state.get("average") or {"updates": 0, "model": state["model"]}
        learner.average.module.load_state_dict(average["model"])
        learner.average.n_averaged.fill_(average["updates"])
    saved = _settings(learner)
    return [f"{name} {value}, not {asked[name]}" for name, value in saved.items() if asked.get(name, value) != value]


def _own(optimizer: Optimizer) -> None:
    """Gives an optimizer tensors of its own: what is on the right device already it takes as it is."""
    for known in optimizer.state.values():
        for name, value in known.items():
            if isinstance(value, Tensor) and value.device.type == "cpu":
                known[name] = value.clone()


def load_compression(learner: Learner, state: StateDict, world: World, device: torch.device) -> None:
    """Gives each rank back what it had left out of the gradients that it sent."""
    saved = state.get("compression")
    if learner.compression is None or not saved or saved[0] is None:
        return
    if not learner.compression.restore(saved, world, device) and world.leads:
        say(
            "PowerSGD starts over: --bucket-cap-mb, --powersgd-rank or --find-unused-parameters differ "
            "from the checkpoint's"
        )


def _catch_up(scheduler: LRScheduler, begun: list[dict[str, Any]], steps: int) -> None:
    """Moves a schedule that a checkpoint does not have to where it would be, from the given initial rates."""
    for group, rates in zip(scheduler.optimizer.param_groups, begun, strict=True):
        group.update(rates)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The optimizer has made these steps, in another process.
        for _ in range(steps):
            scheduler.step()


def _settings(learner: Learner) -> dict[str, float]:
    """The settings of an optimizer's first group; the rate is that with which its schedule began.

    A checkpoint of a run without a schedule has no such rate: a new schedule begins as asked.
    """
    group = learner.optimizer.param_groups[0]
    known = {"lr": group.get("initial_lr" if learner.scheduler else "lr"), "weight_decay": group.get("weight_decay")}
    return {name: value for name, value in known.items() if isinstance(value, int | float)}


def _average(average: AveragedModel) -> StateDict:
    """By the model's own names."""
    return {"updates": int(average.n_averaged), "model": average.module.state_dict()}


def first_lines(error: Exception) -> str:
    """What an error says, in one line."""
    return " ".join(line.strip() for line in str(error).splitlines()[:2])
