"""A run on held nodes, as it comes to a screen."""

import io
import queue
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from ddpjob_operator.cli.cluster.shown_run import ShownRun
from ddpjob_operator.cli.run_logs import Line
from ddpjob_operator.cli.screen import Screen
from ddpjob_operator.client.errors import UnreachableError

from tests.support.waiting import wait_for
from tests.unit.client.api import a_job, jobs_with

PROGRESS = "progress step=30/100 loss=0.5"
STATUS = {
    "state": "Running",
    "attempt": 9,
    "startTime": "2026-01-01T00:00:00Z",
    "progress": {"step": 30, "totalSteps": 100, "percent": 30.0, "attempt": 3},
    "message": "2 nodes running; held: train.py runs",
    "conditions": [
        {
            "type": "Running",
            "status": "True",
            "reason": "Running",
            "message": "2 nodes running",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "observedGeneration": 1,
        }
    ],
}


class Run:
    """A run whose ranks print what is put."""

    attempt = 3

    def __init__(self) -> None:
        self.said = queue.SimpleQueue[str]()
        self.shown = 0

    def skip(self) -> None: ...

    def lines(self, *, last: bool = False) -> Iterator[Line]:  # noqa: ARG002  (they are whole)
        for _ in range(self.said.qsize()):
            yield Line(0, 3, self.said.get())
            self.shown += 1

    def unfinished(self) -> Iterator[Line]:
        return iter(())


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")


def shown(run: Run, file: io.StringIO, *, terminal: bool, watch: Any = lambda _: iter(())) -> ShownRun:
    document = {**a_job("dev"), "spec": {"nodes": 2, "template": {"spec": {"containers": []}}}, "status": STATUS}
    screen = Screen(file=file, force_terminal=terminal, width=100, height=40)
    jobs = jobs_with(watch=watch, cluster=SimpleNamespace(close=lambda: None))
    return ShownRun.on(run, jobs, document, screen=screen)  # type: ignore[arg-type]


def test_in_a_pipe_there_are_lines_and_words_beside_them(capsys: pytest.CaptureFixture[str]) -> None:
    run, pipe = Run(), io.StringIO()
    this = shown(run, pipe, terminal=False, watch=pytest.fail)
    with this.following():
        run.said.put("begun")
        run.said.put(PROGRESS)
        this.look()
        this.tell("ending the ranks")
    assert pipe.getvalue() == f"[rank 0] begun\n[rank 0] {PROGRESS}\n"
    assert capsys.readouterr().err == "ddpjob: ending the ranks\n"


def test_on_a_terminal_progress_is_drawn_and_words_are_above_it(capsys: pytest.CaptureFixture[str]) -> None:
    run, terminal = Run(), io.StringIO()
    this = shown(run, terminal, terminal=True)
    with this.following():
        run.said.put("begun")
        this.tell("ending the ranks")
        wait_for("the steps that the supervisors tell", lambda: "step 30 of 100" in terminal.getvalue())
        drawn = terminal.getvalue()
        run.said.put(PROGRESS)
        wait_for("the line", lambda: run.shown == 2)
        wait_for("the table", lambda: "loss" in terminal.getvalue()[len(drawn) :])
    assert capsys.readouterr().err == ""
    text = terminal.getvalue()
    assert "[rank 0] begun" in text
    assert "ddpjob: " in text
    assert "ending the ranks" in text
    assert PROGRESS not in text
    assert "held: train.py runs" in text
    assert " elapsed" in text
    since = r"waiting for the first step of attempt 3 \([0-9]+s\), [0-9]+s elapsed"
    assert re.search(since, text), "since the run began, not the hold"


def test_a_run_goes_on_if_its_job_can_no_longer_be_watched(capsys: pytest.CaptureFixture[str]) -> None:
    def watch(_: object) -> Iterator[Any]:
        raise UnreachableError("no route")

    terminal = io.StringIO()
    this = shown(Run(), terminal, terminal=True, watch=watch)

    def is_blind() -> bool:
        this.look()
        return not this._is_watched

    with this.following():
        wait_for("the watch to end", is_blind)
        this.look()
        this.tell("ending the ranks")
    assert ("ending the ranks" in terminal.getvalue(), capsys.readouterr().err) == (True, "")


def test_where_nobody_reads_the_output_any_more_the_run_ends() -> None:
    class Closed(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    run = Run()
    this = shown(run, Closed(), terminal=False)

    def follows() -> None:
        with this.following():
            run.said.put("begun")
            while True:
                this.look()

    with pytest.raises(BrokenPipeError):
        follows()
