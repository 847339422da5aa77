"""Stopping and resuming: nothing but time is lost."""

import json
import random
import re
from pathlib import Path

import pytest
import torch

from tests.training.holding import Hold
from tests.training.runs import Runs
from tests.training.states import state, tensors

EPOCHS = 3
BATCH = 48
ONE_IS_ENOUGH = pytest.mark.full(
    "the same by other numbers of processes; how samples are divided is shown by unit tests"
)
RESIZED_TOLERANCE = 1e-6
"""Sums of the same numbers in other groups differ in their last bits, and training carries that on. This is for a
perceptron; batch normalisation, which sees the statistics of other groups, differs by far more."""


def last(directory: Path) -> dict[str, torch.Tensor]:
    """Every tensor of the last checkpoint: weights, buffers, the optimizer's and the random generators' states."""
    return tensors(state(directory))


def stop_somewhere(runs: Runs, size: int, *job: object, rank: int = 0) -> int:
    """Asks one rank of a run to stop at a random step, and gives the step that all stopped at."""
    step = random.randint(1, 25)
    hold = Hold(runs.directory / "go", after=step)
    run = runs.start(size, *job, env=hold.env)
    run.wait(f"step {step}", lambda: len(run.steps()) >= step)
    hold.stop(run, rank=rank)
    assert set(run.end()) == {205}, run.story()
    said = {re.search(r"^saved step (\d+), stopped on request$", run.output(r), re.MULTILINE) for r in range(2)}
    steps = {int(words[1]) for words in said if words}
    assert len(steps) == 1, run.story()
    return steps.pop()


@pytest.mark.parametrize(
    ("size", "workers"), [(2, 1), pytest.param(2, 0, marks=ONE_IS_ENOUGH), pytest.param(3, 0, marks=ONE_IS_ENOUGH)]
)
def test_a_run_stopped_in_mid_epoch_and_resumed_ends_with_the_very_bits_of_an_undisturbed_one(
    runs: Runs, tmp_path: Path, size: int, workers: int
) -> None:
    job = ["--workload", "tests.training.tasks:Noisy", "--epochs", EPOCHS, "--global-batch-size", BATCH]
    job += ["--workers", workers]
    calm = runs.train(size, *job, "--checkpoint-dir", tmp_path / "calm")
    stopped = stop_somewhere(runs, size, *job, "--checkpoint-dir", tmp_path / "stopped", rank=size - 1)
    resumed = runs.train(size, *job, "--checkpoint-dir", tmp_path / "stopped")
    assert resumed.value("resumed", "step") == str(stopped)
    assert resumed.steps()[0] == stopped + 1
    theirs, ours = last(tmp_path / "calm"), last(tmp_path / "stopped")
    assert ours.keys() == theirs.keys()
    assert len([name for name in ours if "/optimizer/" in name]) > 0
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == [], f"stopped at step {stopped}"
    assert resumed.value("finished", "accuracy") == calm.value("finished", "accuracy")


@pytest.mark.parametrize(("before", "after"), [(2, 3), pytest.param(3, 2, marks=ONE_IS_ENOUGH)])
def test_after_a_resize_the_same_batches_are_learned_from(
    runs: Runs, tmp_path: Path, before: int, after: int
) -> None:
    job = [
        "--workload",
        "tests.training.tasks:Perceptron",
        "--epochs",
        EPOCHS,
        "--global-batch-size",
        50,
        "--checkpoint-dir",
    ]
    runs.train(2, *job, tmp_path / "calm")
    stop_somewhere(runs, before, *job, tmp_path / "resized")
    resized = runs.train(after, *job, tmp_path / "resized")
    assert f"the number of processes changed from {before} to {after}" in resized.output()
    theirs, ours = last(tmp_path / "calm"), last(tmp_path / "resized")
    weights = [name for name in theirs if name.startswith("/model/")]
    assert max((ours[name] - theirs[name]).abs().max().item() for name in weights) < RESIZED_TOLERANCE


def test_a_finished_run_that_is_started_again_is_evaluated_and_done(runs: Runs, tmp_path: Path) -> None:
    job = ["--epochs", 1, "--checkpoint-dir", tmp_path / "checkpoints"]
    first = runs.train(1, *job)
    again = runs.train(1, *job)
    assert "complete: all 44 steps have been trained before" in again.output()
    assert again.value("finished", "accuracy") == first.value("finished", "accuracy")
    assert again.steps() == []
    assert len(list((tmp_path / "checkpoints").glob("step-*"))) == 1


def test_more_epochs_go_on_from_the_end(runs: Runs, tmp_path: Path) -> None:
    runs.train(1, "--epochs", 1, "--checkpoint-dir", tmp_path / "checkpoints")
    more = runs.train(1, "--epochs", 2, "--checkpoint-dir", tmp_path / "checkpoints")
    assert (more.steps()[0], more.steps()[-1]) == (45, 88)


def test_names_in_a_checkpoint_are_the_models_own(runs: Runs, tmp_path: Path) -> None:
    runs.train(2, "--workload", "mlp", "--epochs", 1, "--checkpoint-dir", tmp_path / "checkpoints")
    names = [name for name in last(tmp_path / "checkpoints") if name.startswith("/model/")]
    assert names == ["/model/1.weight", "/model/1.bias", "/model/3.weight", "/model/3.bias"]


@pytest.mark.parametrize(
    ("flags", "saved"),
    [
        ([], [22, 44]),
        (["--checkpoint-every-steps", 15], [15, 30, 44]),
        (["--checkpoint-every-seconds", 1000], [44]),
    ],
    ids=["by epoch", "by steps", "by seconds, never"],
)
def test_checkpoints_are_saved_when_they_are_due_and_at_the_end(
    runs: Runs, tmp_path: Path, flags: list[object], saved: list[int]
) -> None:
    runs.train(2, "--epochs", 2, "--checkpoint-dir", tmp_path / "checkpoints", *flags)
    steps = sorted(int(path.name.removeprefix("step-")) for path in (tmp_path / "checkpoints").glob("step-*"))
    assert steps == saved


def test_checkpoints_by_time_are_saved_by_all_ranks_at_the_same_step(runs: Runs, tmp_path: Path) -> None:
    often = ["--checkpoint-every-seconds", 0.001, "--checkpoint-keep", 100]
    runs.train(2, "--epochs", 2, "--checkpoint-dir", tmp_path / "checkpoints", *often)
    assert len(list((tmp_path / "checkpoints").glob("step-*"))) >= 2  # One by time, and the last.


def test_another_models_checkpoint_is_refused(runs: Runs, tmp_path: Path) -> None:
    runs.train(1, "--epochs", 1, "--checkpoint-dir", tmp_path / "checkpoints")
    other = runs.start(1, "--workload", "mlp", "--checkpoint-dir", tmp_path / "checkpoints")
    assert other.end() == [2]
    assert other.errors().startswith("error: the checkpoint is from another model than the workload's: ")
    assert other.errors().count("\n") == 1


def test_a_run_that_would_go_on_with_other_data_says_what_differs_and_does_so_only_if_it_is_allowed(
    runs: Runs, tmp_path: Path
) -> None:
    job = ["--epochs", 1, "--global-batch-size", 64, "--checkpoint-dir", tmp_path / "checkpoints"]
    runs.train(1, *job, "--max-steps", 10)
    manifest = json.loads((tmp_path / "checkpoints/step-00000010/manifest.json").read_text())
    assert (manifest["seed"], manifest["dataLength"]) == (0, 1433)
    assert {"float32[1433,1,8,8]", "int64[1433]"} < set(manifest["dataFingerprint"])
    refused = runs.start(1, *job, "--seed", 1)
    assert refused.end() == [2], refused.story()
    assert refused.report()["cause"] == "ConfigError"
    checkpoint = f"{tmp_path}/checkpoints/step-00000010"
    assert refused.errors().startswith(
        f"error: checkpoint {checkpoint} was saved with other data: --seed was 0, is 1. "
    )
    assert "--allow-other-data" in refused.errors()
    assert refused.errors().count("\n") == 1
    assert [path.name for path in (tmp_path / "checkpoints").glob("*step-*")] == ["step-00000010"]
    allowed = runs.train(1, *job, "--seed", 1, "--allow-other-data")
    assert allowed.steps()[0] == 11
    assert (
        "--seed was 0, is 1. In the rest of epoch 1 some samples are seen twice, and others never" in allowed.errors()
    )
    assert "other data" not in runs.train(1, *job, "--seed", 1, "--epochs", 2).errors(), "it is the run's own by then"
