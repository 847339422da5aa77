"""Options of how a step is computed."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from ddpjob_examples.mlp import MlpTask
from torch import Tensor

from tests.support.waiting import patience
from tests.training.resuming import different, train_twice
from tests.training.runs import Runs
from tests.training.states import state


class Measured(MlpTask):
    """Tells in how many bits it is evaluated."""

    def metrics(self, output: Tensor, target: Tensor) -> Mapping[str, Tensor]:
        return {"bits": torch.tensor(8.0 * output.itemsize * len(target))}


@pytest.mark.parametrize(
    "precision", [pytest.param("bf16", marks=pytest.mark.full("fp16 has the scale of the loss beside")), "fp16"]
)
def test_a_run_in_mixed_precision_goes_on_with_the_very_bits(runs: Runs, tmp_path: Path, precision: str) -> None:
    job = ["--precision", precision, "--channels-last", "--global-batch-size", 48, "--epochs", 1]
    train_twice(runs, tmp_path, 2, *job, step=10)
    calm, resumed = state(tmp_path / "calm"), state(tmp_path / "resumed")
    assert different(resumed, calm) == []
    assert resumed["scaler"] == calm["scaler"]
    assert {tensor.dtype for tensor in calm["model"].values() if tensor.is_floating_point()} == {torch.float32}


def test_the_scale_of_the_loss_is_saved(runs: Runs, tmp_path: Path) -> None:
    runs.train(1, "--precision", "fp16", "--epochs", 1, "--checkpoint-dir", tmp_path)
    assert state(tmp_path)["scaler"]["_growth_tracker"] > 0


def test_without_fp16_no_loss_is_scaled(runs: Runs, tmp_path: Path) -> None:
    runs.train(1, "--precision", "bf16", "--epochs", 1, "--checkpoint-dir", tmp_path)
    assert state(tmp_path)["scaler"] is None


@pytest.mark.parametrize(("precision", "bits"), [("bf16", "16.0000"), ("fp32", "32.0000")])
def test_evaluation_is_in_the_precision_of_training(runs: Runs, precision: str, bits: str) -> None:
    run = runs.train(1, "--workload", f"{__name__}:Measured", "--precision", precision, "--epochs", 1)
    assert run.value("evaluated", "bits") == bits


@pytest.mark.timeout(600)  # With an empty cache a C++ compiler runs for each rank: a minute on a quiet machine.
def test_a_compiled_model_keeps_its_names_and_trains(runs: Runs, tmp_path: Path) -> None:
    job = ["--workload", "mlp", "--epochs", 1, "--lr", 0.1, "--checkpoint-dir"]
    compiled = runs.train(2, *job, tmp_path / "compiled", "--compile")
    assert "--compile: the model is compiled for cpu" in compiled.output()
    plain = runs.train(2, *job, tmp_path / "plain")
    ours, theirs = state(tmp_path / "compiled")["model"], state(tmp_path / "plain")["model"]
    assert list(ours) == list(theirs)
    assert all(torch.allclose(ours[name], theirs[name], atol=1e-5) for name in ours)
    assert compiled.value("finished", "accuracy") == plain.value("finished", "accuracy")


def test_without_a_compiler_training_says_so_and_goes_on(runs: Runs) -> None:
    run = runs.train(1, "--workload", "mlp", "--epochs", 1, "--compile", env={"CXX": "no-such-compiler"})
    assert "--compile: there is no compiler no-such-compiler (set CXX to use another)" in run.output()


def test_a_deterministic_run_computes_what_any_other_does_on_a_cpu(runs: Runs, tmp_path: Path) -> None:
    job = ["--workload", "mlp", "--epochs", 1, "--lr", 0.1, "--checkpoint-dir"]
    runs.train(2, *job, tmp_path / "exact", "--deterministic")
    runs.train(2, *job, tmp_path / "plain")
    ours, theirs = state(tmp_path / "exact")["model"], state(tmp_path / "plain")["model"]
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


SETS = """
import os, torch
from ddpjob_trainer.options import ComputingConfig
from ddpjob_trainer.model.exactness import description, prepare

prepare(ComputingConfig(deterministic={asked}))
print(os.environ.get("CUBLAS_WORKSPACE_CONFIG"), torch.backends.cudnn.deterministic)
print(description())
try:
    torch.zeros(4).put_(torch.tensor([0, 0]), torch.tensor([1.0, 2.0]))
except RuntimeError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("asked", "first", "exactness"),
    [(True, ":4096:8 True", "deterministic"), (False, "None False", "not deterministic")],
)
def test_what_is_to_be_deterministic_is_set_before_anything_is_computed_and_the_rest_is_refused(
    *, asked: bool, first: str, exactness: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SETS.format(asked=asked)],
        capture_output=True,
        text=True,
        check=True,
        timeout=patience(120),
    )
    settings, described, *refused = done.stdout.splitlines()
    assert settings == first
    assert described == f"TF32 in convolutions, cudnn.benchmark off, {exactness}", "PyTorch's own defaults"
    assert bool(refused) == asked
