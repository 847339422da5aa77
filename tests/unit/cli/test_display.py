"""How the lines of a run come to its screen."""

import io
from collections.abc import Iterator

import pytest
from ddpjob_operator.api import DDPJobStatus
from ddpjob_operator.cli.display import Display
from ddpjob_operator.cli.follow import Line
from ddpjob_operator.cli.screen import Screen


class Lines:
    """A source with as many lines as are wanted, all there at once."""

    def __init__(self, *texts: str) -> None:
        self._texts = texts

    def skip(self) -> None: ...

    def lines(self, *, last: bool = False) -> Iterator[Line]:
        return (Line(0, 1, text) for text in self._texts if last)

    def unfinished(self) -> Iterator[Line]:
        return iter([Line(0, 1, "50% \x1b[2J")])


class Pipe(io.StringIO):
    """Counts how often something is written."""

    writes = 0

    def write(self, text: str) -> int:
        self.writes += 1
        return super().write(text)


def test_what_was_written_between_two_looks_is_printed_at_once_however_much_it_is() -> None:
    pipe = Pipe()
    with Display(Screen(file=pipe, width=20), Lines(*("x" * 79 for _ in range(1000)))).following(lost=lambda: None):
        pass
    assert pipe.getvalue() == ("[rank 0] " + "x" * 79 + "\n") * 1000
    assert pipe.writes == 1, "rich takes 40 microseconds for each line that it looks at"


def test_on_a_terminal_progress_is_in_the_live_picture_only() -> None:
    terminal = io.StringIO()
    screen = Screen(file=terminal, force_terminal=True, width=80)
    with Display(screen, Lines("begins", "progress step=7/9", "ends")).following(lost=lambda: None):
        pass
    assert "[rank 0] begins\n[rank 0] ends\n" in terminal.getvalue()
    assert "progress step" not in terminal.getvalue()
    assert "78%" in terminal.getvalue()


def test_on_a_terminal_no_line_vanishes_that_is_not_in_the_live_picture() -> None:
    terminal = io.StringIO()
    screen = Screen(file=terminal, force_terminal=True, width=80)
    lines = ("progress step=7/9 lr=0.001", "progress step=abc/xyz loss=nan")
    with Display(screen, Lines(*lines)).following(lost=lambda: None):
        pass
    said = terminal.getvalue()
    assert "lr" in said
    assert "lr=" not in said
    assert "0.001" in said
    assert "[rank 0] progress step=abc/xyz loss=nan\n" in said


def test_on_a_terminal_a_line_that_is_overwritten_is_in_the_live_picture_and_gives_no_orders_to_it() -> None:
    terminal = io.StringIO()
    screen = Screen(file=terminal, force_terminal=True, width=80)
    with Display(screen, Lines()).following(lost=lambda: None):
        pass
    assert r"[rank 0] 50% \x1b[2J" in terminal.getvalue()


@pytest.mark.parametrize(
    ("heard", "shown"),
    [
        (None, "waiting for the first step"),
        ({}, "waiting for the first step"),
        ({"step": 7}, "step 7"),
        (
            {"step": 3, "totalSteps": 4, "percent": 75.0, "display": "75%", "loss": 0.5, "eta": "9s"},
            " 75%, step 3 of 4, loss 0.5, 9s left",
        ),
    ],
    ids=["nothing is heard", "no step yet", "nobody knows how many", "all is known"],
)
def test_where_no_line_tells_it_the_live_picture_has_what_the_supervisor_says(
    heard: dict[str, object] | None, shown: str
) -> None:
    status = None if heard is None else DDPJobStatus.model_validate({"progress": heard} if heard else {})
    terminal = io.StringIO()
    screen = Screen(file=terminal, force_terminal=True, width=80)
    with Display(screen, Lines()).following(lost=lambda: None, heard=lambda: status):
        pass
    assert shown in terminal.getvalue()
