"""Watches a script of somebody else in each of its ranks, and kills a rank at a random line.

A rank notes the sum of the weights after each step. In each of the first attempts one rank is killed: some steps
after the attempt's beginning, and some lines of the script, of the library or of the script's framework later.
"""

import inspect
import json
import os
import random
import signal
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from tests.support.killed_scripts import Fuse

VARIABLE = "WATCHED"
FIRST_LINES = "import os\nimport torch\nfrom tests.training.watching import watch\nwatch()\n"
BEGINS = "watched: begins attempt "
"""What rank 0 prints first, with the attempt's number."""
KILLS, WEIGHTS = "kills", "weights"
"""Where a rank notes that it is killed, and the beginning of the names of the files with its weights."""

MOST_STEPS = 10
MOST_LINES = 60, 1500, 3000
"""Lines after the step until the kill: of the script, of the library and of the framework."""


@dataclass(frozen=True)
class Watch:
    """What to do.

    seed   of what is drawn
    kills  in so many attempts
    pause  seconds that each step takes longer, so that saves keep up
    files  the beginnings of the paths of the script's, the library's and the framework's files
    """

    seed: str
    kills: int
    pause: float
    files: Sequence[str]

    def variable(self) -> dict[str, str]:
        """How a rank is told."""
        return {VARIABLE: json.dumps(asdict(self))}

    @classmethod
    def told(cls) -> Self:
        return cls(**json.loads(os.environ[VARIABLE]))


def watch() -> None:
    plan, attempt, rank = Watch.told(), int(os.environ["DDPJOB_ATTEMPT"]), int(os.environ["RANK"])
    weights, steps = Path(f"{WEIGHTS}-{attempt}-{rank}").open("a", buffering=1), 0  # noqa: SIM115  (until the process ends)
    if rank == 0:
        print(f"{BEGINS}{attempt}", flush=True)
    draw = random.Random(f"{plan.seed} {attempt}")
    victim, after, which = draw.randrange(int(os.environ["WORLD_SIZE"])), draw.randrange(MOST_STEPS), plan.files
    files = draw.choice(which)
    fuse = Fuse(files, draw.randint(1, MOST_LINES[which.index(files)]), lambda: _kill(attempt, rank), in_threads=True)
    lit = after if attempt <= plan.kills and rank == victim else -1

    def stepped(optimizer: Any, *_: object) -> None:
        nonlocal steps
        values = (p.detach().double().sum().item() for group in optimizer.param_groups for p in group["params"])
        print(repr(sum(values)), file=weights)
        steps += 1
        if steps == lit:
            fuse.__enter__()
        time.sleep(plan.pause)

    register_optimizer_step_post_hook(stepped)
    if lit == 0:
        fuse.__enter__()
    torch.manual_seed(7)


def _kill(attempt: int, rank: int) -> None:
    frame = inspect.currentframe()
    for _ in range(3):  # This function, the function that calls it, and the fuse.
        frame = frame and frame.f_back
    assert frame
    with Path(KILLS).open("a") as file:
        print(f"attempt {attempt}, rank {rank}: {frame.f_code.co_filename}:{frame.f_lineno}", file=file)
    os.kill(os.getpid(), signal.SIGKILL)
