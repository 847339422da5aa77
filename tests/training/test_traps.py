"""Mistakes that PyTorch's errors do not explain: each is made here, and told with what to do about it."""

import json
import os
from pathlib import Path

import pytest
from ddpjob_rank.running.program import Program
from ddpjob_rank.running.rank import become

from tests.support.waiting import patience
from tests.training import ranks
from tests.training.forking import FORKS
from tests.training.runs import Runs


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("GivesALoader", "error: DataLoader is not a data set: give the data set that it loads"),
        ("OptimizesAnotherModel", "error: the task's optimizer has none of the model's parameters"),
    ],
)
def test_a_task_that_would_learn_nothing_is_refused_in_one_line(runs: Runs, task: str, message: str) -> None:
    run = runs.start(1, "--workload", f"tests.training.traps:{task}")
    assert run.end() == [2]
    assert run.errors().startswith(message)
    assert run.errors().count("\n") == 1


@pytest.mark.parametrize("workers", [0, 1])
def test_a_data_set_that_lacks_samples_it_counts_is_told_whoever_fetches_them(runs: Runs, workers: int) -> None:
    run = runs.start(1, "--workload", "tests.training.traps:CountsTooMany", "--workers", workers)
    assert run.end() == [1]
    assert "__len__ must return its number of samples" in run.errors().splitlines()[-1]


def test_parameters_that_the_optimizer_leaves_out_are_named_once(runs: Runs) -> None:
    run = runs.train(2, "--workload", "tests.training.traps:OptimizesAPart")
    assert "these parameters of the model are not in the optimizer and never change: 0.weight, 0.bias" in run.errors()
    assert run.errors(1) == ""


def test_a_task_that_falls_into_one_is_never_tried_again(runs: Runs) -> None:
    run = runs.start(1, "--workload", "tests.training.traps:CallsAList")
    assert run.end() == [2]
    last = run.errors().splitlines()[-1]
    assert last.startswith('error: Module [ModuleList] is missing the required "forward" function, in ')
    assert "tests/training/traps.py:" in last
    assert run.report()["cause"] == "ConfigError"
    assert "Traceback" in run.errors(), "the way there"


SCRIPT = """
from torch import nn

nn.Linear(1, 1).load_state_dict({"module.weight": None})
"""


def test_a_supervised_script_that_falls_into_one_is_never_tried_again_either(tmp_path: Path) -> None:
    script, errors, report = tmp_path / "train.py", tmp_path / "errors", tmp_path / "report"
    script.write_text(SCRIPT)
    rank = FORKS.Process(target=_supervised, args=(str(script), str(errors), str(report)), daemon=True)
    rank.start()
    rank.join(patience(ranks.DEADLINE_SECONDS))
    assert rank.exitcode == 1, "as the interpreter ends it"
    last = errors.read_text().splitlines()[-1]
    assert last.startswith("error: ")
    assert last.endswith("consume_prefix_in_state_dict_if_present(weights, 'module.')")
    assert f"in {script}:4" in last
    told = json.loads(report.read_text())
    assert (told["cause"], told["exitCode"]) == ("ConfigError", 1)


def _supervised(script: str, errors: str, report: str) -> None:
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT), 2)
    os.environ["DDPJOB_TERMINATION_LOG"] = report
    become(Program(module=False, name=script))
