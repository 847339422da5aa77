"""How the lines of a run come to its screen."""

import contextlib
import errno
import io
import itertools
import os
import select
import threading
import time
from collections.abc import Iterator
from unittest.mock import Mock

import pytest
from ddpjob_operator.api import DDPJobStatus
from ddpjob_operator.cli import display as displays
from ddpjob_operator.cli.display import Display
from ddpjob_operator.cli.run_logs import Line
from ddpjob_operator.cli.screen import Screen, ignoring_closed_output
from ddpjob_operator.engine import Event
from ddpjob_operator.local import ASIDE

from tests.support.waiting import patience, wait_for


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")


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
    assert pipe.writes <= 1000 / 20, "rich takes 40 microseconds for each line that it looks at"


class Many(Lines):
    """A source that has 1 MB each time."""

    def lines(self, *, last: bool = False) -> Iterator[Line]:
        return itertools.repeat(Line(0, 1, "x" * 99), 0 if last else 10_000)


@contextlib.contextmanager
def a_pipe() -> Iterator[tuple[io.TextIOWrapper, int]]:
    """Both its ends. The reader's is closed first: what still writes fails, and ends."""
    reading, writing = os.pipe()
    file = os.fdopen(writing, "w")
    yield file, reading
    os.close(reading)
    wait_for("the display to end", lambda: "display" not in {thread.name for thread in threading.enumerate()})
    with contextlib.suppress(BrokenPipeError):
        file.close()


def full(file: io.TextIOWrapper) -> bool:
    return not select.select([], [file], [], 0)[1]


def test_nobody_waits_for_an_output_that_is_blocked_neither_to_tell_nor_to_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(displays, "BLOCKED_SECONDS", 0.2)
    left: list[int] = []
    monkeypatch.setattr("os._exit", left.append)
    over = threading.Event()
    with a_pipe() as (file, _):
        display = Display(Screen(file=file), Many())

        def run() -> None:
            with display.following(lost=lambda: None, stopped=lambda: True):
                wait_for("the pipe to be full", lambda: full(file))
                display.tell(Event(warning=False, reason="Notice", message="stopping"))
            over.set()

        threading.Thread(target=run, daemon=True).start()
        assert over.wait(patience(10))
        display.leave_if_blocked(130)
        assert left == [130]


def test_after_a_stop_a_slow_reader_gets_the_end_and_is_told_that_it_is_not_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(displays, "LAST_SECONDS", 0.0)
    monkeypatch.setattr(displays, "BLOCKED_SECONDS", patience(0.2))
    left: list[int] = []
    monkeypatch.setattr("os._exit", left.append)
    stopped, read, pause = threading.Event(), bytearray(), patience(0.04)
    with a_pipe() as (file, reading):
        display = Display(Screen(file=file), Many())

        def read_once_stopped() -> None:
            stopped.wait()
            while data := os.read(reading, 1 << 12):
                read.extend(data)
                if len(read) < 1 << 16:  # What a piece waits for lasts three times as long as what is blocked.
                    time.sleep(pause)

        reader = threading.Thread(target=read_once_stopped, daemon=True)
        reader.start()
        with display.following(lost=lambda: None, stopped=stopped.is_set):
            wait_for("the pipe to be full", lambda: full(file))
            display.tell(Event(warning=False, reason="Notice", message="stopping"))
            stopped.set()
        display.leave_if_blocked(130)
        assert left == []
        file.close()
        reader.join()
    *_, event, last = read.decode().splitlines()
    assert (event, last) == ("ddpjob: stopping", "ddpjob: the rest of the output is only in the logs")


class Lost(io.StringIO):
    """A terminal that is gone once this is written."""

    def __init__(self, last: str) -> None:
        super().__init__()
        self._last = last

    def write(self, text: str) -> int:
        super().write(text)
        if self._last in self.getvalue():
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return len(text)


@pytest.mark.parametrize("last", ["\x1b[?25l", "begins", "\x1b[?25h"], ids=["at its begin", "amid", "at its end"])
def test_whose_terminal_is_gone_is_told_so_once_and_all_lines_are_taken_note_of(
    monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    monkeypatch.setattr(displays, "PIECE", 1)
    lost: list[str] = []
    display = Display(Screen(file=Lost(last), force_terminal=True), Lines("begins", "goes on", "saved checkpoint=7"))
    with display.following(lost=lambda: lost.append("lost")):
        pass
    assert lost == ["lost"]
    assert display.progress.saved is not None


def test_an_output_that_is_gone_is_not_tried_for_each_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(Pipe):
        def write(self, text: str) -> int:
            super().write(text)
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(displays, "PIECE", 1)
    with Display(Screen(file=(gone := Gone())), Lines(*["x"] * 100)).following(lost=lambda: None):
        pass
    assert 0 < gone.writes <= 5


def test_who_interrupts_the_last_output_gets_the_terminal_back_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    monkeypatch.setattr("os._exit", left.append)
    terminal, interrupted = io.StringIO(), threading.Event()

    class Late(Lines):
        def lines(self, *, last: bool = False) -> Iterator[Line]:
            if last:
                interrupted.wait()
            return super().lines(last=last)

    display = Display(Screen(file=terminal, force_terminal=True), Late(*["x"] * 50_000))

    def interrupt() -> bool:
        interrupted.set()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), display.following(lost=lambda: None, stopped=interrupt):
        pass
    display.leave_if_blocked(130)
    assert left == []
    assert "\x1b[?25h" in terminal.getvalue()


def test_of_an_earlier_job_neither_progress_nor_lines_are_shown() -> None:
    lines = Lines("saved checkpoint=7")
    lines.skip = Mock()  # type: ignore[method-assign]
    display = Display(Screen(file=io.StringIO()), lines)
    display._take(Line(0, 1, "saved checkpoint=7"), None)
    assert display.progress.saved is not None
    display.forget()
    assert display.progress.saved is None
    lines.skip.assert_called_once_with()


def test_on_a_terminal_progress_is_in_the_live_display_only() -> None:
    terminal = io.StringIO()
    screen = Screen(file=terminal, force_terminal=True, width=80)
    with Display(screen, Lines("begins", "progress step=7/9", "ends")).following(lost=lambda: None):
        pass
    assert "[rank 0] begins\n[rank 0] ends\n" in terminal.getvalue()
    assert "progress step" not in terminal.getvalue()
    assert "78%" in terminal.getvalue()


def test_on_a_terminal_no_line_vanishes_that_is_not_in_the_live_display() -> None:
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


def test_on_a_terminal_a_line_that_is_overwritten_is_in_the_live_display_and_gives_no_orders_to_it() -> None:
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
            {"step": 3, "totalSteps": 4, "percent": 75.0, "loss": 0.5},
            " 75%, step 3 of 4, loss 0.5, 9s left",
        ),
    ],
    ids=["nothing is heard", "no step yet", "nobody knows how many", "all is known"],
)
def test_where_no_line_tells_it_the_live_display_has_what_the_supervisor_says(
    heard: dict[str, object] | None, shown: str
) -> None:
    said = {"progress": heard, "display": {"progress": "75%", "eta": "9s"}} if heard else {}
    status = None if heard is None else DDPJobStatus.model_validate(said)
    terminal = io.StringIO()
    screen = Screen(file=terminal, force_terminal=True, width=80)
    with Display(screen, Lines()).following(lost=lambda: None, status=lambda: status):
        pass
    assert shown in terminal.getvalue()


@pytest.mark.parametrize("term", ["dumb", "unknown"])
def test_a_terminal_that_draws_nothing_gets_progress_in_lines(term: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", term)
    terminal = io.StringIO()
    display = Display(Screen(file=terminal, force_terminal=True), Lines("progress step=1/5 loss=0.5"))
    with display.following(lost=lambda: None):
        display.tell(Event(warning=True, reason="Stalled", message="no step"))
    assert terminal.getvalue() == "ddpjob: Stalled: no step\n[rank 0] progress step=1/5 loss=0.5\n"


@pytest.mark.parametrize(("no_color", "coloured"), [("1", False), ("", True)])
def test_where_no_colours_are_wanted_the_live_display_stays(
    no_color: str, monkeypatch: pytest.MonkeyPatch, *, coloured: bool
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    terminal = io.StringIO()
    display = Display(Screen(file=terminal, force_terminal=True, width=80), Lines())
    with display.following(lost=lambda: None, status=DDPJobStatus):
        display.tell(Event(warning=True, reason="Stalled", message="no step"))
    shown = terminal.getvalue()
    assert ("waiting for the first step" in shown, "\x1b[?25l" in shown) == (True, True), "a display that is drawn"
    assert ("\x1b[33m" in shown) is coloured, "yellow, as a warning is"


def test_what_few_need_is_printed_faintly_and_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for is_terminal, shown in (
        (True, "\x1b[2mddpjob: \x1b[0m\x1b[2mport 29500 is taken\x1b[0m"),
        (False, "ddpjob: port 29500 is taken"),
    ):
        output = io.StringIO()
        Display(Screen(file=output, force_terminal=is_terminal, width=80), Lines()).tell(
            Event(warning=False, reason=ASIDE, message="port 29500 is taken")
        )
        assert output.getvalue() == f"{shown}\n"


def test_progress_of_before_is_read_without_a_word_and_can_be_forgotten() -> None:
    pipe, source = Pipe(), Mock(**{"lines.side_effect": lambda **_: iter([Line(0, 1, "progress step=7 loss=0.5")])})
    display = Display(Screen(file=pipe), source)
    display.catch_up()
    assert (display.progress.step, display.progress.stepped, pipe.getvalue()) == (7, None, "")
    display.forget()
    assert display.progress.step is None
    assert source.skip.called


def test_what_nobody_reads_any_more_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    dropped = Mock()
    monkeypatch.setattr("ddpjob_operator.cli.screen.drop_output", dropped)
    with ignoring_closed_output():
        pass
    assert not dropped.called
    with ignoring_closed_output():
        raise BrokenPipeError
    assert dropped.called


def test_lines_that_were_printed_before_an_event_are_shown_before_it() -> None:
    pipe, left = Pipe(), ["before\n", "after\n"]
    source = Mock(**{"lines.side_effect": lambda **_: iter([Line(0, 1, left.pop(0))] if left else [])})
    display = Display(Screen(file=pipe), source)
    display._show_event(source.lines(), Event(warning=False, reason="Notice", message="an event"))
    display._show(source.lines())
    assert [line.rpartition(" ")[2] for line in pipe.getvalue().splitlines() if line] == ["before", "event", "after"]
