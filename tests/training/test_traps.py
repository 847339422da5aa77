"""Mistakes that PyTorch's errors do not explain: each is made here, and told with what to do about it."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from ddpjob_rank.failure import traps
from ddpjob_rank.running.program import Program
from ddpjob_rank.running.rank import become
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from tests.support.waiting import patience
from tests.training import ranks
from tests.training.forking import FORKS
from tests.training.runs import Runs

FEW, MANY = TensorDataset(torch.zeros(10, 1)), TensorDataset(torch.zeros(20, 1))


class Short(Dataset[int]):
    """Says that it has more samples than it has."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> int:
        return list(range(10))[index]


def call_a_list() -> None:
    nn.ModuleList([nn.Linear(1, 1)])(torch.zeros(1))


def mix_devices() -> None:
    nn.Linear(1, 1, device="meta")(torch.zeros(1, 1))  # A device of which every machine has one.


def load_wrapped_weights() -> None:
    nn.Linear(1, 1).load_state_dict({"module.weight": torch.zeros(1, 1), "module.bias": torch.zeros(1)})


def miss_a_class() -> None:
    nn.functional.cross_entropy(torch.zeros(1, 10), torch.tensor([10]))


def sample_another_data_set() -> None:
    list(DataLoader(Short(), sampler=DistributedSampler(Short(), num_replicas=1, rank=0)))


def import_a_package_for_python_2() -> None:
    basestring  # noqa: F821, B018  (that is the mistake)


def import_what_is_not_there() -> None:
    raise ModuleNotFoundError("No module named 'yaml'", name="yaml")


@pytest.mark.parametrize(
    ("mistake", "advice"),
    [
        (import_what_is_not_there, " -m pip install pyyaml"),
        (call_a_list, "let forward go through them"),
        (mix_devices, "so assign it (x = x.to(device))"),
        (load_wrapped_weights, "save model.module.state_dict()"),
        (miss_a_class, "each must be below the number of outputs of the last layer"),
        (sample_another_data_set, "create the sampler and the loader from the same data set"),
        (import_a_package_for_python_2, "the result of argparse's parse_args(), not a package"),
    ],
)
def test_a_known_mistake_is_told_in_one_line_with_its_place_and_what_to_do(
    mistake: Callable[[], None], advice: str
) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011  (whatever torch raises)
        mistake()
    told = traps.known_mistake(caught.value)
    assert told, repr(caught.value)
    assert advice in str(told)
    assert f"{__file__}:" in str(told)
    assert "\n" not in str(told)


def test_a_module_that_an_image_lacks_is_told_with_how_to_have_it_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.delenv("DDPJOB_RUN_DIR", raising=False)
    with pytest.raises(ModuleNotFoundError) as caught:
        import ddpjob_no_such  # type: ignore[import-not-found]  # noqa: F401, PLC0415
    told = str(traps.known_mistake(caught.value))
    assert told.startswith("No module named 'ddpjob_no_such', in ")
    assert "ddpjob submit --pip ddpjob_no_such" in told


def test_a_part_that_a_package_has_not_is_none_of_them() -> None:
    with pytest.raises(ModuleNotFoundError) as caught:
        import json.no_such  # type: ignore[import-not-found]  # noqa: F401, PLC0415
    assert traps.known_mistake(caught.value) is None


def test_what_is_none_of_them_stays_as_it_is() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.zeros(2, 3) @ torch.zeros(2, 3)
    assert traps.known_mistake(caught.value) is None


def test_a_sampler_over_a_smaller_data_set_leaves_the_rest_out_without_a_word() -> None:
    loader = DataLoader(MANY, sampler=DistributedSampler(FEW, num_replicas=1, rank=0))
    assert len(list(loader)) == len(FEW)


def test_gradients_that_the_optimizer_does_not_have_grow_unless_the_model_clears_them() -> None:
    def grown(zero_grad: str) -> float:
        model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))
        nn.init.ones_(model[0].weight)
        nn.init.ones_(model[1].weight)
        optimizer = torch.optim.SGD(model[1].parameters(), lr=0.0)
        for _ in range(3):
            (model if zero_grad == "model" else optimizer).zero_grad()
            model(torch.ones(1, 1)).sum().backward()
        return float(model[0].weight.grad)

    assert grown("model") == 1.0
    assert grown("optimizer") == 3.0


def test_with_all_parameters_in_the_optimizer_both_clear_the_same() -> None:
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters())
    for clear in (model.zero_grad, optimizer.zero_grad):
        model(torch.ones(1, 1)).sum().backward()
        assert all(parameter.grad is not None for parameter in model.parameters())
        clear()
        assert all(parameter.grad is None for parameter in model.parameters())


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
