"""The curves that are made from what a program printed."""

from dataclasses import dataclass

import pytest
from ddpjob_operator.cli import printed_records
from ddpjob_operator.cli.printed_records import records_of
from ddpjob_operator.view_model import Records

from tests.unit.report.lines import ZERO


@dataclass(frozen=True)
class Printed:
    """A line of a log."""

    attempt: int
    text: str


def read(*lines: tuple[int, str]) -> Records:
    return records_of([Printed(*line) for line in lines], ZERO)


def losses(recorded: Records, event: str = "progress") -> list[tuple[int, float | None]]:
    return [(entry.step, entry.number("loss")) for entry in recorded.of(event)]


def test_a_loss_is_read_from_lines_such_as_nanogpts() -> None:
    recorded = read(
        (1, "step 0: train loss 4.2874, val loss 4.2823"),
        (1, "iter 0: loss 4.2649, time 26321.66ms, mfu -100.00%"),
        (1, "saving checkpoint to out"),
        (1, "iter 10: loss 4.54, time 30.00ms, mfu 1.20%"),
        (2, "iter 10: loss 3.5, time 30.00ms, mfu 1.20%"),
        (2, "iter 20: loss 3.25, time 30.00ms, mfu 1.20%"),
    )
    assert losses(recorded) == [(0, 4.2649), (10, 3.5), (20, 3.25)]
    assert losses(recorded, "evaluated") == [(0, 4.2823)]
    assert [start.began.step for start in recorded.starts] == [0, 9]


@pytest.mark.parametrize(("total", "steps"), [("", [100, 500, 600, 1000]), ("/600", [100, 500, 700, 1100])])
def test_steps_of_each_epoch_are_counted_on(total: str, steps: list[int]) -> None:
    lines = [(1, f"Step [{step}{total}], Loss: 0.5") for _ in range(2) for step in (100, 500)]
    recorded = read(*lines)
    assert [step for step, _ in losses(recorded)] == steps
    assert len(recorded.starts) == 1


def test_lines_of_several_ranks_are_no_new_epoch() -> None:
    assert losses(read(*((1, f"iter {step}: loss {step}") for step in (8, 7, 9, 8, 10)))) == [
        (step, float(step)) for step in (7, 8, 9, 10)
    ]


def test_a_loss_that_is_reported_counts_more() -> None:
    recorded = read((1, "iter 10: loss 4.54"), (1, "progress step=10 loss=0.5"), (1, "iter 11: loss 4.54"))
    assert losses(recorded) == [(10, 0.5)]


def test_of_reports_without_a_loss_the_printed_one_makes_the_curve() -> None:
    assert losses(read((1, "progress step=10"), (1, "iter 10: loss 4.54"))) == [(10, 4.54)]


def test_the_losses_of_an_endless_log_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printed_records, "MOST_ENTRIES", 8)
    found = losses(read(*((1, f"iter {step}: loss 1") for step in range(100))))
    assert len(found) <= 8
    assert found[-1] == (99, 1.0)


def test_all_numbers_of_a_report_are_kept_and_only_those_of_rank_0() -> None:
    (start,) = read(
        (1, "progress step=3/40 loss=0.5 epoch=1 samples_per_second=9 eta_seconds=7 accuracy=0.25 note=x"),
        (1, "progress step=4 rank=1 loss=9"),
        (1, "progress epoch=2"),
        (1, "resumed step=4 from=3"),
        (1, "evaluated step=4 loss=0.7 accuracy=0.75"),
        (1, "saved step=4"),
        (1, "progress step=5 rank=0 lr=0.1"),
    ).starts
    assert [(entry.event, entry.step, entry.values) for entry in start.entries] == [
        ("progress", 3, {"loss": 0.5, "total_steps": 40.0, "metrics": {"accuracy": 0.25}}),
        ("evaluated", 4, {"loss": 0.7, "total_steps": None, "accuracy": 0.75}),
        ("saved", 4, {"total_steps": None}),
        ("progress", 5, {"total_steps": None, "metrics": {"lr": 0.1}}),
    ]
    assert (start.began.step, start.began.values, start.began.time) == (0, {"seen": True}, ZERO)


@pytest.mark.parametrize("form", ["progress step={} loss=1", "iter {}: loss 1"])
def test_a_later_attempt_goes_on_before_its_first_step(form: str) -> None:
    lines = [(1, 5), (1, 6), (2, 4), (2, 5), (3, 0)]
    starts = read(*((attempt, form.format(step)) for attempt, step in lines)).starts
    assert [(start.began.attempt, start.began.step) for start in starts] == [(1, 0), (2, 3), (3, 0)]
    assert [[entry.step for entry in start.entries] for start in starts] == [[5, 6], [4, 5], [0]]


def test_a_report_of_an_earlier_step_is_a_start_too_but_one_of_the_same_step_is_not() -> None:
    starts = read(*((1, f"progress step={step} loss=1") for step in (5, 6, 6, 4))).starts
    assert [(start.began.step, len(start.entries)) for start in starts] == [(0, 3), (3, 1)]
