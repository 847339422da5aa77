"""Ranks with batches of their own, of which one has more than another."""

import json
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from ddpjob_trainer.task import Task
from torch import Tensor, nn

from tests.training.resuming import different, train_twice
from tests.training.runs import Runs
from tests.training.states import state
from tests.training.tasks import linger

BATCHES = [[1.0, 2.0, 3.0], [3.0, 4.0, 5.0, 10.0, 20.0]]
RATE = 0.5


class Line(nn.Module):
    """A line, with a second one that is for training only."""

    def __init__(self) -> None:
        super().__init__()
        self.always, self.in_training = nn.Linear(1, 1), nn.Linear(1, 1)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.always(x)
        return y + self.in_training(x) if self.training else y


class Fed(Task):
    """A line, and a normalisation that sees all that comes of it."""

    epochs = 2
    batch_size = 1
    lr = RATE
    momentum = 0.9

    def model(self) -> nn.Module:
        return nn.Sequential(Line(), nn.BatchNorm1d(1))

    def train_loader(self, rank: int, world_size: int) -> Any:  # noqa: ARG002  (the interface has it)
        return [(torch.full((2, 1), value), None) for value in BATCHES[rank]]

    def loss(self, output: Tensor, target: None) -> Tensor:  # noqa: ARG002  (as above)
        linger()
        return output.sum()


class Mean(Fed):
    """One weight, whose gradient is the mean input. Each rank tells it in each step."""

    def model(self) -> nn.Module:
        model = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(model.weight)
        self.weight = model.weight
        return model

    def loss(self, output: Tensor, target: None) -> Tensor:  # noqa: ARG002  (as above)
        linger()
        print(f"weight {self.weight.item():.6f}", flush=True)
        return output.mean()


def weights(output: str) -> list[float]:
    """What a rank said in its steps: before the first one is the warm-up, of which nothing is seen."""
    return [float(line.removeprefix("weight ")) for line in output.splitlines() if line.startswith("weight ")]


def expected() -> list[float]:
    """The weight before each step, by hand."""
    seen, weight, momentum = [], 0.0, 0.0
    for _ in range(2):
        for number in range(max(map(len, BATCHES))):
            seen.append(weight)
            present = [values[number] for values in BATCHES if number < len(values)]
            momentum = 0.9 * momentum + sum(present) / len(present)
            weight -= RATE * momentum
    return seen


def test_each_step_is_the_mean_of_those_who_have_a_batch_and_all_ranks_stay_alike(runs: Runs) -> None:
    run = runs.train(2, "--workload", f"{__name__}:Mean")
    for rank in range(2):
        assert weights(run.output(rank)) == pytest.approx(expected(), rel=1e-5)
    assert run.steps() == run.steps(1) == list(range(1, 11))


def test_the_loss_of_what_counts_nothing_is_not_told(runs: Runs, tmp_path: Path) -> None:
    run = runs.train(2, "--workload", f"{__name__}:Mean", "--epochs", 1, "--log-dir", tmp_path)
    told = ["loss=" in line for line in run.output().splitlines() if line.startswith("progress ")]
    assert told == [True] * 3 + [False] * 2
    assert all("loss=" in line for line in run.output(1).splitlines() if line.startswith("progress "))
    recorded = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert ["loss" in one for one in recorded if one["event"] == "progress"] == told


def test_what_counts_nothing_leaves_no_trace_in_statistics(runs: Runs, tmp_path: Path) -> None:
    runs.train(2, "--workload", f"{__name__}:Fed", "--epochs", 1, "--checkpoint-dir", tmp_path)
    assert state(tmp_path)["model"]["1.num_batches_tracked"] == len(BATCHES[0])


class Drawn:
    """Batches that are drawn from random generators, in an order that is too."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __len__(self) -> int:
        return self._number

    def __iter__(self) -> Iterator[tuple[Tensor, None]]:
        for number in torch.randperm(self._number).tolist():
            yield number + torch.rand(4, 1) + random.random(), None


class Random(Mean):
    def model(self) -> nn.Module:
        return nn.Sequential(nn.Dropout(0.5), super().model())

    def train_loader(self, rank: int, world_size: int) -> Any:  # noqa: ARG002  (as above)
        return Drawn([7, 12][rank])


def test_a_run_goes_on_with_the_very_bits_where_one_rank_has_nothing_left(runs: Runs, tmp_path: Path) -> None:
    train_twice(runs, tmp_path, 2, "--workload", f"{__name__}:Random", step=10)
    assert different(state(tmp_path / "resumed"), state(tmp_path / "calm")) == []
    assert state(tmp_path / "calm")["position"] == (24, 2, 24)


class Long(Mean):
    epochs = 1

    def train_loader(self, rank: int, world_size: int) -> Any:  # noqa: ARG002  (as above)
        return [(torch.ones(1, 1), None)] * [2, 2000][rank]


def test_a_rank_that_has_nothing_left_can_still_be_asked_to_stop(runs: Runs, tmp_path: Path) -> None:
    job = ["--workload", f"{__name__}:Long", "--checkpoint-dir", tmp_path]
    run = runs.start(2, *job, env={"TEST_STEP_SECONDS": "0.01"})
    run.wait("step 10", lambda: len(run.steps()) >= 10)
    run.send(signal.SIGTERM)
    assert run.end() == [205, 205], run.story()
    step = state(tmp_path)["position"][0]
    assert all(f"saved step {step}, stopped on request" in run.output(rank) for rank in range(2))


class Stream(Mean):
    """Nobody knows how long it is."""

    def train_loader(self, rank: int, world_size: int) -> Any:  # noqa: ARG002  (as above)
        return Endless([(torch.full((2, 1), value), None) for value in BATCHES[rank]])


class Endless:
    def __init__(self, batches: list[Any]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[Any]:
        return iter(self._batches)


def test_ranks_that_cannot_tell_how_many_batches_they_have_train_for_a_number_of_steps(runs: Runs) -> None:
    run = runs.train(2, "--workload", f"{__name__}:Stream", "--max-steps", 8)
    for rank in range(2):
        assert weights(run.output(rank)) == pytest.approx(expected()[:8], rel=1e-5)


def test_the_end_of_an_epoch_is_saved_also_where_nobody_knew_that_it_would_come(runs: Runs, tmp_path: Path) -> None:
    job = ["--workload", f"{__name__}:Stream", "--checkpoint-dir", tmp_path, "--max-steps"]
    run = runs.train(2, *job, 12)
    assert [line.split()[1] for line in run.output().splitlines() if line.startswith("saved ")] == [
        *("step=5", "step=10", "step=12")
    ]
    again = runs.train(2, *job, 17)
    assert [line.split()[1] for line in again.output().splitlines() if line.startswith("saved ")] == [
        *("step=15", "step=17")
    ]


def test_epochs_that_are_asked_for_end_a_run_also_where_nobody_knew_how_long_they_are(
    runs: Runs, tmp_path: Path
) -> None:
    job = ["--workload", f"{__name__}:Stream", "--checkpoint-dir", tmp_path, "--checkpoint-every-steps", 7]
    run = runs.train(2, *job, "--max-steps", 12, "--epochs", 2)
    assert run.value("finished", "step") == "10"
    assert [line.split()[1] for line in run.output().splitlines() if line.startswith("saved ")] == [
        "step=7",
        "step=10",
    ]
    again = runs.train(2, *job, "--max-steps", 12, "--epochs", 2)
    assert (again.value("resumed", "step"), again.value("finished", "step"), again.steps()) == ("10", "10", [])
    more = runs.train(2, *job, "--max-steps", 12, "--epochs", 3)
    assert (more.value("finished", "step"), more.steps()[0]) == ("12", 11)


class Wrong(Mean):
    def train_loader(self, rank: int, world_size: int) -> Any:  # noqa: ARG002  (as above)
        batch = (torch.ones(1, 1), None)
        return {
            "empty": [],
            "iterator": iter([]),
            "endless": Endless([batch]),
            "spent": Spent([batch] * 3),
            "single": [batch[:1]],
            "none": None,
        }[os.environ["TEST_LOADER"]]


class Spent(Endless):
    """Gives each batch once and never again."""

    def __init__(self, batches: list[Any]) -> None:
        self._left = iter(batches)

    def __iter__(self) -> Iterator[Any]:
        return self._left


@pytest.mark.parametrize(
    ("loader", "flags", "message"),
    [
        ("empty", [], "train_loader has no batch for rank 0: each rank needs one in each epoch"),
        ("iterator", [], "train_loader returns a list_iterator, which can be iterated only once"),
        ("endless", [], "the task's train_loader has no len(): set the number of steps with --max-steps"),
        (
            "empty",
            ["--global-batch-size", 4],
            "--global-batch-size and --gradient-accumulation-steps are for train_data",
        ),
        (
            "endless",
            ["--explain-shards"],
            "--explain-shards needs train_data: a train_loader itself chooses",
        ),
        ("spent", ["--max-steps", 9], "train_loader has no batch for any process in epoch 2: it must start again"),
        ("single", [], "a batch is a tuple of 1: it must be a pair"),
        ("none", [], "Wrong has no data: define train_data or train_loader"),
    ],
)
def test_a_loader_that_cannot_be_used_is_one_clear_error(
    runs: Runs, loader: str, flags: list[object], message: str
) -> None:
    run = runs.start(1, "--workload", f"{__name__}:Wrong", *flags, env={"TEST_LOADER": loader})
    assert run.end() == [2]
    assert message in run.errors()
    assert run.report()["cause"] == "ConfigError"
