"""What a notebook shows of a job that it waits for."""

import sys
import xml.etree.ElementTree as ET
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from ddpjob_operator.cli.run_logs import Line
from ddpjob_operator.client import as_job
from ddpjob_operator.engine import Event
from ddpjob_operator.sdk import notebook
from ddpjob_operator.sdk.handle import Job
from ddpjob_operator.sdk.picture import LINES, LONGEST, Picture, drawn
from ddpjob_operator.sdk.short_status import in_a_few_lines
from ddpjob_operator.view_model.curves import MOST_POINTS, Curve

from tests.unit.client.api import jobs_with

from .test_sdk import FAILED, a_document_with, a_pod

EVIL = "</pre><script>alert(1)</script>\x1b[2J<img src=x onerror=alert(1)>"
AT = "2026-01-01T12:00:00Z"


class Shell:
    """A notebook's shell, which remembers what was published. A terminal's has no kernel."""

    def __init__(self, *, in_notebook: bool = True) -> None:
        self.published: list[dict[str, Any]] = []
        self.display_pub = SimpleNamespace(publish=lambda **what: self.published.append(what))
        if in_notebook:
            self.kernel = object()

    @property
    def html(self) -> list[str]:
        return [each["data"]["text/html"] for each in self.published]


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Shell:
    shell = Shell()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))  # type: ignore[arg-type]
    monkeypatch.setattr(notebook, "REDRAW_SECONDS", 0.0)
    return shell


def a_job(*lines: str, status: dict[str, Any] | None = None) -> Job:
    """A job that runs, prints these lines, and fails."""
    running = a_document_with(**{"state": "Running", "message": "2 nodes running"} | (status or {}))
    failed = a_document_with(FAILED, state="Failed", message="rank 1 has failed")
    return Job(
        jobs_with(
            find=lambda _: running,
            watch=lambda _: iter([running, failed]),
            watch_pods=lambda _: iter([[a_pod(0)]]),
            pods=lambda _: [a_pod(0)],
            log=lambda *_, **__: [(AT, line) for line in lines],
        ),
        running,
    )


def test_waiting_shows_one_picture_that_changes_and_the_last_one_stays(
    shell: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    a_job("epoch 1", "progress step=1/3 loss=0.5", "progress step=2/3 loss=0.25").wait()
    places = {each["transient"]["display_id"] for each in shell.published}
    assert len(places) == 1
    assert [each["update"] for each in shell.published] == [False, *[True] * (len(shell.published) - 1)]
    last = shell.published[-1]["data"]
    assert "rank 1 has failed" in last["text/html"]
    assert "Failed" in last["text/plain"]
    assert "[rank 0] epoch 1" in last["text/html"]
    assert "[rank 0] epoch 1" in last["text/plain"]
    assert "polyline" in last["text/html"]
    assert "step 2, loss 0.25" in last["text/html"]
    assert capsys.readouterr().out == "", "nothing is shown twice"


def test_nothing_of_what_others_write_is_markup(shell: Shell) -> None:
    a_job(EVIL, f"progress step=1 loss={EVIL.split(maxsplit=1)[0]}", status={"message": EVIL}).wait()
    for html in shell.html:
        assert "<script" not in html
        assert "<img" not in html
        assert "\x1b" not in html
        assert {each.tag.rpartition("}")[2] for each in ET.fromstring(html).iter()} <= {"div", "b", "pre"}


def test_a_quiet_wait_shows_nothing(shell: Shell) -> None:
    a_job().wait(quiet=True)
    assert shell.published == []


@pytest.mark.parametrize("ipython", [None, SimpleNamespace(get_ipython=lambda: Shell(in_notebook=False))])
def test_a_terminal_shows_a_job_as_the_command_does(
    ipython: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    if ipython is not None:
        monkeypatch.setitem(sys.modules, "IPython", ipython)
    a_job("epoch 1").wait()
    assert "[rank 0] epoch 1" in capsys.readouterr().out


def test_the_picture_of_a_long_job_stays_small() -> None:
    picture = Picture(as_job(a_document_with(state="Running", message="x" * 1000)))
    for step in range(20 * MOST_POINTS):
        picture.read(Line(0, 1, f"progress step={step} loss={step}"))
        picture.read(Line(0, 1, "y" * 2 * LONGEST))
    assert len(picture.curve.points) <= MOST_POINTS
    assert picture.curve.points[-1][0] == 20 * MOST_POINTS - 1
    assert len(picture.html()) < LINES * 2 * LONGEST + 20 * MOST_POINTS


def test_the_curve_follows_what_is_printed_and_else_what_the_status_says() -> None:
    picture = Picture(as_job(a_document_with()))
    for step in (1, 2):
        picture.update(as_job(a_document_with(progress={"step": step, "loss": 1 / step})))
    assert picture.curve.points == [(1, 1.0), (2, 0.5)]
    for text in ("progress step=3 loss=0.3", "progress step=4 rank=1 loss=9", "progress step=4 loss=nan"):
        picture.read(Line(0, 1, text))
    picture.read(Line(1, 1, "progress step=4 loss=9"))
    picture.update(as_job(a_document_with(progress={"step": 2, "loss": 0.5})))
    assert picture.curve.points == [(1, 1.0), (2, 0.5), (3, 0.3)]


def test_after_a_restart_the_curve_goes_on_from_the_checkpoint() -> None:
    curve = Curve()
    for step, loss in ((1, 3.0), (2, 2.0), (3, 1.0), (2, 2.5), (3, 1e40), (4, float("nan"))):
        curve.add(step, loss)
    assert curve.points == [(1, 3.0), (2, 2.5)]
    picture = ET.fromstring(drawn(curve))
    assert picture.attrib["aria-label"] == "loss from step 1 to 2: 3 to 2.5"
    assert drawn(Curve([(1, 1.0)])) == ""


def test_the_curve_goes_from_edge_to_edge_and_says_where_it_ends() -> None:
    picture = ET.fromstring(drawn(Curve([(1, 3.0), (2, 1.0), (5, 2.0)])))
    assert (picture.attrib["width"], picture.attrib["height"]) == ("420", "180")
    assert picture.attrib["viewBox"] == "0 -14 420 180"
    (line,) = (each for each in picture if each.tag.endswith("polyline"))
    assert line.attrib["points"] == "0.0,0.0 105.0,150.0 420.0,75.0"
    words = [(each.text, each.attrib["x"], each.attrib["y"]) for each in picture.iter() if each.tag.endswith("text")]
    assert words == [("loss 3", "4", "-3"), ("1", "4", "146"), ("step 1", "0", "163"), ("5", "420", "163")]
    flat = ET.fromstring(drawn(Curve([(1, 2.0), (2, 2.0)])))
    assert flat[1].attrib["points"] == "0.0,0.0 420.0,0.0"


def test_of_a_long_curve_every_second_point_is_left_out_and_the_last_one_stays() -> None:
    curve = Curve()
    for step in range(401):
        curve.add(step, float(step))
    assert [step for step, _ in curve.points] == [*range(0, 400, 2), 400]


def test_the_last_events_and_lines_are_shown_and_none_twice_in_a_row() -> None:
    picture = Picture(as_job(a_document_with()))
    for event in ("a", "a", *"bcdef", "x" * 300, "y" * 301):
        picture.tell(event)
    for number in range(20):
        picture.read(Line(0, 1, f"line {number}"))
    assert [*picture.events] == ["d", "e", "f", "x" * 300, f"{'y' * 300}…"]
    assert [line.split("] ")[1] for line in picture.lines] == [f"line {number}" for number in range(8, 20)]


def a_shown_job(**logs: Any) -> tuple[Any, list[str], Any]:
    """What shows a job, what was published, and the life of the job."""
    published: list[str] = []
    life = SimpleNamespace(over=False, stop=Mock(), job=as_job(a_document_with()), news=lambda _: iter([]))
    given = {"problem": None, "lines": lambda: iter([]), "follow": Mock(), "settle": Mock(), "stop": Mock(), **logs}
    shown = notebook.JobInNotebook(
        life,  # type: ignore[arg-type]
        SimpleNamespace(**given),  # type: ignore[arg-type]
        lambda html, _: published.append(html),
        Picture(life.job),
    )
    return shown, published, life


def test_pictures_are_drawn_only_so_often_and_only_if_they_differ_but_the_last_one_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Mock(monotonic=Mock(return_value=0.0))
    monkeypatch.setattr(notebook, "time", clock)
    shown, published, _ = a_shown_job()
    for seconds, event, pictures in ((9.0, "a", 1), (9.4, "b", 1), (9.5, "c", 2), (10.1, "c", 2), (10.2, "d", 2)):
        clock.monotonic.return_value = seconds
        shown._picture.tell(event)
        shown._draw()
        assert len(published) == pictures
    shown._draw(now=True)
    assert len(published) == 3


def test_events_are_shown_with_where_they_come_from() -> None:
    shown, published, life = a_shown_job()

    def news(_: float) -> Any:
        life.over = True
        yield Event(warning=True, reason="Stalled", message="no step for 5m")

    life.news = news
    shown.follow()
    assert "ddpjob: Stalled: no step for 5m" in published[-1]


@pytest.mark.parametrize("over", [True, False])
def test_only_of_a_job_that_has_ended_the_last_lines_are_waited_for(*, over: bool) -> None:
    shown, published, life = a_shown_job(problem="no route")
    rounds = iter([False, False, over])

    def news(_: float) -> Any:
        life.over = next(rounds)
        return iter([])

    life.news = news
    with nullcontext() if over else pytest.raises(StopIteration):
        shown.follow()
    assert shown._logs.settle.called is over
    assert shown._logs.stop.called
    assert life.stop.called
    assert published[-1].count("no logs: no route") == 1


def test_who_has_waited_long_enough_goes_on() -> None:
    shown, published, life = a_shown_job()
    shown.follow(deadline=0.0)
    assert len(published) == 1
    assert life.stop.called
    assert not shown._logs.settle.called


@pytest.mark.parametrize(
    ("progress", "printed", "line"),
    [
        ({"step": 7, "totalSteps": 20, "loss": 0.5, "etaSeconds": 90}, "", "step 7 of 20, loss 0.5, 1m30s left"),
        ({"step": 0, "etaSeconds": 0}, "", "step 0, 0s left"),
        ({"step": 7, "loss": 0.5}, "progress step=9 loss=0.25", "step 7, loss 0.25"),
        (None, "progress step=9 loss=0.25", "step 9, loss 0.25"),
        (None, "", None),
    ],
)
def test_the_same_in_plain_text(progress: Any, printed: str, line: str | None) -> None:
    picture = Picture(as_job(a_document_with()))
    picture.update(as_job(a_document_with(state="Running", message="2 nodes\nrunning", progress=progress)))
    picture.tell("created pods")
    for text in filter(None, (printed, "epoch 1")):
        picture.read(Line(0, 1, text))
    head = r"digits: Running. 2 nodes\nrunning"
    assert picture.plain().splitlines() == [head, *filter(None, [line]), "created pods", "[rank 0] epoch 1"]


@pytest.mark.parametrize(
    ("status", "lines"),
    [
        ({"attempt": 1, "restarts": 3, "message": "2 nodes\x1b"}, [r"Running: 2 nodes\x1b"]),
        ({"attempt": 2, "restarts": 1, "progress": {"step": 7}}, ["Running: ", "step 7", "attempt 2, 1 restart"]),
    ],
)
def test_the_value_of_a_cell_is_a_status_in_a_few_lines(status: dict[str, Any], lines: list[str]) -> None:
    printer = Mock()
    in_a_few_lines(as_job(a_document_with(state="Running", **status)).status, printer, False)
    printer.text.assert_called_once_with("\n".join(lines))
