"""Prints the predictions of a trained model for samples."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from ddpjob_rank.console import counted, record, say, with_article
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.world import World
from torch import Tensor

from ddpjob_trainer.data.loader import Loader
from ddpjob_trainer.model import amp
from ddpjob_trainer.model.evaluation import evaluate
from ddpjob_trainer.task import Task

from . import trained


def predict(address: str, flags: Sequence[str]) -> None:
    """Prints a line for each held-out sample, and then the means of the metrics.

    If the task has no held-out samples, those of its training set are used.

    Raises:
        ConfigError: There is no checkpoint, its model is not the task's, there is no data, or `predictions` of the
            task does not return a row for each sample.
    """
    model = trained.load(address)
    config = model.config(flags)
    # A broken image must be an error here. Otherwise a prediction for its replacement would be printed as its own.
    config = replace(config, images=replace(config.images, skip_broken=False))
    task = trained.task_of(config)
    data = task.test_data()
    if data is None and task.train_loader(rank=0, world_size=1) is not None:
        raise ConfigError(f"--workload {config.workload} has no held-out samples: it needs test_data")
    if data is None:
        say(f"--workload {config.workload} has no held-out samples: these are from its training set")
        data = task.train_data()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    result = evaluate(
        model.model(task).to(device),
        task,
        Loader(data, seed=config.seed, device=device, workers=config.loading.workers or 0, inputs=task.inputs),
        autocast=amp.autocast(config.computing.precision, device),
        world=World(),
        batch_size=config.batch_size or task.batch_size,
        on_batch=lambda *batch: _tell(task, *batch),
    )
    assert result, "a world of one is led by its only process"
    record("evaluated", step=model.step, **result.shown, loss=f"{result.loss:.4f}", samples=result.samples)


def _tell(task: Task, indices: Tensor, output: Any, target: Any) -> None:
    rows = task.predictions(output)
    if not isinstance(rows, Tensor) or rows.shape[:1] != indices.shape:
        given = f"a tensor of {tuple(rows.shape)}" if isinstance(rows, Tensor) else with_article(type(rows).__name__)
        raise ConfigError(
            f"{type(task).__name__}.predictions gives {given} for {counted(len(indices), 'sample')}: it must be a"
            " tensor with a row for each of them"
        )
    targets = target.tolist() if isinstance(target, Tensor) else [None] * len(rows)
    for index, value, expected in zip(indices.tolist(), rows.tolist(), targets, strict=True):
        record("prediction", sample=index, output=_compact(value), target=_compact(expected))


def _compact(value: Any) -> str | None:
    """A value as JSON without spaces, because spaces separate the fields of a line."""
    return None if value is None else json.dumps(value, separators=(",", ":"))
