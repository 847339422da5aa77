"""The state of a run as bytes: all that makes the steps after a resume those of a run that never stopped."""

import io
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ddpjob_trainer.errors import ConfigError

from . import random_state
from .content import Sink

State = dict[str, Any]
Where = tuple[int, int, int]
"""Step, epoch, samples of a position."""


@dataclass(frozen=True, slots=True)
class Learner:
    """What changes while training; the model without a wrapper, so that its names are the task's own."""

    model: nn.Module
    optimizer: Optimizer
    scheduler: LRScheduler | None


def collect(learner: Learner) -> State:
    """What is the same on all ranks; its tensors are those that training goes on with."""
    return {
        "model": learner.model.state_dict(),
        "optimizer": learner.optimizer.state_dict(),
        "scheduler": learner.scheduler.state_dict() if learner.scheduler else None,
    }


def beside(random_states: list[random_state.State], where: Where) -> State:
    """The rest of the state of all ranks, which is nobody else's already."""
    return {"random": random_states, "position": where}


def encode(state: State, file: Sink) -> None:
    """Writes a state as bytes."""
    torch.save(state, cast("IO[bytes]", file))


def decode(content: bytes) -> State:
    """A state as it was encoded; runs no code from it (weights_only)."""
    state: State = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    return state


def prove(file: Path) -> None:
    """Makes sure that an encoded state can be decoded: otherwise it would be missed only when it is needed.

    Its tensors' numbers are not read.

    Raises:
        ConfigError: It holds something else than tensors and plain values.
    """
    try:
        torch.load(file, map_location="cpu", mmap=True, weights_only=True)
    except pickle.UnpicklingError as error:
        raise ConfigError(
            "the state of the model, the optimizer or the scheduler cannot be saved: it holds something else than"
            f" tensors, numbers, strings, and lists and dicts of them ({_first_lines(error)})"
        ) from error


def load(learner: Learner, state: State) -> None:
    """Puts a decoded state into a learner.

    Raises:
        ConfigError: It is another model's.
    """
    try:
        learner.model.load_state_dict(state["model"])
        learner.optimizer.load_state_dict(state["optimizer"])
    except (RuntimeError, ValueError, KeyError) as error:
        raise ConfigError(
            f"the checkpoint is of another model or optimizer than the workload's ({_first_lines(error)}):"
            " name another --checkpoint-dir, or the workload that wrote it"
        ) from error
    if learner.scheduler and state["scheduler"]:
        learner.scheduler.load_state_dict(state["scheduler"])


def _first_lines(error: Exception) -> str:
    return " ".join(line.strip() for line in str(error).splitlines()[:2])
