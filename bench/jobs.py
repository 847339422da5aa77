"""Jobs of `ddpjob run` whose ranks record their steps."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bench.notes import Notes
from bench.noting import NOTES, STEP_SECONDS
from tests.local.here import BIN, Here
from tests.local.test_training import tensors

ROOT = Path(__file__).parents[1]
EPOCHS = 1_000_000
"""More epochs than any run makes, so that all runs have the same learning rate schedule."""
PLENTY = {"maxRestarts": 1000, "inPlaceRestarts": 1000, "backoffSeconds": 0}


@contextmanager
def a_place(directory: Path) -> Iterator[Here]:
    """A directory for `ddpjob run`. All processes that were started in it are killed at the end."""
    directory.mkdir(parents=True)
    here = Here(directory)
    try:
        yield here
    finally:
        for run in here.started:
            run.kill()
            run.wait()
        for file in directory.glob("ddpjob-runs/*/job.json"):
            for left in here.processes(file.parent.name):
                left.kill()


@dataclass(frozen=True)
class Job:
    """A job that trains until it is stopped."""

    here: Here
    name: str
    run: subprocess.Popen[str]
    notes: Notes

    def over(self) -> bool:
        """Whether the job has ended, although nobody stopped it."""
        return self.run.poll() is not None

    def status(self) -> dict[str, Any]:
        """The job's status, as `ddpjob status` reads it."""
        return self.here.status(self.name)

    def checkpoint(self, step: int) -> Path:
        """The path of a step's checkpoint, which need not exist."""
        return self.here.run(self.name) / "volumes" / "checkpoints" / f"step-{step:08}"

    def saved(self) -> int:
        """The step of the newest checkpoint; 0 if there is no checkpoint yet."""
        paths = self.checkpoint(0).parent.glob("step-*/manifest.json")
        return max((int(path.parent.name.removeprefix("step-")) for path in paths), default=0)

    def weights(self, step: int) -> dict[str, torch.Tensor]:
        """All tensors of a checkpoint, by name."""
        return dict(tensors(torch.load(self.checkpoint(step) / "state.pt", weights_only=True)))


def start(here: Here, name: str, nodes: int, *, step_seconds: float, noting: bool = True, **spec: Any) -> Job:
    """Starts a job with one rank per node."""
    notes = here.directory / f"{name}.notes"
    env = {STEP_SECONDS: str(step_seconds), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    if noting:
        env[NOTES] = str(notes)
    arguments = ["--workload", "bench.noting:Noted", "--epochs", str(EPOCHS), "--log-every", "100000"]
    container = {"args": arguments, "env": [{"name": key, "value": value} for key, value in env.items()]}
    file = here.job(
        name, str(BIN / "ddpjob-train"), nodes=nodes, backend="Gloo", restart=PLENTY, container=container, **spec
    )
    return Job(here, name, quiet(here, file), Notes(notes, nodes))


def quiet(here: Here, file: Path) -> subprocess.Popen[str]:
    """Starts `ddpjob run` with its output in a file, because nobody here would read from a pipe."""
    with file.with_suffix(".out").open("w") as output:
        run = subprocess.Popen(
            [BIN / "ddpjob", "run", file],
            cwd=here.directory,
            env=os.environ | {},
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
        )
    here.started.append(run)
    return run
