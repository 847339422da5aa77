"""A whole run of the trainer within this process: what it trains, saves, says, and goes on with."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import Mock

import pytest
import torch
from ddpjob_rank.errors import ConfigError, DivergedError
from ddpjob_rank.reporting import group_agreement, request
from ddpjob_rank.stopping import StoppedOnRequest, StopRequest
from ddpjob_rank.world import World
from ddpjob_trainer.config import TrainConfig, read_config
from ddpjob_trainer.inference import commands
from ddpjob_trainer.recording.position import Position
from ddpjob_trainer.task import Task
from ddpjob_trainer.train import train
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from tests.training.states import state, tensors

STEPS = 5
"""Of an epoch."""


class Line(Task):
    """A line through twenty points, of which the last four are held out; dropout draws in each step."""

    epochs = 2
    batch_size = 3
    lr = 0.125
    momentum = 0.5
    stops_after = math.inf
    stop: ClassVar = StopRequest()
    seen: ClassVar[list[Tensor]] = []

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(1, 2), nn.BatchNorm1d(2), nn.Dropout(0.25), nn.Linear(2, 1))

    def train_data(self) -> TensorDataset:
        x = torch.linspace(-1, 1, 20)[:16].unsqueeze(1)
        return TensorDataset(x, 2 * x + 1)

    def test_data(self) -> TensorDataset:
        x = torch.linspace(-1, 1, 20)[16:].unsqueeze(1)
        return TensorDataset(x, 2 * x + 1)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            self.seen.append(target)
            if len(self.seen) == self.stops_after:
                self.stop._act(15)
        return nn.functional.mse_loss(output, target)

    def metrics(self, output: Tensor, target: Tensor) -> dict[str, Tensor]:
        return {"distance": (output - target).abs().sum()}


class Stopped(Line):
    """Is told to stop in its seventh step."""

    stops_after = 7


class StoppedInEvaluation(Line):
    """Is told to stop as it evaluates for the first time."""

    def metrics(self, output: Tensor, target: Tensor) -> dict[str, Tensor]:
        if not self.stop.made:
            self.stop._act(15)
        return super().metrics(output, target)


class Diverging(Line):
    """The loss of its fourth step is no number."""

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        loss = super().loss(output, target)
        return loss * math.nan if len(self.seen) == 4 and torch.is_grad_enabled() else loss


class OfItsOwn(Line):
    """Makes four batches in an epoch, and does not say how many."""

    def train_loader(self, rank: int, world_size: int) -> Any:  # noqa: ARG002  (the interface has it)
        class Batches:
            def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
                return ((torch.full((3, 1), float(n)), torch.full((3, 1), 2.0 * n)) for n in range(4))

        return Batches()


class Broken(Line):
    """Has met two broken samples."""

    def broken_samples(self, world: World) -> int:
        assert world == World()
        return 2


pytestmark = pytest.mark.usefixtures("no_training")


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """As many as before."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def config(task: type[Task], directory: Path | None, *flags: object) -> TrainConfig:
    where = {} if directory is None else {"DDPJOB_CHECKPOINT_DIR": str(directory)}
    words = ["--workload", f"{__name__}:{task.__name__}", "--log-every", "5", *map(str, flags)]
    return read_config(words, where)


def trained(task: type[Task], directory: Path | None, *flags: object) -> Position:
    """Where a run comes to that begins with a request to stop of its own."""
    Line.seen.clear()
    Line.stop = StopRequest()
    request._asked = request._noticed = False
    group_agreement._agreements.pop("training", None)
    position = Position()
    train(config(task, directory, *flags), World(), position, Line.stop)
    return position


def saved(directory: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("step-")) for path in directory.glob("step-*"))


def recorded(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def same(ours: Any, theirs: Any) -> bool:
    one, other = tensors(ours), tensors(theirs)
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_it_trains_all_epochs_evaluates_after_each_and_saves_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    position = trained(Line, tmp_path, "--log-dir", tmp_path / "log")
    assert (position.step, position.epoch, position.samples) == (2 * STEPS, 2, 3 * STEPS)
    assert len(Line.seen) == 2 * STEPS
    assert len(set(torch.cat(Line.seen[:STEPS]).flatten().tolist())) == 3 * STEPS
    course = ["progress", "progress", "evaluated", "progress", "evaluated", "finished"]
    words = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert [word for word in words if word != "saved"] == ["a", *course], "a world of one"
    assert saved(tmp_path)[-1] == 2 * STEPS
    started, *events = recorded(tmp_path / "log")
    assert [event["event"] for event in events if event["event"] not in {"timed", "saved"}] == course
    assert [event["step"] for event in events if event["event"] == "saved"][-1] == 2 * STEPS
    assert (started["total_steps"], started["epochs"]) == (2 * STEPS, 2)


@pytest.mark.parametrize(
    ("step", "how"),
    [
        (3, ["--model-ema-decay", 0.5, "--lr-scheduler", "steplr", "--lr-step-size", 1, "--clip-grad-norm", 0.1]),
        (STEPS, []),
        (6, ["--batch-size", 2, "--gradient-accumulation-steps", 2, "--precision", "bf16"]),
    ],
    ids=["averaged and clipped", "between two epochs", "in parts"],
)
def test_a_run_that_goes_on_comes_to_the_very_bits_of_one_that_was_left_alone(
    tmp_path: Path, step: int, how: list[object]
) -> None:
    end = trained(Line, tmp_path / "calm", *how)
    calm = list(Line.seen)
    trained(Line, tmp_path / "resumed", *how, "--max-steps", step, "--epochs", 2)
    first = list(Line.seen)
    assert trained(Line, tmp_path / "resumed", *how) == end
    assert [*map(Tensor.tolist, [*first, *Line.seen])] == [*map(Tensor.tolist, calm)]
    ours, theirs = state(tmp_path / "resumed"), state(tmp_path / "calm")
    for part in ("model", "optimizer", "average", "ranks"):
        assert same(ours.get(part), theirs.get(part)), part


def test_a_run_that_is_complete_says_so_and_trains_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(Line, tmp_path)
    capsys.readouterr()
    position = trained(Line, tmp_path)
    out = capsys.readouterr().out
    assert "complete: all 10 steps have been trained before\n" in out
    assert "finished step=10" in out
    assert (Line.seen, position.step) == ([], 10)


def test_a_run_that_is_told_to_stop_finishes_its_step_and_saves_it(tmp_path: Path) -> None:
    with pytest.raises(StoppedOnRequest, match=r"^saved step 7, stopped on request$"):
        trained(Stopped, tmp_path)
    assert saved(tmp_path)[-1] == 7
    with pytest.raises(
        StoppedOnRequest, match=r"^stopped on request after step 7; without --checkpoint-dir nothing "
    ):
        trained(Stopped, None)
    assert trained(Line, tmp_path, "--workload", f"{__name__}:Line").step == 10
    assert len(Line.seen) == 3


def test_an_evaluation_that_is_told_to_stop_is_repeated_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--batch-size", "3"]
    with pytest.raises(StoppedOnRequest, match=r"^saved step 5, stopped on request$"):
        trained(StoppedInEvaluation, tmp_path, *flags)
    assert saved(tmp_path)[-1] == STEPS
    assert "evaluated" not in capsys.readouterr().out
    assert trained(Line, tmp_path, *flags).step == 10
    assert capsys.readouterr().out.count("evaluated") == 2, "the first once more"


def test_a_run_that_has_diverged_saves_nothing_of_it_and_records_why(tmp_path: Path) -> None:
    flags = ["--checkpoint-every-steps", 1, "--checkpoint-keep", 99, "--log-dir", tmp_path / "log"]
    with pytest.raises(DivergedError, match="the loss of step 4 is not a finite number on rank 0"):
        trained(Diverging, tmp_path, *flags)
    assert saved(tmp_path) == [1, 2, 3]
    (ended,) = (event for event in recorded(tmp_path / "log") if event["event"] == "ended")
    assert (ended["error"], ended["step"]) == ("DivergedError", 4)
    assert trained(Diverging, tmp_path / "ignored", *flags, "--on-divergence", "ignore").step == 10


def test_a_step_that_is_left_out_is_told_and_the_run_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trained(Diverging, tmp_path, "--on-divergence", "skip").step == 10
    assert "step 4 is left out" in capsys.readouterr().err
    assert all(value.isfinite().all() for value in tensors(state(tmp_path)["model"]).values())


def test_epochs_of_unknown_length_are_counted_as_they_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    position = trained(OfItsOwn, tmp_path, "--max-steps", 10, "--checkpoint-every-steps", 4, "--checkpoint-keep", 9)
    assert (position.step, position.epoch, position.samples) == (10, 3, 6)
    assert saved(tmp_path) == [4, 8, 10]
    assert capsys.readouterr().out.count("evaluated") == 3
    with pytest.raises(ConfigError, match="set the number of steps with --max-steps"):
        trained(OfItsOwn, None)


def test_broken_samples_are_told_after_each_epoch(capsys: pytest.CaptureFixture[str]) -> None:
    trained(Broken, None)
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("skipped")] == [
        "skipped epoch=1/2 broken=2",
        "skipped epoch=2/2 broken=2",
    ]


@pytest.mark.parametrize(
    ("flags", "variable", "local", "threads"),
    [
        ([], None, 1, 4),
        ([], None, 2, 2),
        ([], None, 9, 1),
        (["--threads", 3], None, 2, 3),
        (["--threads", 3], "5", 2, 3),
        ([], "5", 2, 4),
    ],
)
def test_processes_of_a_node_share_its_cores_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, flags: list[object], variable: str | None, local: int, threads: int
) -> None:
    from ddpjob_trainer.train import _set_threads  # noqa: PLC0415

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    torch.set_num_threads(4)
    if variable:
        monkeypatch.setenv("OMP_NUM_THREADS", variable)
    _set_threads(config(Line, None, *flags), World(local_world_size=local, world_size=local))
    assert torch.get_num_threads() == threads


def test_what_it_has_trained_can_be_asked_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trained(Line, tmp_path / "saved")
    told = capsys.readouterr().out.splitlines()[-1]
    task = ["--workload", f"{__name__}:Line"]
    commands.run(["predict", str(tmp_path / "saved"), *task])
    *predictions, evaluated = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in predictions] == [["prediction", f"sample={index}"] for index in range(4)]
    assert f"distance={dict(word.split('=') for word in told.split()[1:])['distance']}" in evaluated
    assert all(line.split()[3].startswith("target=[") for line in predictions)
    commands.run(["export", str(tmp_path / "saved"), "--output", str(tmp_path / "model.pt"), *task])
    assert f"exported step=10 checkpoint={tmp_path}/saved/step-00000010 format=state-dict" in capsys.readouterr().out
    weights = torch.load(tmp_path / "model.pt", weights_only=True)
    assert same(weights, state(tmp_path / "saved")["model"])
    with pytest.raises(ConfigError, match="cannot be written: No such file or directory"):
        commands.run(["export", str(tmp_path / "saved"), "--output", str(tmp_path / "none" / "model.pt"), *task])


def test_a_model_is_exported_as_a_program_for_any_batch_size_if_pytorch_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained(Line, tmp_path / "saved")
    words = ["export", str(tmp_path / "saved"), "-o", str(tmp_path / "model.pt2"), "--workload", f"{__name__}:Line"]
    asked: list[Any] = []

    def export(_: nn.Module, batch: tuple[Tensor], *, dynamic_shapes: Any) -> str:
        asked.extend((batch[0].shape[0], dynamic_shapes[batch[0]]))
        return "a program"

    monkeypatch.setattr(torch.export, "export", export)
    monkeypatch.setattr(torch.export, "save", lambda program, sink: sink.write(program.encode()))
    commands.run([*words, "--format", "torch-export"])
    assert (tmp_path / "model.pt2").read_text() == "a program"
    assert asked == [2, {0: torch.export.Dim.DYNAMIC}]
    monkeypatch.setattr(torch.export, "export", Mock(side_effect=RuntimeError("a branch on data\nat line 7")))
    with pytest.raises(ConfigError, match=r"model \(RuntimeError: a branch on data\): use --format state-dict$"):
        commands.run([*words, "--format", "torch-export"])
    with pytest.raises(ConfigError, match="invalid choice: 'onnx'"):
        commands.run([*words, "--format", "onnx"])


def test_a_checkpoint_chooses_no_code_and_fits_its_own_task(tmp_path: Path) -> None:
    trained(Line, tmp_path)
    with pytest.raises(ConfigError, match="a checkpoint may not choose which code runs"):
        commands.run(["predict", str(tmp_path)])
    with pytest.raises(ConfigError, match="is from another model than --workload random builds"):
        commands.run(["predict", str(tmp_path), "--workload", "random"])
    assert [commands.is_command(words) for words in ([], ["export"], ["predict", "x"], ["--lr", "1"])] == [
        *(False, True, True, False),
    ]
