"""The workloads that come with the trainer: what they learn from, with which model, and how fast."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from ddpjob_examples import handwriting
from ddpjob_examples.convnet import ConvNet
from ddpjob_rank.errors import ConfigError
from ddpjob_trainer.config import read_config
from ddpjob_trainer.task import BUILT_IN, Task, load_task
from torch import Tensor, nn
from torch.utils.data import Dataset


def task(workload: str, *flags: str) -> Task:
    return load_task(read_config(["--workload", workload, *flags], {}))


def described(task: Task) -> dict[str, Any]:
    """What the pages say of it, and what a checkpoint of it holds."""
    optimizer = task.optimizer(task.model()).param_groups[0]
    test = task.test_data()
    return {
        "epochs": task.epochs,
        "batch": task.batch_size,
        "rate": (optimizer["lr"], optimizer["momentum"], optimizer["weight_decay"], task.lr_scheduler),
        "samples": (count(task.train_data()), count(test) if test else 0),
        "weights": [tuple(parameter.shape) for parameter in task.model().parameters()],
    }


def count(data: Dataset[Any]) -> int:
    return len(data)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        (
            "convnet",
            {
                "epochs": 10,
                "batch": 32,
                "rate": (0.02, 0.9, 5e-4, "cosineannealinglr"),
                "samples": (1433, 364),
                "weights": [
                    *((16, 1, 5, 5), (16,), (16,), (16,)),
                    *((32, 16, 5, 5), (32,), (32,), (32,)),
                    *((10, 128), (10,)),
                ],
            },
        ),
        (
            "mlp",
            {
                "epochs": 10,
                "batch": 32,
                "rate": (0.001, 0.0, 0.0, "constant"),
                "samples": (1433, 364),
                "weights": [(256, 64), (256,), (10, 256), (10,)],
            },
        ),
        (
            "random",
            {
                "epochs": 1,
                "batch": 30,
                "rate": (0.01, 0.0, 0.0, "constant"),
                "samples": (90, 0),
                "weights": [(2, 5), (2,)],
            },
        ),
        (
            "layers",
            {
                "epochs": 2,
                "batch": 16,
                "rate": (0.01, 0.0, 0.0, "constant"),
                "samples": (256, 0),
                "weights": [(3, 3)] * 3,
            },
        ),
    ],
)
def test_a_workload_has_the_model_the_samples_and_the_rates_of_its_page(
    workload: str, expected: dict[str, Any]
) -> None:
    assert described(task(workload)) == expected


def test_one_in_five_digits_of_each_class_is_held_out_and_none_is_trained_on() -> None:
    data = handwriting.load(read_config([], {}))
    (images, labels), (held_images, held_labels) = data.train.tensors, data.test.tensors
    for digit in range(10):
        held, trained = int((held_labels == digit).sum()), int((labels == digit).sum())
        assert held == -(-(held + trained) // 5)
    assert (images.shape[1:], float(images.min()), float(images.max())) == ((1, 8, 8), -1.0, 1.0)
    assert held_images.shape[1:] == (1, 8, 8)
    assert torch.equal(held_labels[:10].sort().values, torch.arange(10))
    assert labels.dtype == torch.int64


def test_images_of_mnist_are_shifted_and_scaled_as_everybody_does() -> None:
    images = torch.tensor([[[0, 255]]], dtype=torch.uint8)
    (pixels, labels) = handwriting._normalised(images, torch.tensor([7])).tensors
    assert pixels.shape == (1, 1, 1, 2)
    assert pixels.flatten().tolist() == pytest.approx([-0.1307 / 0.3081, (1 - 0.1307) / 0.3081])
    assert labels.tolist() == [7]


def test_mnist_without_a_directory_names_the_flags() -> None:
    with pytest.raises(ConfigError, match=r"--data mnist needs --data-dir, .* --download puts them there"):
        task("mlp", "--data", "mnist")


def test_digits_without_scikit_learn_are_told_with_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handwriting.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match="pip install scikit-learn"):
        task("mlp")


@pytest.mark.parametrize("side", [8, 28])
def test_a_convnet_fits_images_of_either_size(side: int) -> None:
    assert ConvNet(side).eval()(torch.zeros(2, 1, side, side)).shape == (2, 10)


def test_what_is_random_is_the_seeds_own_and_the_same_in_each_process() -> None:
    def numbers(workload: str, seed: int) -> Tensor:
        data: Any = task(workload, "--seed", str(seed)).train_data()
        return torch.stack([data[index][0] for index in range(len(data))])

    for workload in ("random", "layers"):
        first, again, other = numbers(workload, 0), numbers(workload, 0), numbers(workload, 1)
        assert torch.equal(first, again)
        assert not torch.equal(first, other)
    assert 0 <= numbers("layers", 0).min() <= numbers("layers", 0).max() <= 1


def test_the_layers_print_each_batch_and_give_what_no_number_below_zero_is_in(
    capsys: pytest.CaptureFixture[str],
) -> None:
    layers = task("layers")
    model = layers.model()
    for parameter in model.parameters():
        nn.init.eye_(parameter)
    output = model(torch.tensor([[1.0, -2.0, 3.0]])).detach()
    assert output.tolist() == [[1.0, 0.0, 3.0]]
    assert capsys.readouterr().out == "forward batchsize is: 1\n"
    assert layers.predictions(output) is output
    assert float(layers.loss(output, torch.zeros(1, 3))) == pytest.approx(10 / 3)


def test_the_random_task_learns_the_first_numbers_and_prints_both_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    random = task("random")
    output = random.model()(torch.zeros(3, 5))
    target = torch.tensor([[1.0, 2.0, 9.0, 9.0, 9.0]] * 3)
    assert float(random.loss(torch.zeros(3, 2), target)) == pytest.approx(2.5)
    assert random.predictions(output) is output
    assert capsys.readouterr().out.splitlines() == [
        "  In Model: input size torch.Size([3, 5]) output size torch.Size([3, 2])",
        "Outside: input size torch.Size([3, 5]) output_size torch.Size([3, 2])",
    ]


def test_a_workload_that_cannot_be_is_one_clear_error() -> None:
    for workload, said in {
        "convnett": "must be convnet, mlp, random, imagenet, layers or MODULE:ATTRIBUTE",
        "nowhere:Task": "there is no module nowhere in ",
        "math:nothing": "has no attribute nothing",
        "string:digits": "has a value that is not callable as attribute digits",
        "operator:truth": "makes an instance of bool: it must be a subclass of ddpjob_trainer.task.Task",
    }.items():
        with pytest.raises(ConfigError, match=said):
            task(workload)
    assert list(BUILT_IN) == ["convnet", "mlp", "random", "imagenet", "layers"]


class WithoutData(Task):
    def model(self) -> nn.Module:
        return nn.Linear(1, 1)


@pytest.mark.parametrize(
    ("output", "target", "counted"),
    [
        (torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]), torch.tensor([1, 1, 1]), 2),
        (torch.tensor([[0.0, 1.0]]), torch.tensor([[1, 0]]), None),
        (torch.tensor([[0.0, 1.0]]), None, None),
        (torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1]), None),
        ("words", torch.tensor([0]), None),
    ],
)
def test_a_task_counts_how_often_the_likeliest_class_is_right_and_nothing_without_classes(
    output: Any, target: Any, counted: int | None
) -> None:
    sums = WithoutData(read_config([], {})).metrics(output, target)
    assert {name: int(sum_) for name, sum_ in sums.items()} == ({} if counted is None else {"accuracy": counted})


def test_a_task_without_data_is_told_what_it_needs() -> None:
    with pytest.raises(ConfigError, match=r"^WithoutData has no data: define train_data or train_loader$"):
        WithoutData(read_config([], {})).train_data()


def test_a_task_is_found_in_the_working_directory_and_what_it_lacks_is_its_own_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    (tmp_path / "of_mine.py").write_text(f"from {__name__} import WithoutData\n")
    (tmp_path / "lacking.py").write_text("import none_such_is_installed\n")
    assert type(task("of_mine:WithoutData")).__name__ == "WithoutData"
    assert sys.path.count(str(tmp_path)) == 1
    with pytest.raises(ModuleNotFoundError, match="none_such_is_installed"):
        task("lacking:Task")
    assert sys.path.count(str(tmp_path)) == 1
