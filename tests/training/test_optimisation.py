"""Options of how the model learns."""

import math
from pathlib import Path

import pytest

from tests.training.resuming import different, train_twice
from tests.training.runs import Runs
from tests.training.states import state

TOLERANCE = 1e-6
"""Sums of the same numbers in other groups differ in their last bits."""


def test_ranks_with_uneven_parts_learn_in_several_parts_what_they_learn_at_once(runs: Runs, tmp_path: Path) -> None:
    job = ["--workload", "mlp", "--lr", 0.1, "--epochs", 1, "--global-batch-size", 51, "--checkpoint-dir"]
    runs.train(2, *job, tmp_path / "whole")
    runs.train(2, *job, tmp_path / "parts", "--gradient-accumulation-steps", 4)
    whole, parts = (state(tmp_path / name)["model"] for name in ("whole", "parts"))
    assert max((whole[name] - parts[name]).abs().max().item() for name in whole) < TOLERANCE


def test_a_batch_size_is_that_of_a_part(runs: Runs) -> None:
    run = runs.train(2, "--workload", "mlp", "--epochs", 1, "--batch-size", 20, "--gradient-accumulation-steps", 3)
    assert len(run.steps()) == 1437 // (2 * 3 * 20)


def test_an_average_of_the_weights_is_evaluated_and_goes_on_with_the_very_bits(runs: Runs, tmp_path: Path) -> None:
    job = ["--global-batch-size", 48, "--epochs", 1, "--model-ema-decay"]
    resumed = train_twice(runs, tmp_path, 2, *job, 0.9, step=10)
    ours, calm = state(tmp_path / "resumed"), state(tmp_path / "calm")
    assert different(ours, calm) == []
    assert calm["average"]["updates"] == 29
    assert calm["average"]["model"].keys() == calm["model"].keys()
    lagging = runs.train(2, *job, 0.99999)
    assert float(lagging.value("finished", "accuracy")) < float(resumed.value("finished", "accuracy"))


def test_an_average_that_is_asked_for_late_begins_with_the_weights_there_are(runs: Runs, tmp_path: Path) -> None:
    job = ["--workload", "mlp", "--epochs", 1, "--checkpoint-dir", tmp_path]
    first = runs.train(1, *job)
    again = runs.train(1, *job, "--model-ema-decay", 0.9)
    assert again.value("finished", "accuracy") == first.value("finished", "accuracy")


def test_a_run_follows_its_schedule_over_epochs(runs: Runs, tmp_path: Path) -> None:
    schedule = ["--lr-scheduler", "steplr", "--lr-step-size", 1, "--lr-gamma", 0.5, "--lr-warmup-epochs", 1]
    job = ["--workload", "mlp", "--global-batch-size", 360, "--lr", 0.4, *schedule, "--checkpoint-dir", tmp_path]
    rates = []
    for epochs in (1, 2, 3):
        runs.train(1, *job, "--epochs", epochs)
        rates.append(state(tmp_path)["optimizer"]["param_groups"][0]["lr"])
    assert rates == pytest.approx([0.4, 0.2, 0.1])


def test_a_run_clips_gradients_as_asked(runs: Runs, tmp_path: Path) -> None:
    job = ["--workload", "mlp", "--lr", 1, "--max-steps", 3, "--checkpoint-every-steps", 1]
    runs.train(1, *job, "--clip-grad-norm", 1e-3, "--checkpoint-dir", tmp_path)
    before, after = (state(tmp_path, step)["model"] for step in (2, 3))
    moved = sum((after[name] - before[name]).square().sum().item() for name in after) ** 0.5
    assert moved == pytest.approx(1e-3, rel=0.01)


def test_settings_of_an_optimizer_that_a_checkpoint_has_otherwise_are_told(runs: Runs, tmp_path: Path) -> None:
    job = ["--workload", "mlp", "--lr-scheduler", "cosineannealinglr", "--checkpoint-dir", tmp_path, "--max-steps"]
    runs.train(1, *job, 2, "--lr", 0.5)
    same = runs.train(1, *job, 3, "--lr", 0.5)
    other = runs.train(1, *job, 4, "--lr", 0.25, "--weight-decay", 0.125)
    told = "the optimizer keeps the settings of the checkpoint: lr 0.5, not 0.25; weight_decay 0.0, not 0.125"
    assert "the optimizer keeps the settings" not in same.output()
    assert told in other.output()


@pytest.mark.parametrize(
    ("schedule", "rate"),
    [
        (["steplr", "--lr-step-size", 1, "--lr-gamma", 0.5], 0.25 * 0.5**3),  # Three epochs of three steps.
        (["cosineannealinglr"], 0.25 * (1 + math.cos(math.pi * 9 / 10)) / 2),
    ],
)
def test_a_schedule_that_is_asked_for_late_goes_on_where_it_would_be_from_the_rate_that_is_asked_for(
    runs: Runs, tmp_path: Path, schedule: list[object], rate: float
) -> None:
    job = ["--workload", "mlp", "--global-batch-size", 360, "--checkpoint-dir", tmp_path]
    job += ["--checkpoint-every-steps", 1, "--max-steps"]
    runs.train(1, *job, 8, "--lr", 0.5)
    run = runs.train(1, *job, 10, "--lr", 0.25, "--lr-scheduler", *schedule)
    assert "the optimizer keeps the settings" not in run.output()
    assert state(tmp_path, 9)["optimizer"]["param_groups"][0]["lr"] == pytest.approx(rate)
    assert run.errors() == ""


def test_a_schedule_that_is_asked_for_no_more_leaves_the_rate_where_it_was(runs: Runs, tmp_path: Path) -> None:
    job = ["--workload", "mlp", "--checkpoint-dir", tmp_path, "--lr", 0.5, "--max-steps"]
    runs.train(1, *job, 2, "--lr-scheduler", "cosineannealinglr")
    run = runs.train(1, *job, 3)
    assert "the optimizer keeps the settings of the checkpoint: lr 0.0, not 0.5" in run.output()
