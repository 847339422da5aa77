"""What a supervisor records of any program's progress: which points, for how many lines, and where."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from ddpjob_rank.recording.event import Event
from ddpjob_supervisor.page.curve import NAME, Curve, directory_of, recording
from ddpjob_supervisor.page.progress import Progress


@pytest.fixture
def kept() -> list[Event]:
    return []


@pytest.fixture
def curve(kept: list[Event]) -> Curve:
    return Curve(kept.append)


def points(kept: list[Event]) -> list[tuple[str, int, int]]:
    return [(event.word, event.attempt, event.step) for event in kept]


def see(curve: Curve, attempt: int, step: int, at: float, **values: Any) -> None:
    curve.note(attempt, Progress(step=step, last_step_time=at, **values), at)


def test_a_point_has_what_was_told_and_when_the_step_was_finished(curve: Curve, kept: list[Event]) -> None:
    told = Progress(7, epoch=2, total_steps=30, loss=0.5, last_step_time=99.5, metrics={"accuracy": 0.75})
    curve.note(1, told, now=100)
    started, point = kept
    assert (started.word, started.step, started.values) == ("started", 0, {"seen": True, "counted": False})
    assert (point.time, point.step) == (99.5, 7)
    assert point.values == {"epoch": 2, "total_steps": 30, "loss": 0.5, "metrics": {"accuracy": 0.75}}


def test_a_step_whose_time_is_unknown_has_the_time_at_which_it_was_heard(curve: Curve, kept: list[Event]) -> None:
    curve.note(1, Progress(7), now=100)
    assert kept[-1].time == 100


def test_each_start_has_what_the_program_runs_with(kept: list[Event]) -> None:
    curve = Curve(kept.append, {"versions": {"torch": "2.9"}})
    see(curve, 1, 1, 0.0)
    see(curve, 2, 1, 5.0)
    started = [event.values for event in kept if event.word == "started"]
    assert started == [{"versions": {"torch": "2.9"}, "seen": True, "counted": False}] * 2


def test_there_is_a_point_in_a_second_and_the_last_one_of_each_attempt(curve: Curve, kept: list[Event]) -> None:
    for step, at in ((1, 0.0), (2, 0.5), (3, 1.0), (4, 1.9)):
        see(curve, 1, step, at)
    see(curve, 2, 3, 5.0)
    curve.finish(6.0)
    first = [("started", 1, 0), ("progress", 1, 1), ("progress", 1, 3), ("progress", 1, 4)]
    assert points(kept) == [*first, ("started", 2, 2), ("progress", 2, 3), ("finished", 2, 3)]


def test_what_is_told_after_a_step_belongs_to_it(curve: Curve, kept: list[Event]) -> None:
    see(curve, 1, 5, 0.0)
    see(curve, 1, 5, 0.0, metrics={"accuracy": 0.5})
    curve.flush()
    assert [event.values.get("metrics") for event in kept if event.step == 5] == [None, {"accuracy": 0.5}]


def test_a_program_that_counts_anew_is_followed(curve: Curve, kept: list[Event]) -> None:
    see(curve, 1, 5, 0.0)
    see(curve, 1, 1, 0.5)
    assert points(kept)[1:] == [("progress", 1, 5), ("progress", 1, 1)]


def test_an_attempt_whose_steps_are_counted_anew_says_so(curve: Curve, kept: list[Event]) -> None:
    see(curve, 1, 9, 0.0)
    see(curve, 2, 1, 5.0, anew=True)
    see(curve, 3, 12, 9.0, first=10)
    begun = [event for event in kept if event.word == "started"]
    assert [(event.step, event.values["counted"]) for event in begun] == [(0, False), (0, True), (9, False)]


def test_a_month_of_steps_is_some_thousands_of_points(curve: Curve, kept: list[Event]) -> None:
    for second in range(1, 30 * 86400):
        if second > 2000 and second % 100:
            continue
        see(curve, 1, second, float(second))
    assert 2000 < len(kept) < 10_000


@pytest.mark.parametrize(
    ("env", "place"),
    [
        ({}, None),
        ({"DDPJOB_CHECKPOINT_DIR": "/checkpoints"}, "/checkpoints/metrics"),
        ({"DDPJOB_CHECKPOINT_DIR": "s3://bucket/checkpoints"}, None),
        ({"DDPJOB_CHECKPOINT_DIR": "/checkpoints", "DDPJOB_RUN_DIR": "/run"}, "/run/metrics"),
    ],
)
def test_it_is_kept_where_it_outlives_the_pod(env: dict[str, str], place: str | None) -> None:
    assert directory_of(env) == (place and Path(place))


def test_it_is_added_to_a_file_line_by_line(tmp_path: Path) -> None:
    for attempt in (1, 2):
        with recording(tmp_path / "new") as curve:
            see(curve, attempt, 1, 0.0, loss=math.nan)
    lines = [json.loads(line) for line in (tmp_path / "new" / NAME).read_text().splitlines()]
    assert [(line["event"], line["attempt"], line.get("loss")) for line in lines] == [
        ("started", 1, None),
        ("progress", 1, "NaN"),
        ("started", 2, None),
        ("progress", 2, "NaN"),
    ]


def test_where_it_cannot_be_written_training_goes_on(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "metrics").write_text("")
    with recording(tmp_path / "metrics") as curve:
        see(curve, 1, 1, 0.0)
    assert "progress.jsonl is no longer written: File exists. Training goes on without it" in capfd.readouterr().err
    with recording(None) as nowhere:
        see(nowhere, 1, 1, 0.0)
