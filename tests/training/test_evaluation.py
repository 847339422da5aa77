"""Evaluation in a run: in how large batches, and under which names."""

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ddpjob_examples.mlp import MlpTask
from torch import Tensor

from tests.training.runs import Runs


class Told(MlpTask):
    """Tells how many samples it is evaluated on at a time."""

    def metrics(self, output: Tensor, target: Tensor) -> Mapping[str, Tensor]:
        print(f"evaluated on {len(output)}")
        return super().metrics(output, target)


def test_a_model_is_evaluated_on_as_many_samples_at_a_time_as_it_is_trained_on(runs: Runs) -> None:
    parts = ["--batch-size", 10, "--gradient-accumulation-steps", 4]
    run = runs.train(1, "--workload", f"{__name__}:Told", "--max-steps", 1, *parts)
    sizes = [int(line.split()[-1]) for line in run.output().splitlines() if line.startswith("evaluated on")]
    assert max(sizes) == 10
    assert sum(sizes) == int(run.value("evaluated", "samples"))


class Plain(MlpTask):
    """Its metric is a number of Python's."""

    def metrics(self, output: Any, target: Tensor) -> Any:
        return {"hits": float((output.argmax(1) == target).sum()), **super().metrics(output, target)}


def test_a_metric_may_be_a_plain_number(runs: Runs) -> None:
    run = runs.train(1, "--workload", f"{__name__}:Plain", "--max-steps", 1)
    assert run.value("evaluated", "hits") == run.value("evaluated", "accuracy")


class Taken(MlpTask):
    def metrics(self, output: Tensor, target: Tensor) -> Mapping[str, Tensor]:
        return {"samples": super().metrics(output, target)["accuracy"]}


@pytest.mark.parametrize("size", [1, 2])
def test_a_metric_with_the_name_of_another_number_is_one_clear_error(runs: Runs, size: int) -> None:
    run = runs.start(size, "--workload", f"{__name__}:Taken", "--max-steps", 1)
    assert run.end() == [2] * size, run.story()
    assert run.errors().startswith("error: Taken.metrics has a metric named samples, a name that the run uses itself")


class Held(MlpTask):
    """Evaluates for as long as there is a file."""

    def metrics(self, output: Tensor, target: Tensor) -> Mapping[str, Tensor]:
        held = Path(os.environ[HELD])
        print("evaluates", flush=True)
        if held.exists():
            time.sleep(0.1)
        return super().metrics(output, target)


HELD = "EVALUATION_HELD"


def test_told_to_stop_while_it_evaluates_a_run_skips_the_rest_and_evaluates_when_it_goes_on(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = tmp_path / "held"
    held.touch()
    monkeypatch.setenv(HELD, str(held))
    saving = ["--checkpoint-dir", tmp_path / "checkpoints", "--checkpoint-every-steps", 1]
    given = ["--workload", f"{__name__}:Held", "--max-steps", 2, "--batch-size", 2, *saving]
    run = runs.start(2, *given)
    run.wait("evaluation", lambda: "evaluates" in run.output(0) and "evaluates" in run.output(1))
    run.wait("the save to be told while it evaluates", lambda: "saved step=2" in run.output())
    run.send(signal.SIGTERM, rank=1)
    assert run.end() == [205, 205], run.story()
    assert "saved step 2, stopped on request" in run.output()
    assert "\nevaluated " not in run.output(), "the result would be of a part of the samples"

    held.unlink()
    again = runs.train(2, *given)
    assert int(again.value("evaluated", "samples")) > 0
