"""Measures the cost of checking in each step that the loss is finite: `--on-divergence stop` beside `ignore`.

Both trainings run in one process, and take turns of some steps each. CPU time is compared, because it hardly depends
on other load.
"""

import os
import time
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path

import torch
from ddpjob_rank.stopping import StopRequest
from ddpjob_rank.world import World
from ddpjob_trainer.config import read_config
from ddpjob_trainer.data.feeding import feeding
from ddpjob_trainer.recording.position import Position
from ddpjob_trainer.task import load_task
from ddpjob_trainer.train import Run, TrainingLoop, equip, lay_out, resume

from bench import pairs
from bench.table import Row

STEPS = {"ConvNet": 40, "ResNet18": 4}
"""The steps of a turn, by model. An epoch has more steps."""
MOST = 1.05


def rows(count: int) -> list[Row]:
    """A row for each model, from `count` pairs of turns."""
    found = []
    for model, steps in STEPS.items():
        looks, ignores = (a_loop(model, choice) for choice in ("stop", "ignore"))
        for loop in (looks, ignores):
            turn(loop, steps)  # Not counted, because the first turn includes one-time costs.
        seconds = pairs.in_turn(
            count,
            lambda looks=looks, steps=steps: turn(looks, steps),
            lambda ignores=ignores, steps=steps: turn(ignores, steps),
        )
        milliseconds = [(ours * 1000, theirs * 1000) for ours, theirs in seconds]
        found.append(pairs.ratio(f"{model}: CPU time of a step", milliseconds, "ms", most=MOST))
    return found


def a_loop(model: str, choice: str) -> TrainingLoop:
    """A training loop of one process that prints no steps, with the given value of --on-divergence."""
    flags = ["--workload", f"bench.models:{model}Bench", "--on-divergence", choice, "--log-every", "1000000"]
    config, world = read_config(flags, {}), World()
    torch.set_num_threads(1)
    task = load_task(config)
    run = Run(
        config=config, world=world, position=Position(), stop=StopRequest(), task=task, device=torch.device("cpu")
    )
    return equip(resume(lay_out(run, feeding(config, task, world))))


def turn(loop: TrainingLoop, steps: int) -> float:
    """Makes some steps with the trainer's own loop. Returns the CPU seconds of one step."""
    if (loop.feed.left(loop.position.samples) or 0) < steps:
        loop.position.next_epoch()
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        began = time.process_time()
        replace(loop, total_steps=loop.position.step + steps).epoch()
        return (time.process_time() - began) / steps
