"""A run that goes on from the middle of another one, beside that other one."""

import shutil
from pathlib import Path
from typing import Any

import torch

from tests.training.ranks import Run
from tests.training.runs import Runs
from tests.training.states import tensors

EVERY, KEEP = 10, 100


def different(ours: Any, theirs: Any) -> list[str]:
    """Paths of the tensors in which two states differ."""
    mine, others = tensors(ours), tensors(theirs)
    assert mine.keys() == others.keys()
    return [name for name in mine if not torch.equal(mine[name], others[name])]


def train_twice(
    runs: Runs, directory: Path, size: int, *job: object, step: int, size_after: int | None = None
) -> Run:
    """Trains to the end in `calm`; then in `resumed` from that run's checkpoint of a step. Gives the second run."""
    often = ["--checkpoint-every-steps", EVERY, "--checkpoint-keep", KEEP]
    runs.train(size, *job, *often, "--checkpoint-dir", directory / "calm")
    name = f"step-{step:08}"
    shutil.copytree(directory / "calm" / name, directory / "resumed" / name)
    resumed = runs.train(size_after or size, *job, *often, "--checkpoint-dir", directory / "resumed")
    assert resumed.value("resumed", "step") == str(step)
    return resumed
