"""Reading what a trainer has recorded: which lines count where a run was started several times."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ddpjob_operator.local.record_files import read
from ddpjob_operator.report import find
from ddpjob_operator.view_model.records import DEEPEST, Record, Records, _bounded, _number

from tests.unit.report.lines import ZERO, line, write


def losses(recorded: Records) -> list[tuple[int, float | None]]:
    return [(entry.step, entry.number("loss")) for entry in recorded.of("progress")]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def test_of_steps_that_were_trained_again_the_later_start_counts(file: Path) -> None:
    write(
        file,
        line("started", 1, 0),
        *(line("progress", 1, step, loss=1.0) for step in (10, 20, 30, 40)),
        line("started", 2, 20),
        *(line("progress", 2, step, loss=2.0) for step in (30, 50)),
    )
    recorded = read(file)
    assert losses(recorded) == [(10, 1.0), (20, 1.0), (30, 2.0), (50, 2.0)]
    assert recorded.repeated_steps() == 20


def test_a_start_that_finished_no_step_has_repeated_none(file: Path) -> None:
    trained = [line("started", 1, 0), *(line("progress", 1, step, step) for step in (10, 20))]
    write(file, *trained, line("started", 2, 0, 30), line("ended", 2, 0, 31, error="no"))
    recorded = read(file)
    assert [entry.step for entry in recorded.of("progress")] == [10, 20]
    assert recorded.repeated_steps() == 0
    assert recorded.last_trained is recorded.starts[0]


def test_what_an_attempt_finished_counts_only_if_it_was_trained_in_it(file: Path) -> None:
    trained = [line("started", 1, 0), line("progress", 1, 20)]
    write(file, *trained, line("started", 2, 10, 30), line("started", 3, 10, 40), line("progress", 3, 50))
    assert read(file).repeated_steps({1: 25, 2: 25}) == 15


def test_a_start_from_further_back_takes_back_also_what_came_before_the_last_one(file: Path) -> None:
    write(
        file,
        line("started", 1, 0),
        line("progress", 1, 10, loss=1.0),
        line("progress", 1, 20, loss=1.0),
        line("started", 2, 20),
        line("progress", 2, 30, loss=2.0),
        line("started", 3, 10),
        line("progress", 3, 15, loss=3.0),
    )
    assert losses(read(file)) == [(10, 1.0), (15, 3.0)]


def test_an_attempt_that_was_cut_off_and_still_writes_does_not_count_as_the_later_one(file: Path) -> None:
    write(
        file,
        line("started", 1, 0),
        line("progress", 1, 10, loss=1.0),
        line("started", 2, 10),
        line("progress", 1, 20, loss=1.0),
        line("progress", 2, 20, loss=2.0),
        line("progress", 1, 30, loss=1.0),
    )
    assert losses(read(file)) == [(10, 1.0), (20, 2.0)]


def test_a_job_made_anew_that_counts_its_attempts_from_one_goes_on_in_the_same_file(file: Path) -> None:
    write(
        file,
        line("started", 1, 0),
        line("progress", 1, 10, loss=1.0),
        line("started", 1, 10),
        line("progress", 1, 20, loss=2.0),
    )
    assert losses(read(file)) == [(10, 1.0), (20, 2.0)]


@pytest.mark.parametrize(
    "torn",
    [
        '{"time":"2026-01-01T12:00:',
        "",
        "[]",
        '{"event":"progress"}',
        '{"time":7,"event":"x","attempt":1,"step":1}',
        "\x00",
    ],
)
def test_a_line_that_is_none_is_passed_over(file: Path, torn: str) -> None:
    write(file, line("started", 1, 0), torn, line("progress", 1, 10, loss=1.0), torn)
    assert losses(read(file)) == [(10, 1.0)]


def test_a_number_that_is_none_is_no_point_of_a_curve() -> None:
    entry = Record(
        ZERO, "progress", 1, 10, {"loss": "NaN", "accuracy": True, "pace": 3, "seconds": {"data": 1, "x": "NaN"}}
    )
    assert [entry.number(name) for name in ("loss", "accuracy", "pace", "missing")] == [None, None, 3.0, None]
    assert entry.numbers("seconds") == {"data": 1.0}
    assert entry.numbers("pace") == {}


def test_the_last_that_was_recorded_is_the_last_in_time(file: Path) -> None:
    write(file, line("started", 1, 0, at=0), line("finished", 1, 9, at=5), line("saved", 1, 9, at=4))
    last = read(file).last
    assert last
    assert last.event == "finished"
    assert Records().last is None


def test_what_a_supervisor_has_seen_counts_where_the_trainer_itself_has_recorded_nothing(tmp_path: Path) -> None:
    metrics = tmp_path / "volumes" / "checkpoints" / "metrics"
    write(tmp_path / "metrics" / "progress.jsonl", line("started", 1, 0, seen=True), line("progress", 1, 7, loss=7.0))
    seen = find(tmp_path).recorded
    assert (losses(seen), seen.seen) == ([(7, 7.0)], True)
    write(metrics / "metrics.jsonl", "a script's own file")
    assert losses(find(tmp_path).recorded) == [(7, 7.0)]
    write(metrics / "metrics.jsonl", line("started", 1, 0), line("progress", 1, 8, loss=8.0))
    told = find(tmp_path).recorded
    assert (losses(told), told.seen) == ([(8, 8.0)], False)


@pytest.mark.parametrize(
    ("first", "second", "seen"), [(True, False, True), (False, True, True), (False, False, False)]
)
def test_steps_are_guesses_if_any_start_was_only_seen(
    tmp_path: Path, *, first: bool, second: bool, seen: bool
) -> None:
    lines = [line("started", attempt, 0, seen=flag) for attempt, flag in ((1, first), (2, second))]
    assert read(write(tmp_path / "progress.jsonl", *lines)).seen is seen


@pytest.mark.parametrize("wrap", [lambda inner: [inner], lambda inner: {"a": inner}], ids=["lists", "objects"])
def test_what_is_very_deep_ends_with_an_ellipsis(wrap: Callable[[Any], Any]) -> None:
    def nested(levels: int, innermost: Any) -> Any:
        return innermost if levels == 0 else wrap(nested(levels - 1, innermost))

    assert _bounded(nested(DEEPEST, 1)) == nested(DEEPEST, 1)
    assert _bounded(nested(DEEPEST + 1, 1)) == nested(DEEPEST, "…")


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (1, 1.0),
        (-2.5, -2.5),
        (True, None),
        ("1", None),
        (None, None),
        (1e300, None),
        (-1e300, None),
        (1e-300, 0.0),
        (1e-100, 1e-100),
        (1e100, 1e100),
    ],
)
def test_a_number_is_one_that_can_be_drawn(value: Any, number: float | None) -> None:
    assert _number(value) == number
