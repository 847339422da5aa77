"""Trained models in use: exported and asked, in one process without a process group."""

import json
import re
from pathlib import Path

import pytest
import torch
from ddpjob_examples.linear import Model

from tests.training import ranks
from tests.training.runs import Runs

NO_TRITON = re.compile(r"^W\d{4} .* torch/utils/flop_counter\.py:\d+\] triton not found.*\n", re.MULTILINE)
"""What torch 2.11 writes when it is to export a model and has no triton."""

loads_programs = pytest.mark.filterwarnings("ignore:The given buffer is not writable:UserWarning")  # Of torch 2.11.


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a training with two processes."""
    directory = tmp_path_factory.mktemp("trained") / "saved"
    run = ranks.start(directory.parent, 2, "--workload", "random", "--epochs", 3, "--checkpoint-dir", directory)
    assert run.end() == [0, 0], run.story()
    return directory


def test_weights_are_exported_by_the_model_s_own_names(runs: Runs, checkpoints: Path, tmp_path: Path) -> None:
    run = runs.command("export", checkpoints, "--output", tmp_path / "model.pt")
    assert run.value("exported", "step") == "3"
    weights = torch.load(tmp_path / "model.pt", weights_only=True)
    assert set(weights) == {"fc.weight", "fc.bias"}
    Model().load_state_dict(weights)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@loads_programs
def test_a_program_is_exported_that_takes_batches_of_any_size(runs: Runs, checkpoints: Path, tmp_path: Path) -> None:
    runs.command("export", checkpoints, "--output", tmp_path / "model.pt")
    run = runs.command("export", checkpoints, "-o", tmp_path / "model.pt2", "--format", "torch-export")
    assert NO_TRITON.sub("", run.errors()) == ""
    model = Model()
    model.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    program = torch.export.load(tmp_path / "model.pt2").module()
    for size in (1, 7):
        numbers = torch.randn(size, 5)
        assert torch.allclose(program(numbers), model(numbers))


@pytest.mark.parametrize("how", [[], ["--model-ema-decay", 0.9, "--precision", "bf16"]], ids=["plain", "averaged"])
def test_what_a_checkpoint_predicts_is_as_good_as_its_training_said(
    runs: Runs, tmp_path: Path, how: list[object]
) -> None:
    trained = runs.train(2, "--epochs", 2, "--checkpoint-dir", tmp_path / "saved", *how)
    asked = runs.command("predict", tmp_path / "saved")
    for key in ("accuracy", "loss", "samples"):
        assert asked.value("evaluated", key) == trained.value("evaluated", key)
    predictions = [
        dict(token.split("=") for token in line.split()[1:])
        for line in asked.output().splitlines()
        if line.startswith("prediction ")
    ]
    assert [int(one["sample"]) for one in predictions] == list(range(len(predictions)))
    right = sum(one["output"] == one["target"] for one in predictions)
    assert f"{right / len(predictions):.4f}" == asked.value("evaluated", "accuracy")


def test_without_samples_held_out_those_of_the_training_are_asked_and_it_says_so(
    runs: Runs, checkpoints: Path
) -> None:
    run = runs.command("predict", checkpoints)
    assert "--workload random has no held-out samples: these are from its training set" in run.output()
    assert len(json.loads(run.value("prediction", "output"))) == 2


def test_of_a_model_without_classes_the_very_outputs_are_told(runs: Runs, tmp_path: Path) -> None:
    task = ("--workload", "tests.training.tasks:FlatLine")
    trained = runs.train(1, *task, "--checkpoint-dir", tmp_path / "saved")
    asked = runs.command("predict", tmp_path / "saved", *task)
    assert asked.value("evaluated", "loss") == trained.value("evaluated", "loss")
    assert isinstance(json.loads(asked.value("prediction", "output")), float)
    assert "accuracy" not in trained.output() + asked.output()
    unasked = runs.command("predict", tmp_path / "saved", code=2)
    assert "a checkpoint may not choose which code runs" in unasked.errors()
    assert unasked.output() == ""


def test_a_task_that_does_not_say_what_its_outputs_mean_is_named_in_one_line(runs: Runs, tmp_path: Path) -> None:
    task = ("--workload", "tests.training.tasks:NamedLine")
    runs.train(1, *task, "--checkpoint-dir", tmp_path / "saved")
    run = runs.command("predict", tmp_path / "saved", *task, code=2)
    assert run.errors() == (
        "error: NamedLine.predictions gives a dict for 10 samples: it must be a tensor with a row for each of them\n"
    )


def test_one_checkpoint_of_several_can_be_named(runs: Runs, checkpoints: Path, tmp_path: Path) -> None:
    assert len(list(checkpoints.glob("step-*"))) == 3
    run = runs.command("export", checkpoints / "step-00000002", "--output", tmp_path / "model.pt")
    assert run.value("exported", "step") == "2"


def test_flags_win_over_those_of_the_training_also_where_the_two_exclude_each_other(
    runs: Runs, tmp_path: Path
) -> None:
    runs.train(2, "--workload", "random", "--global-batch-size", 30, "--checkpoint-dir", tmp_path / "saved")
    run = runs.command("predict", tmp_path / "saved", "--batch-size", 45)
    assert run.output().count("In Model: input size torch.Size([45, 5])") == 2


def test_a_training_whose_directory_the_job_named_is_known_by_its_flags(runs: Runs, tmp_path: Path) -> None:
    env = {"DDPJOB_CHECKPOINT_DIR": str(tmp_path / "saved")}
    runs.train(1, "--workload", "random", "--checkpoint-keep", 5, env=env)
    runs.command("predict", tmp_path / "saved")


def test_samples_that_are_held_out_by_lot_are_those_of_the_training(runs: Runs, tmp_path: Path) -> None:
    task = ("--workload", "tests.training.tasks:Drawn")
    trained = runs.train(1, *task, "--checkpoint-dir", tmp_path / "saved")
    asked = runs.command("predict", tmp_path / "saved", *task)
    assert asked.value("evaluated", "loss") == trained.value("evaluated", "loss")


def test_a_training_that_goes_on_is_not_disturbed(runs: Runs, checkpoints: Path, tmp_path: Path) -> None:
    (checkpoints / ".step-that-is-being-written").mkdir()
    runs.command("export", checkpoints, "--output", tmp_path / "model.pt")
    assert (checkpoints / ".step-that-is-being-written").is_dir()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["predict", "missing"], "missing has no checkpoints: No such file or directory"),
        (["export", "saved"], "the following arguments are required: --output"),
        (["predict"], "the following arguments are required: CHECKPOINT_DIR"),
        (
            ["export", "saved", "-o", "nowhere/model.pt"],
            "nowhere/model.pt cannot be written: No such file or directory",
        ),
        (["predict", "saved", "--workload", "layers"], "is from another model than --workload layers builds"),
        (["predict", "saved", "--dat-dir", "x"], "unrecognized arguments: --dat-dir x"),
    ],
)
def test_a_mistake_is_one_clear_error(
    runs: Runs, checkpoints: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    monkeypatch.chdir(checkpoints.parent)
    run = runs.command(*words, code=2)
    assert not list(run.directory.glob("*.report")), "that is of training, which may go on in the same pod"
    assert message in run.errors()
    assert run.errors().startswith("error: ")
    assert run.errors().count("\n") == 1


def test_help_is_given_at_once(runs: Runs) -> None:
    run = runs.command("predict", "--help")
    assert run.output().startswith("usage: ddpjob-train predict CHECKPOINT_DIR")
    assert "ddpjob-train export --help" in runs.command("--help").output()


@loads_programs
def test_a_task_that_brings_its_own_batches_is_exported_by_one_and_asked_only_of_samples_held_out(
    runs: Runs, tmp_path: Path
) -> None:
    task = ("--workload", "tests.training.traps:BringsItsOwn")
    runs.train(1, *task, "--checkpoint-dir", tmp_path / "saved")
    runs.command("export", tmp_path / "saved", *task, "-o", tmp_path / "model.pt2", "--format", "torch-export")
    assert torch.export.load(tmp_path / "model.pt2").module()(torch.zeros(5, 1)).shape == (5, 2)
    run = runs.command("predict", tmp_path / "saved", *task, code=2)
    assert "BringsItsOwn has no held-out samples: it needs test_data" in run.errors()


@pytest.mark.parametrize("form", ["state-dict", "torch-export"])
def test_a_disk_without_room_is_named_and_the_former_file_stays(
    runs: Runs, checkpoints: Path, tmp_path: Path, form: str
) -> None:
    (tmp_path / "model.pt").write_text("the former one")
    words = ("export", checkpoints, "-o", tmp_path / "model.pt", "--format", form)
    run = runs.start(1, *words, flags=(), file_limit=1000)
    assert run.end() == [2]
    assert NO_TRITON.sub("", run.errors()) == f"error: {tmp_path / 'model.pt'} cannot be written: File too large\n"
    assert [path.read_text() for path in tmp_path.glob("*.pt")] == ["the former one"]


@pytest.mark.parametrize("name", ["Undecided", "TakesPairs"])
def test_what_torch_cannot_export_is_refused_in_one_line(runs: Runs, tmp_path: Path, name: str) -> None:
    task = ("--workload", f"tests.training.traps:{name}")
    runs.train(1, *task, "--checkpoint-dir", tmp_path / "saved")
    run = runs.command(
        "export", tmp_path / "saved", *task, "-o", tmp_path / "model.pt2", "--format", "torch-export", code=2
    )
    assert run.errors().splitlines()[-1].startswith("error: torch.export cannot express this model")
    assert not (tmp_path / "model.pt2").exists()
