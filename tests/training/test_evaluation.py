"""Evaluation in a run: in how large batches, and under which names."""

from collections.abc import Mapping
from typing import Any

import pytest
from ddpjob_trainer.workloads.mlp import MlpTask
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
    assert run.errors().startswith("error: Taken.metrics names one samples, as the run calls a number of its own")
