"""What a run says, records and tells others of its steps, by a clock of the test's."""

import json
import os
import platform
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ddpjob_rank.reporting import report as reporting
from ddpjob_rank.world import World
from ddpjob_trainer.config import read_config
from ddpjob_trainer.recording.position import Position
from ddpjob_trainer.recording.progress_lines import ProgressLines
from ddpjob_trainer.recording.recorder import Recorder
from ddpjob_trainer.recording.reporter import Evaluation, Reporter
from ddpjob_trainer.recording.run_facts import PREFIXES, facts
from ddpjob_trainer.recording.step_times import StepTimes
from torch import nn


class Told:
    """A run of eight steps of 0.25 s, from the third on, with 12 samples in a step, of which 6 are this rank's."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, *, rank: int = 0, rate: Any = 0.5) -> None:
        self.now = 100.0
        self.reports: list[dict[str, Any]] = []
        self.noted: list[int] = []
        self._directory = directory
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(reporting, "report", lambda **values: self.reports.append(values))
        monkeypatch.setattr(reporting, "report_parts", lambda parts: self.reports.append({"parts": parts}))
        agreement: Any = SimpleNamespace(note=self.noted.append, noted={0: 400_000, 2: 700_000} if rank == 0 else {})
        self.position = Position(step=2, samples=24)
        optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=rate)
        self.reporter = Reporter(
            position=self.position,
            progress=ProgressLines(self.position, 3, 10, batch_size=6, log_every=4, rank=rank),
            recorder=Recorder(directory if rank == 0 else None, 1),
            times=StepTimes(nn.Linear(1, 1), torch.device("cpu")),
            agreement=agreement,
            world=World(rank=rank, world_size=3),
            optimizer=optimizer,
            global_batch=12,
        )
        self.reporter.recorder.begin(2, {})

    def step(self, loss: float | None) -> None:
        for part in ("data", "forward", "backward", "optimizer"):
            self.now += 0.0625
            self.reporter.times.lap(part)
        self.position.advance(12)
        self.reporter.step(None if loss is None else torch.tensor(loss))

    def lines(self, word: str) -> list[dict[str, Any]]:
        """What is recorded of such an event, but for what each line has."""
        self.reporter.close()
        lines = [json.loads(line) for line in (self._directory / "metrics.jsonl").read_text().splitlines()]
        return [
            {name: value for name, value in line.items() if name not in {"time", "event", "attempt"}}
            for line in lines
            if line["event"] == word
        ]


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Told:
    return Told(tmp_path, monkeypatch)


def test_a_line_has_the_mean_loss_the_pace_and_the_rest_of_the_time(
    told: Told, capsys: pytest.CaptureFixture[str]
) -> None:
    told.reporter.began()
    with told.reporter.training():
        for loss in (1.0, 3.0, None, 5.0, None, 2.0, None, None):
            told.step(loss)
    assert capsys.readouterr().out.splitlines() == [
        "progress epoch=1/3 step=3/10 loss=1.0000 samples_per_second=24 rank=0 eta_seconds=2",
        "progress epoch=1/3 step=4/10 loss=3.0000 samples_per_second=24 rank=0 eta_seconds=2",
        "progress epoch=1/3 step=8/10 loss=3.5000 samples_per_second=24 rank=0 eta_seconds=0",
        "progress epoch=1/3 step=10/10 samples_per_second=24 rank=0 eta_seconds=0",
    ]
    assert told.lines("progress") == [
        {"step": 3, "epoch": 1, "loss": 1.0, "learning_rate": 0.5, "samples_per_second": 48.0},
        {"step": 4, "epoch": 1, "loss": 3.0, "learning_rate": 0.5, "samples_per_second": 48.0},
        {"step": 8, "epoch": 1, "loss": 3.5, "learning_rate": 0.5, "samples_per_second": 48.0},
        {"step": 10, "epoch": 1, "learning_rate": 0.5, "samples_per_second": 48.0},
    ]


def test_its_supervisor_gets_each_step_with_the_last_loss_that_was_read(told: Told) -> None:
    told.reporter.began()
    told.reporter.begin("evaluation")
    with told.reporter.training():
        for loss in (1.0, 3.0, 7.0, None):
            told.step(loss)
    parts = dict.fromkeys(("data", "forward", "backward", "optimizer"), 0.0625)
    assert told.reports == [
        {"total": 10, "samples": 12},
        {"activity": "evaluation", "epoch": 1},
        {"activity": "training", "epoch": 1},
        {"step": 3, "loss": 1.0},
        {"step": 4, "loss": 3.0},
        {"step": 5, "loss": 3.0},
        {"step": 6, "loss": 3.0},
        {"parts": parts},
    ]
    assert told.position.activity == "training"
    assert told.noted == [250_000], "microseconds, for rank 0"
    assert told.lines("timed") == [
        {"step": 6, "seconds": parts, "rank_seconds": {"0": 0.4, "2": 0.7}},
    ]


def test_a_rate_that_must_be_read_from_a_device_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(tmp_path, monkeypatch, rate=torch.tensor(0.5))
    with told.reporter.training():
        told.step(1.0)
    assert "learning_rate" not in told.lines("progress")[0]


def test_the_end_has_the_pace_of_training_alone(told: Told, capsys: pytest.CaptureFixture[str]) -> None:
    told.reporter.began()
    for _ in range(2):
        with told.reporter.training():
            told.step(1.0)
            told.step(1.0)
        told.now += 1.5  # An evaluation.
    told.reporter.evaluated(Evaluation({"accuracy": 0.75}, 0.25, 100))
    told.reporter.skipped(3)
    told.position.next_epoch()
    told.reporter.finished(Evaluation({"accuracy": 0.5}, 0.125, 100))
    assert [line for line in capsys.readouterr().out.splitlines() if not line.startswith("progress")] == [
        "evaluated epoch=1/3 accuracy=0.7500 loss=0.2500 samples=100",
        "skipped epoch=1/3 broken=3",
        "finished step=6 accuracy=0.5000 samples_per_second=48 seconds=4.0",
    ]
    assert told.lines("evaluated") == [{"step": 6, "accuracy": 0.75, "epoch": 1, "loss": 0.25, "samples": 100}]
    assert told.lines("skipped") == [{"step": 6, "epoch": 1, "broken": 3}]
    assert told.lines("finished") == [{"step": 6, "samples_per_second": 48, "seconds": 4.0}]


def test_a_run_that_had_nothing_left_to_train_has_no_pace(told: Told, capsys: pytest.CaptureFixture[str]) -> None:
    told.reporter.began()
    told.reporter.finished(None)
    assert capsys.readouterr().out == "finished step=2 samples_per_second=0 seconds=0.0\n"


def test_only_rank_0_says_how_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Told(tmp_path, monkeypatch, rank=1)
    other.reporter.skipped(3)
    other.reporter.finished(None)
    assert capsys.readouterr().out == ""


def test_an_error_is_recorded_with_its_kind_and_its_words(told: Told) -> None:
    told.reporter.ended(ValueError("first\nlast"))
    assert told.lines("ended") == [{"step": 2, "error": "ValueError", "message": "last"}]


def test_a_position_is_counted_in_steps_epochs_and_samples_and_remembers_what_failed() -> None:
    position = Position()
    assert (position.step, position.epoch, position.samples) == (0, 1, 0)
    position.advance(8)
    position.advance(7)
    assert (position.step, position.samples) == (2, 15)
    position.next_epoch()
    assert (position.step, position.epoch, position.samples) == (2, 2, 0)
    assert (position.epoch_of(3), position.epoch_of(None)) == ("2/3", "2")
    with position.during("saving"):
        assert position.activity == "saving"
    assert position.activity == "starting"
    with pytest.raises(OSError, match="full"), position.during("saving"):
        raise OSError("full")
    assert position.activity == "saving"


def test_what_is_known_at_a_start_is_in_json_and_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(PREFIXES)]:
        monkeypatch.delenv(name)
    for name, value in {
        "DDPJOB_NAME": "digits",
        "OMP_NUM_THREADS": "2",
        "NCCL_DEBUG": "INFO",
        "AWS_SECRET_ACCESS_KEY": "s3cret",
        "MY_NCCL_KEY": "s3cret",
    }.items():
        monkeypatch.setenv(name, value)
    config = read_config(["--epochs", "3", "--lr", "0.5"], {"DDPJOB_UID": "one"})
    world = World(rank=1, world_size=4, local_world_size=2)
    found = json.loads(json.dumps(facts(config, world, torch.device("cpu"), total=7), default=str))
    assert {name: found[name] for name in ("job", "uid", "world_size", "local_world_size", "total", "threads")} == {
        "job": "digits",
        "uid": "one",
        "world_size": 4,
        "local_world_size": 2,
        "total": 7,
        "threads": torch.get_num_threads(),
    }
    assert found["environment"] == {"NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "2"}
    assert found["host"] == platform.node()
    assert found["versions"].keys() == {"python", "torch", "ddpjob"}
    assert (found["options"]["epochs"], found["options"]["lr"]) == (3, 0.5)
    assert "max_steps" not in found["options"], "what is not set is left out"
    assert found["device"]


def test_a_gpus_facts_are_its_name_and_the_versions_of_its_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU {device.index}")
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 27, 5))
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    found = facts(read_config([], {}), World(), torch.device("cuda", 3))
    assert found["device"] == "GPU 3"
    assert (found["versions"]["cuda"], found["versions"]["nccl"]) == ("13.0", "2.27.5")
