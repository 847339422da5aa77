"""Measures how much memory a resume takes on a node, in addition to the memory that training then keeps.

Four ranks of one node build a model, save it with Adam's state, and end. Then new ranks resume from the checkpoint.
"""

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import ddpjob
import psutil
import torch
import torch.distributed as dist
from ddpjob.training.saver import Where
from ddpjob_operator.local.machine import free_port
from ddpjob_rank.reporting.group_agreement import agreement_of_group
from ddpjob_rank.world import World
from ddpjob_trainer.checkpoint import saving, state
from ddpjob_trainer.config import TrainConfig
from ddpjob_trainer.model.learner import Learner
from ddpjob_trainer.options import CheckpointConfig
from ddpjob_trainer.recording.position import Position
from ddpjob_trainer.recording.recorder import Recorder
from torch import nn
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Adam, Optimizer

from bench.checkpoint import BATCH, STATE_BYTES_PER_WEIGHT, WIDTH
from bench.table import Row
from tests.training.ranks import world

RANKS = 4
KEPT = 4 / 3
"""The memory that each rank keeps, as a multiple of the checkpoint: weights and Adam's two moments, plus
gradients."""
MOST_BEYOND = 1.0
"""The limit for the memory that all ranks of a node use at the peak in addition to what they keep, in checkpoint
sizes."""
SAMPLE_SECONDS = 0.02
DEADLINE_SECONDS = 300


def measure(directory: Path, *, megabytes: int) -> list[Row]:
    """Saves and resumes with each program, each in its own processes. Returns the rows for the resumes."""
    return [_row(directory / program, program, megabytes) for program in PROGRAMS]


def _row(directory: Path, program: str, megabytes: int) -> Row:
    _all_ranks(directory, program, megabytes, resumes=False)
    size = max(file.stat().st_size for file in directory.rglob("state.pt"))
    most, kept = _all_ranks(directory, program, megabytes, resumes=True) / size, RANKS * KEPT
    what = (
        f"{RANKS} ranks of a node resume from {size / 2**20:.0f} MiB with `{program}`: the most memory beyond what"
        " they keep"
    )
    found = f"{most - kept:.2f} times the checkpoint ({most:.2f} at the peak, {kept:.2f} kept)"
    return Row(what, found, f"≤ {MOST_BEYOND:g} times", most - kept <= MOST_BEYOND)


def _all_ranks(directory: Path, program: str, megabytes: int, *, resumes: bool) -> int:
    """Runs all ranks.

    Returns their joint peak of memory in bytes, minus the memory that they had before they built a model.
    """
    together = get_context("spawn").Barrier(RANKS + 1)
    ranks = spawn(_rank, (free_port(), (directory, program, megabytes, resumes), together), RANKS, join=False)
    together.wait(DEADLINE_SECONDS)
    before = peak = _bytes(ranks.pids())
    together.wait(DEADLINE_SECONDS)
    while together.n_waiting < RANKS:
        peak = max(peak, _bytes(ranks.pids()))
        time.sleep(SAMPLE_SECONDS)
    together.wait(DEADLINE_SECONDS)
    while not ranks.join():
        pass
    return peak - before


def _bytes(pids: Sequence[int | None]) -> int:
    """The memory of all processes together, in bytes. Shared pages are counted only one time."""
    taken = 0
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            taken += psutil.Process(pid).memory_full_info().pss
    return taken


def _rank(number: int, port: int, job: tuple[Path, str, int, bool], together: Any) -> None:
    directory, program, megabytes, resumes = job
    node = {"NNODES": "1", "NODE_RANK": "0", "NPROC_PER_NODE": str(RANKS), "LOCAL_WORLD_SIZE": str(RANKS)}
    os.environ.update(world(number, RANKS, port) | node | {"LOCAL_RANK": str(number)})
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    small = DistributedDataParallel(nn.Linear(1, 1))  # Imports modules that must not count.
    small(torch.ones(1, 1)).sum().backward()
    Adam(small.parameters()).step()
    together.wait(DEADLINE_SECONDS)
    together.wait(DEADLINE_SECONDS)
    layers = max(1, megabytes * 2**20 // (STATE_BYTES_PER_WEIGHT * WIDTH * WIDTH))
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(layers)))
    wrapped = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = Adam(model.parameters())

    def step() -> None:
        wrapped(torch.randn(BATCH, WIDTH)).square().mean().backward()
        optimizer.step()

    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        resumed = PROGRAMS[program](directory, wrapped, optimizer, step)
    assert resumed is resumes, f"there is {'no' if resumes else 'a'} checkpoint in {directory}"
    together.wait(DEADLINE_SECONDS)
    dist.barrier()
    dist.destroy_process_group()


def _with_trainer(
    directory: Path, model: DistributedDataParallel, optimizer: Optimizer, step: Callable[[], None]
) -> bool:
    """Resumes and makes a step or, if there is no checkpoint, makes a step and saves. Returns whether it resumed."""
    rank, learner = dist.get_rank(), Learner(model.module, model, optimizer, None)
    saver = saving.open_saver(
        TrainConfig(checkpoint=CheckpointConfig(directory=directory)),
        World(rank, rank, RANKS, RANKS),
        agreement_of_group("bench", "step()"),
        global_batch=BATCH * RANKS,
        position=Position(),
        recorder=Recorder(None, 0),
    )
    saved = saver.find()
    if saved:
        saving.restore(learner, saved, saver, 0, torch.device("cpu"))
        del saved
        step()
        return True
    step()
    saver.finish_last(Where(1, 1), lambda: state.shared(learner), lambda: state.of_rank(learner))
    return False


def _with_library(
    directory: Path, model: DistributedDataParallel, optimizer: Optimizer, step: Callable[[], None]
) -> bool:
    """The same."""
    training = ddpjob.Training(model=model, optimizer=optimizer, loader=range(1), directory=directory)
    if training.resumed:
        step()
        return True
    for _ in training.epochs(1):
        for _ in training.batches():
            step()
            training.step()
    return False


PROGRAMS = {"ddpjob-train": _with_trainer, "ddpjob.Training": _with_library}
