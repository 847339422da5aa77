"""The state of a run, and what is left of the file that it came from."""

import gc
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from ddpjob_trainer.checkpoint import state
from ddpjob_trainer.model.learner import Learner
from torch import nn
from torch.optim import SGD, Adagrad, AdamW, Optimizer
from torch.optim.lr_scheduler import StepLR
from torch.optim.swa_utils import AveragedModel

Make = Callable[[Iterable[Any]], Optimizer]

OPTIMIZERS: dict[str, Make] = {
    "SGD": lambda weights: SGD(weights, lr=0.1, momentum=0.9),
    "AdamW": AdamW,
    "Adagrad": Adagrad,
}


def a_learner(make: Make) -> Learner:
    """One that has made a step."""
    model = nn.Linear(64, 64)
    optimizer = make(model.parameters())
    learner = Learner(model, model, optimizer, StepLR(optimizer, 1), average=AveragedModel(model))
    model(torch.ones(64)).sum().backward()
    optimizer.step()
    return learner


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what is mapped")
@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_whoever_goes_on_keeps_nothing_of_the_file_which_may_be_removed_at_any_time(
    make: Make, tmp_path: Path
) -> None:
    """Otherwise its room on the disk would not be free, and over a network file system the rank would die."""
    file = tmp_path / "state.pt"
    saved, learner = a_learner(make), a_learner(make)
    with file.open("wb") as sink:
        state.encode(state.shared(saved) | {"position": (1, 1, 8)}, sink)
    decoded = state.decode(file)
    state.load(learner, decoded)
    assert str(file) in mapped(), "as long as it is read"
    del decoded
    gc.collect()
    assert str(file) not in mapped()
    kept, there = (one.optimizer.state_dict()["state"] for one in (learner, saved))
    torch.testing.assert_close(kept, there, rtol=0, atol=0)


def mapped() -> str:
    return Path("/proc/self/maps").read_text()
