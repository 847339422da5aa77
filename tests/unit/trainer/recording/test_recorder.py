"""What is recorded, over several starts of a run, and where it cannot be."""

import json
import math
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.recording import event_file
from ddpjob_rank.recording.event import Event
from ddpjob_rank.recording.json_lines import JsonLines
from ddpjob_trainer.recording import recorder as module
from ddpjob_trainer.recording.recorder import RANKS, Recorder, by_rank

from tests.support.waiting import patience


def lines(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


@contextmanager
def a_start(directory: Path, attempt: int = 1, step: int = 0, **facts: Any) -> Iterator[Recorder]:
    recorder = Recorder(directory, attempt)
    recorder.begin(step, facts)
    yield recorder
    recorder.close()


def test_each_event_is_a_line_with_its_time_its_attempt_and_its_step(tmp_path: Path) -> None:
    with a_start(tmp_path / "new" / "metrics", attempt=3, step=20, world_size=2) as recorder:
        recorder.add("progress", 30, loss=0.5, learning_rate=None)
    started, progress = lines(tmp_path / "new" / "metrics")
    assert started.pop("time") <= progress.pop("time")
    assert started == {"event": "started", "attempt": 3, "step": 20, "world_size": 2}
    assert progress == {"event": "progress", "attempt": 3, "step": 30, "loss": 0.5}


def test_a_metric_named_as_what_each_line_has_does_not_hide_it(tmp_path: Path) -> None:
    with a_start(tmp_path) as recorder:
        recorder.add("evaluated", 7, time=9.5, attempt=9, accuracy=0.5)
    line = lines(tmp_path)[-1]
    assert (line["attempt"], line["step"], line["accuracy"]) == (1, 7, 0.5)
    assert line["time"].endswith("Z")


def test_a_loss_that_is_no_number_makes_no_line_that_is_no_json(tmp_path: Path) -> None:
    with a_start(tmp_path) as recorder:
        recorder.add("progress", 1, loss=math.nan, seconds={"data": -math.inf})
    assert (lines(tmp_path)[-1]["loss"], lines(tmp_path)[-1]["seconds"]["data"]) == ("NaN", "-Infinity")


def test_a_line_that_a_dying_writer_left_open_spoils_only_itself(tmp_path: Path) -> None:
    with a_start(tmp_path) as recorder:
        recorder.add("progress", 1, loss=1.0)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"time":"2026-01-01T00:00:00.000Z","event":"prog')
    with a_start(tmp_path, attempt=2, step=1) as recorder:
        recorder.add("progress", 2, loss=0.5)
    written = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["event"] for line in (*written[:2], *written[3:])] == ["started", "progress"] * 2


def test_without_a_directory_nothing_is_recorded() -> None:
    recorder = Recorder(None, 1)
    recorder.begin(0, {})
    recorder.add("progress", 1, loss=1.0)


def test_a_directory_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"/file/metrics cannot be written: Not a directory; name another one with"):
        Recorder(tmp_path / "file" / "metrics", 1).begin(0, {})


@pytest.mark.parametrize("make", [lambda path: path.symlink_to(path.with_name("theirs")), os.mkfifo])
def test_nothing_is_written_to_where_a_link_or_a_pipe_leads(tmp_path: Path, make: Callable[[Path], None]) -> None:
    (tmp_path / "theirs").touch()
    make(tmp_path / "metrics.jsonl")
    with pytest.raises(ConfigError, match=r"cannot be written: metrics\.jsonl is not a regular file; name another"):
        Recorder(tmp_path, 1).begin(0, {})
    assert (tmp_path / "theirs").read_text() == ""


def test_training_goes_on_without_a_file_that_cannot_be_written_any_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with a_start(tmp_path) as recorder:
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "metrics.jsonl").stat().st_size, before[1]))
            for step in (1, 2):
                recorder.add("progress", step, loss=1.0)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    warned = capsys.readouterr().err
    assert warned.count("metrics.jsonl is no longer written: File too large. Training goes on without it") == 1
    assert lines(tmp_path)[-1]["event"] == "started"


def test_training_goes_on_while_storage_hangs_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hangs, write = threading.Event(), JsonLines.write

    def wait_and_write(file: JsonLines, event: Event) -> None:
        if event.word == "progress":
            hangs.wait()
        write(file, event)

    monkeypatch.setattr(JsonLines, "write", wait_and_write)
    monkeypatch.setattr(event_file, "WARNING_SECONDS", 0.0)
    with a_start(tmp_path) as recorder:
        began = time.monotonic()
        for step in range(1, 1001):
            recorder.add("progress", step, loss=1.0)
        assert time.monotonic() - began < patience(2.0), "it waits once, and not for each"
        hangs.set()
    assert [line["step"] for line in lines(tmp_path)] == list(range(1001))
    assert capsys.readouterr().err.count("training does not wait for it") == 1


def test_what_cannot_be_written_in_the_end_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(event_file, "MOST", 5)
    monkeypatch.setattr(module, "CLOSING_SECONDS", 0.1)
    hangs = threading.Event()
    with a_start(tmp_path) as recorder:
        monkeypatch.setattr(JsonLines, "write", lambda *_: hangs.wait())
        for step in range(1, 11):
            recorder.add("progress", step, loss=1.0)
    hangs.set()
    assert "10 events of the metrics could not be written in time" in capsys.readouterr().err


def test_of_many_ranks_some_are_recorded_from_the_fastest_to_the_slowest() -> None:
    assert by_rank([0.2, 0.0, 0.1]) == {"0": 0.2, "2": 0.1}
    many = by_rank([1.0 + rank for rank in range(1000)])
    assert len(many) == RANKS
    assert {"0", "999"} <= many.keys()
