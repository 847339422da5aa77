"""What the callbacks of other libraries tell, called as the libraries call them. Those are not imported here."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from ddpjob_rank.reporting import hugging_face
from ddpjob_supervisor.watch.heartbeats import Heartbeats

from tests.unit.rank.told import a_rank, beat_of, told_at


@pytest.fixture
def heartbeats(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Heartbeats]:
    with a_rank(monkeypatch, tmp_path) as made:
        yield made


def integration(monkeypatch: pytest.MonkeyPatch, library: str, module: str, base: str) -> Any:
    """One of ours, beside a library that is no more than the class that ours extends."""
    parts = module.split(".")
    for count in range(1, len(parts) + 1):
        monkeypatch.setitem(sys.modules, ".".join(parts[:count]), ModuleType(parts[count - 1]))
    monkeypatch.setattr(sys.modules[module], base, type(base, (), {}), raising=False)
    ours = f"ddpjob.integrations.{library}"
    monkeypatch.delitem(sys.modules, ours, raising=False)
    made = importlib.import_module(ours)
    del sys.modules[ours]  # Not by monkeypatch, which would put it back after the test.
    return made


@pytest.fixture
def lightning(monkeypatch: pytest.MonkeyPatch) -> Any:
    return integration(monkeypatch, "lightning", "lightning.pytorch.callbacks", "Callback")


@pytest.fixture
def accelerate(monkeypatch: pytest.MonkeyPatch) -> Any:
    return integration(monkeypatch, "accelerate", "accelerate.tracking", "GeneralTracker")


class Loss:
    """A tensor, on the CPU or not."""

    def __init__(self, value: float, *, is_cpu: bool = True) -> None:
        self.value, self.is_cpu = value, is_cpu

    def item(self) -> float:
        return self.value


def trainer(step: int, total: float = 400) -> Any:
    return SimpleNamespace(global_step=step, estimated_stepping_batches=total, current_epoch=1, log_every_n_steps=50)


def test_lightnings_steps_epoch_and_loss_are_told(
    lightning: Any, heartbeats: Heartbeats, monkeypatch: pytest.MonkeyPatch
) -> None:
    resuming: Any = ModuleType(f"{lightning.__name__}_resuming")
    resuming.ResumeCallback = type("ResumeCallback", (), {})
    monkeypatch.setitem(sys.modules, resuming.__name__, resuming)
    callback, resumes = lightning.callbacks()
    assert isinstance(resumes, resuming.ResumeCallback)
    callback.on_train_start(trainer(0), None)
    callback.on_train_batch_end(trainer(0), None, None, None, 0)
    assert beat_of(heartbeats).step is None, "its gradients are still added up"
    callback.on_train_batch_end(trainer(120), None, {"loss": Loss(0.5)}, None, 0)
    told = beat_of(heartbeats)
    assert (told.step, told.total_steps, told.epoch, told.loss, told.reports) == (120, 400, 2, 0.5, True)


@pytest.mark.parametrize("loop", ["validation", "test", "predict"])
def test_lightnings_evaluations_are_told_and_that_they_go_on(
    lightning: Any, heartbeats: Heartbeats, loop: str
) -> None:
    callback = lightning.DDPJobCallback()
    callback.on_train_batch_end(trainer(120), None, {}, None, 0)
    getattr(callback, f"on_{loop}_start")(trainer(120), None)
    assert (beat_of(heartbeats).activity, beat_of(heartbeats).announces) == ("evaluation", True)
    at = told_at()
    getattr(callback, f"on_{loop}_batch_end")(trainer(120), None, None, [1], 0, 0)
    assert told_at() > at
    getattr(callback, f"on_{loop}_end")(trainer(120), None)
    assert beat_of(heartbeats).activity == "training"


@pytest.mark.parametrize(("step", "loss"), [(99, None), (100, 0.5)])
def test_lightnings_loss_on_a_gpu_is_read_where_its_loggers_read_theirs(
    lightning: Any, heartbeats: Heartbeats, step: int, loss: float | None
) -> None:
    lightning.DDPJobCallback().on_train_batch_end(trainer(step), None, Loss(0.5, is_cpu=False), None, 0)
    assert beat_of(heartbeats).loss == loss


@pytest.mark.parametrize("total", [float("inf"), -1])
def test_of_a_training_without_an_end_none_is_told(lightning: Any, heartbeats: Heartbeats, total: float) -> None:
    lightning.DDPJobCallback().on_train_start(trainer(0, total), None)
    assert beat_of(heartbeats).total_steps is None


def test_a_training_whose_steps_cannot_be_estimated_goes_on(lightning: Any) -> None:
    lightning.DDPJobCallback().on_train_start(object(), None)


def test_outside_a_job_lightning_gets_no_callback(lightning: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DDPJOB_HEARTBEAT", raising=False)
    assert lightning.callbacks() == []


def test_what_accelerate_logs_is_told(accelerate: Any, heartbeats: Heartbeats) -> None:
    tracker = accelerate.DDPJobTracker(total=400)
    assert not tracker.main_process_only, "each rank tells its own steps"
    assert not tracker.requires_logging_directory
    tracker.start()
    tracker.log({"loss": 0.5, "accuracy": 0.75, "epoch": 0, "step": 119, "note": "warm"}, step=120)
    told = beat_of(heartbeats)
    assert (told.step, told.total_steps, told.epoch, told.loss) == (120, 400, None, 0.5)
    assert told.metrics == {"accuracy": 0.75}
    tracker.log({"train_loss": 0.25})
    assert (beat_of(heartbeats).step, beat_of(heartbeats).loss) == (120, 0.25)


@pytest.fixture
def hugging_face_callback(heartbeats: Heartbeats, monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ARG001
    """What transformers makes of the one that it finds in its list; it answers to no event by itself."""
    library: Any = ModuleType(hugging_face.TRAINER)
    library.DEFAULT_CALLBACKS, library.TrainerCallback = [], type("TrainerCallback", (), {})
    monkeypatch.setitem(sys.modules, hugging_face.TRAINER, library)
    resuming: Any = ModuleType(hugging_face.LIBRARY)
    resuming.install = lambda trainer: setattr(trainer, "resumes", True)
    monkeypatch.setitem(sys.modules, hugging_face.LIBRARY, resuming)
    hugging_face.install()
    assert library.resumes
    (callback,) = library.DEFAULT_CALLBACKS
    assert issubclass(callback, library.TrainerCallback)
    return callback()


def at(step: int, epoch: float | None = None, total: int = 400) -> Any:
    return SimpleNamespace(global_step=step, max_steps=total, epoch=epoch)


@pytest.mark.parametrize("ended_by", ["on_evaluate", "on_predict"])
def test_hugging_faces_steps_epoch_loss_and_evaluations_are_told(
    hugging_face_callback: Any, heartbeats: Heartbeats, ended_by: str
) -> None:
    callback = hugging_face_callback
    callback.on_train_begin(None, at(0), None, model=None)
    callback.on_step_end(None, at(120, 1.2), None, model=None)
    callback.on_log(
        None, at(120), None, logs={"loss": 0.5, "grad_norm": 2.0, "epoch": 1.2, "note": "warm"}, model=None
    )
    told = beat_of(heartbeats)
    assert (told.step, told.total_steps, told.epoch, told.loss, told.reports) == (120, 400, 2, 0.5, True)
    assert told.metrics == {"grad_norm": 2.0}
    callback.on_prediction_step(None, at(120), None, eval_dataloader=None)
    assert (beat_of(heartbeats).activity, beat_of(heartbeats).announces) == ("evaluation", True)
    before = told_at()
    callback.on_prediction_step(None, at(120), None, eval_dataloader=None)
    assert told_at() > before
    getattr(callback, ended_by)(None, at(120), None, metrics={})
    assert beat_of(heartbeats).activity == "training"


@pytest.mark.parametrize(("done", "epoch"), [(0.01, 1), (1.0, 1), (1.0 + 1e-9, 1), (1.01, 2), (None, None)])
def test_hugging_faces_epochs_are_counted_from_1(
    hugging_face_callback: Any, heartbeats: Heartbeats, done: float | None, epoch: int | None
) -> None:
    hugging_face_callback.on_step_end(None, at(1, done, total=-1), None)
    assert beat_of(heartbeats).epoch == epoch


def test_a_release_of_transformers_without_a_list_of_callbacks_is_left_as_it_is(
    heartbeats: Heartbeats, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, hugging_face.TRAINER, ModuleType(hugging_face.TRAINER))
    hugging_face.install()
    assert heartbeats.read() == [None]


def test_outside_a_job_transformers_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DDPJOB_HEARTBEAT", raising=False)
    hugging_face.install()
    assert not [finder for finder in sys.meta_path if getattr(finder, "name", "") == hugging_face.TRAINER]
