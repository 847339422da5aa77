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
