"""What a rank prints of its steps, by a clock of the test's."""

from collections.abc import Iterator

import pytest
from ddpjob_trainer.recording import progress_lines
from ddpjob_trainer.recording.position import Position
from ddpjob_trainer.recording.progress_lines import ProgressLines

FIRST_SECONDS, SECONDS = 30.0, 2.0
"""The first step includes work that is done only once."""


def printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, begun: int) -> Iterator[list[str]]:
    """The step, the pace and the estimate of each line, of 25 steps; after step 12 an evaluation takes a minute."""
    now = 100.0
    monkeypatch.setattr(progress_lines.time, "monotonic", lambda: now)
    position = Position(step=begun)
    lines = ProgressLines(position, 1, 25, batch_size=8, log_every=10, rank=None)
    while position.step < 25:
        now += SECONDS if position.step > begun else FIRST_SECONDS
        position.advance(8)
        lines.step(None)
        if position.step == 12:
            now += 60.0
            lines.resume()
    for line in capsys.readouterr().out.splitlines():
        told = dict(field.split("=") for field in line.split()[1:])
        yield [told["step"], told["samples_per_second"], told["eta_seconds"]]


@pytest.mark.parametrize(
    ("begun", "lines"),
    [
        (0, [["1/25", "0", "720"], ["10/25", "4", "30"], ["20/25", "4", "26"], ["25/25", "4", "0"]]),
        (8, [["9/25", "0", "480"], ["10/25", "4", "30"], ["20/25", "4", "37"], ["25/25", "4", "0"]]),
        (15, [["16/25", "0", "270"], ["20/25", "4", "10"], ["25/25", "4", "0"]]),
    ],
    ids=["from the beginning", "resumed", "resumed after the evaluation"],
)
def test_the_time_that_is_left_is_estimated_from_all_steps_but_the_first(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, begun: int, lines: list[list[str]]
) -> None:
    assert [*printed(capsys, monkeypatch, begun)] == lines
