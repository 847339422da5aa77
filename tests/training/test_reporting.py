"""What real ranks tell: of scripts that call nothing, of scripts that report, and of our own loop."""

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from ddpjob_examples.mlp import MlpTask
from ddpjob_rank.running.program import Program
from ddpjob_supervisor.node.cold import Cold
from ddpjob_supervisor.node.ranks import Launch
from ddpjob_supervisor.node.warm import Warm
from ddpjob_supervisor.node.zygote_process import Preload
from ddpjob_supervisor.watch.beat import Beat
from ddpjob_supervisor.watch.heartbeats import Heartbeats
from torch import Tensor

from tests.support.ports import hold_port
from tests.support.waiting import patience, wait_for
from tests.training.runs import Runs

DEADLINE_SECONDS = 120


@pytest.fixture
def heartbeats(tmp_path: Path) -> Iterator[Heartbeats]:
    made = Heartbeats(tmp_path, 2)
    yield made
    made.close()


def told(directory: Path, programs: Sequence[str], method: str) -> list[Beat | None]:
    """What the ranks of a supervisor had told at their ends, each with a program of its own."""
    heartbeats = Heartbeats(directory, len(programs))

    async def run() -> list[int]:
        async with Warm(Preload(["torch"])) if method == "warm" else Cold() as starter:
            ranks = [await starter.start(launch(local_rank)) for local_rank in range(len(programs))]
            return [await asyncio.wait_for(rank.ended, patience(DEADLINE_SECONDS)) for rank in ranks]

    def launch(local_rank: int) -> Launch:
        script = directory / f"train_{local_rank}.py"
        script.write_text(programs[local_rank])
        told = {"DDPJOB_HEARTBEAT": str(heartbeats.path(local_rank)), "DDPJOB_ATTEMPT": "2", "RANK": str(local_rank)}
        return Launch(Program(module=False, name=str(script)), {**os.environ, **told})

    try:
        assert asyncio.run(run()) == [0] * len(programs)
        return heartbeats.read()
    finally:
        heartbeats.close()


OPTIMIZERS = """
import sys
import torch
weights = torch.nn.Parameter(torch.ones(3))
generator, critic = torch.optim.SGD([weights], lr=0.1), torch.optim.Adam([weights])

def train(steps):
    for _ in range(steps):
        for optimizer in (generator, critic, critic):
            optimizer.zero_grad()
            weights.square().sum().backward()
            optimizer.step()
"""

REPORTS = """
import warnings
warnings.simplefilter("error")  # PyTorch warns where a loss that has a graph becomes a float.
from ddpjob import activity, report
train(3)
report(step=1000, total=2000, loss=weights.square().sum(), samples=64)
train(3)
with activity("evaluation"):
    pass
"""

REPLACES = """
train(2)
del generator
generator = torch.optim.SGD([weights], lr=0.1)
train(2)
"""

EVALUATES = f"""{OPTIMIZERS}
from ddpjob import report
from ddpjob_rank.reporting import report as reporting
model, heard = torch.nn.Module(), []
model.weights = weights
for _ in range(2):
    model.train()
    for _ in torch.utils.data.DataLoader([1]):
        train(1)
    heard.append(reporting._current.record.activity)
    model.eval()
    for _ in torch.utils.data.DataLoader([1, 2]):
        heard.append(reporting._current.record.activity)
report(as_it_was=heard == 2 * ["training", "evaluation", "evaluation"])
"""

SPAWNS = """
import torch
from ddpjob import report

def train(index):
    report(step=7 + index)

if __name__ == "__main__":
    torch.multiprocessing.spawn(train, nprocs=1)
"""

TRAINS_IN_WHAT_IT_SPAWNS = f"""{OPTIMIZERS}
import torch.multiprocessing

def trains(index):
    train(5)

if __name__ == "__main__":
    torch.multiprocessing.spawn(trains, nprocs=1)
"""

WITHOUT_PYTORCH = "import sys; assert 'torch' not in sys.modules"


def test_the_steps_of_scripts_are_seen_whatever_they_call(tmp_path: Path) -> None:
    programs = [f"{OPTIMIZERS}train(5)", f"{OPTIMIZERS}{REPORTS}", f"{OPTIMIZERS}{REPLACES}", f"{OPTIMIZERS}train(0)"]
    counted, reported, replaced, nothing, evaluates = told(tmp_path, [*programs, EVALUATES], "warm")
    assert evaluates
    assert evaluates.metrics == {"as_it_was": 1}
    assert counted
    assert (counted.rank, counted.attempt, counted.activity, counted.step) == (0, 2, "ending", 5)
    assert counted.anew, "SGD does not know how many there were before attempt 2"
    assert reported
    assert (reported.activity, reported.step, reported.total_steps, reported.samples) == ("ending", 1000, 2000, 64)
    assert reported.loss
    assert 0 < reported.loss < 3
    assert replaced
    assert replaced.step == 4
    assert nothing is None


def test_the_steps_of_a_script_that_imports_pytorch_itself_are_seen(tmp_path: Path) -> None:
    programs = [EVALUATES, SPAWNS, TRAINS_IN_WHAT_IT_SPAWNS, WITHOUT_PYTORCH]
    alone, spawns, trains_there, without = told(tmp_path, programs, "cold")
    assert alone
    assert (alone.rank, alone.attempt, alone.activity, alone.step) == (0, 2, "ending", 2)
    assert alone.metrics == {"as_it_was": 1}
    assert spawns
    assert (spawns.rank, spawns.step) == (1, 7)
    assert trains_there
    assert (trains_there.rank, trains_there.step) == (2, 5)
    assert without is None


class Slow(MlpTask):
    """Its steps last long enough to be seen, and its evaluation until it has been."""

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        time.sleep(0.03)
        return super().loss(output, target)

    def metrics(self, output: Tensor, target: Tensor) -> dict[str, Any]:
        while not Path(os.environ["TEST_SEEN"]).exists():
            time.sleep(0.01)
        return dict(super().metrics(output, target))


def test_our_loop_tells_all_of_itself(runs: Runs, heartbeats: Heartbeats, tmp_path: Path) -> None:
    port, evaluated = hold_port(), tmp_path / "evaluated"
    started = [
        runs.start(
            2,
            *("--workload", f"{__name__}:Slow", "--epochs", 2, "--batch-size", 32),
            *("--checkpoint-dir", tmp_path / "checkpoints"),
            ranks=[rank],
            env={
                "MASTER_PORT": str(port),
                "DDPJOB_HEARTBEAT": str(heartbeats.path(rank)),
                "DDPJOB_ATTEMPT": "3",
                "TEST_SEEN": str(evaluated),
            },
        )
        for rank in range(2)
    ]
    seen: list[Beat] = []
    told: list[float] = []

    def over() -> bool:
        seen.extend(beat for beat in heartbeats.read() if beat)
        if seen and seen[-1].activity == "evaluation" and seen[-1].epoch == 1:
            told.append(time.monotonic() - (seen[-1].activity_age or 0.0))
            evaluated.touch()
        return not any(process.is_alive() for run in started for process in run.processes)

    wait_for("the end", over, DEADLINE_SECONDS, story=started[0].story)
    assert [run.end() for run in started] == [[0], [0]], started[0].story()
    assert {"starting", "training", "evaluation"} <= {beat.activity for beat in seen}
    assert {beat.step for beat in seen if beat.activity == "starting"} == {None}
    assert told[-1] > told[0] + 0.02, "each batch of an evaluation shows that it goes on"
    leader, other = heartbeats.read()
    assert leader
    assert other
    total = int(started[0].value("finished", "step"))
    for process, beat in enumerate((leader, other)):
        assert (beat.rank, beat.attempt, beat.epoch, beat.samples) == (process, 3, 2, 64)
        assert beat.step == beat.total_steps == total
        assert beat.loss is not None
        assert beat.memory_bytes
        assert beat.step_seconds
        assert 0.03 < beat.step_seconds < patience(3)
        assert set(beat.seconds) == {"data", "forward", "backward", "communication", "optimizer"}, beat
        # Torch counts the loss as backward, and what waits for the others as well.
        assert beat.seconds["backward"] > beat.seconds["communication"] + 0.03
    assert leader.checkpoint
    assert leader.checkpoint.step == total
