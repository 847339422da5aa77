"""Writes trained models into files that can be used without DDPJob."""

from collections.abc import Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from ddpjob.checkpoint.content import Content, Sink
from ddpjob_rank.console import record
from ddpjob_rank.errors import ConfigError
from torch import nn
from torch.export import Dim, ExportedProgram, ShapesCollection
from torch.utils._pytree import tree_leaves

from ddpjob_trainer.data.loader import Loader
from ddpjob_trainer.task import Task

from . import trained
from .formats import STATE_DICT, Format

SAMPLES = 2
"""Number of samples in the example that torch traces. With only one, torch would assume one sample in every batch."""


def export(address: str, output: Path, form: Format, flags: Sequence[str]) -> None:
    """Writes the model of the newest checkpoint in a directory or below a URL.

    Raises:
        ConfigError: There is no checkpoint, torch.export cannot express its model, or the file cannot be written.
    """
    model = trained.load(address)
    if form == STATE_DICT:
        _write(model.weights, output, torch.save)
    else:
        task = trained.task_of(model.config(flags))
        _write(_program(model.model(task), _example(task)), output, _archive)
    record("exported", step=model.step, checkpoint=model.checkpoint, format=form, file=output)


def _program(model: nn.Module, example: Any) -> ExportedProgram:
    """The model as a program for batches of any size.

    Raises:
        ConfigError: torch.export cannot express the model.
    """
    sizes = ShapesCollection()  # type: ignore[no-untyped-call]
    for tensor in tree_leaves(example):
        sizes[tensor] = {0: Dim.DYNAMIC}  # Unlike Dim.AUTO, this fails if the model's code works for one size only.
    try:
        return torch.export.export(model, (example,), dynamic_shapes=sizes)
    except Exception as error:  # The exceptions of torch.export have no common base class.
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(
            f"torch.export cannot express this model ({type(error).__name__}: {reason}): use --format {STATE_DICT}"
        ) from error


def _example(task: Task) -> Any:
    """A batch of the model's inputs."""
    if (own := task.train_loader(rank=0, world_size=1)) is not None:
        return next(iter(own))[0]
    data = Loader(task.train_data(), seed=0, device=torch.device("cpu"), inputs=task.inputs)
    return data.batch(torch.arange(SAMPLES))[0]


def _archive(program: ExportedProgram, sink: Sink) -> None:
    archive = BytesIO()  # torch.export.save would warn that the sink is not a file.
    torch.export.save(program, archive)
    sink.write(archive.getbuffer())


def _write(content: Any, output: Path, save: Any) -> None:
    """Writes the content into a temporary file and renames it, so that the output is never incomplete.

    Raises:
        ConfigError: The output cannot be written.
    """
    try:
        with TemporaryDirectory(prefix=".export-", dir=output.absolute().parent) as workspace:
            fresh = Path(workspace, output.name)
            Content().fill(fresh, partial(save, content))
            fresh.replace(output)
    except OSError as error:
        raise ConfigError(f"{output} cannot be written: {error.strerror}") from error
