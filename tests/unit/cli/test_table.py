"""Tables of jobs: what is cut on a narrow terminal, and nothing in a pipe."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from ddpjob_operator.api import DDPJob
from ddpjob_operator.api.words import age
from ddpjob_operator.cli.table import COLUMNS, Growing, path_end, row, tabulate
from ddpjob_operator.view_model import JobKey, JobRow, Origin, job_row

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAME, SAID = "a-name-of-fifty-characters-" + "x" * 23, "Rank 1 failed: " + "no " * 60
ROWS = [(NAME, "Running", SAID.strip()), ("b", "Failed", "")]


def test_in_a_pipe_a_row_is_a_line_and_nothing_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    tabulate(("NAME", "STATE", "MESSAGE"), ROWS)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        f"{name:<50}   {state:<7}   {said}".rstrip() for name, state, said in (("NAME", "STATE", "MESSAGE"), *ROWS)
    ]


@pytest.fixture
def on_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[str]]:
    """The lines of the table on a terminal of so many columns."""

    def shown(columns: int) -> list[str]:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("COLUMNS", f"{columns}")
        monkeypatch.setenv("NO_COLOR", "1")
        tabulate(("NAME", "STATE", "MESSAGE"), ROWS)
        return capsys.readouterr().out.splitlines()

    return shown


def test_on_a_narrow_terminal_only_the_last_column_gives_way(on_terminal: Callable[[int], list[str]]) -> None:
    first = on_terminal(80)[1]
    assert first.startswith(f"{NAME}   Running   Rank 1 failed:")
    assert len(first) <= 80


def test_on_a_narrower_one_a_long_name_has_a_line_of_its_own(on_terminal: Callable[[int], list[str]]) -> None:
    header, first, second, *_, last = on_terminal(60)
    assert header == f"{'NAME':<31}   STATE     MESSAGE"
    assert first == NAME
    assert second.startswith(f"{'':<31}   Running   Rank 1 failed:")
    assert max(map(len, (header, first, second))) <= 60
    assert last.startswith(f"{'b':<31}   Failed")


def test_on_a_terminal_the_states_have_colours(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    tabulate(("NAME", "STATE", "AGE"), [("Failed", "Running", "1s"), ("b", "Failed", "Failed")])
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "NAME     STATE     AGE",
        "Failed   \x1b[32mRunning\x1b[0m   1s",
        "b        \x1b[31mFailed\x1b[0m    Failed",
    ]


@pytest.mark.parametrize(
    ("room", "shown"),
    [
        (40, "/home/me/models/2026/runs/train"),
        (31, "/home/me/models/2026/runs/train"),
        (30, "…/me/models/2026/runs/train"),
        (16, "…/runs/train"),
        (4, "…ain"),
    ],
)
def test_of_a_long_path_the_end_is_shown(room: int, shown: str) -> None:
    assert path_end("/home/me/models/2026/runs/train", room) == [shown]


def test_on_a_terminal_too_narrow_for_the_last_column_it_is_not_a_letter_wide(
    on_terminal: Callable[[int], list[str]],
) -> None:
    assert len(on_terminal(40)) < 20


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-1, "0s"),
        (119, "119s"),
        (120, "2m"),
        (7199, "119m"),
        (7200, "2h"),
        (172799, "47h"),
        (172800, "2d"),
        (300000, "3d"),
    ],
)
def test_an_age_is_told_in_its_own_unit(seconds: float, shown: str) -> None:
    since = datetime(2026, 1, 1, tzinfo=UTC)
    assert age(since, since + timedelta(seconds=seconds)) == shown


def test_a_row_is_printed_again_when_more_than_its_age_has_changed(capsys: pytest.CaptureFixture[str]) -> None:
    table = Growing(("NAME", "STATE", "AGE", "MESSAGE"))
    seen = [
        {"1": ("a", "Starting", "1s", "0 of 2"), "2": ("b", "Running", "5m", "")},
        {"1": ("a", "Starting", "2s", "0 of 2"), "2": ("b", "Running", "5m", "")},
        {"1": ("a", "Running", "3s", "2 nodes running"), "2": ("b", "Running", "5m", "")},
        {"1": ("a", "Running", "4s", "2 nodes running")},
        {"1": ("a", "Running", "5s", "2 nodes running"), "3": ("b", "Pending", "0s", "")},
    ]
    for rows in seen:
        table.show(rows)
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "NAME   STATE        AGE   MESSAGE",
        "a      Starting     1s    0 of 2",
        "b      Running      5m",
        "a      Running      3s    2 nodes running",
        "b      Deleted      5m",
        "b      Pending      0s",
    ]


def shown(job: DDPJob) -> JobRow:
    return job_row(job, JobKey(Origin.CLUSTER, "default", "digits", ""), NOW)


@pytest.mark.parametrize(("end", "eta"), [(None, "56s"), ("Complete", ""), ("Failed", "")])
def test_what_has_ended_is_as_far_as_it_came_with_no_time_left(end: str | None, eta: str) -> None:
    said = {"type": end, "status": "True", "reason": "Any", "message": "", "observedGeneration": 1}
    said |= {"lastTransitionTime": "2026-01-01T00:00:00Z"}
    status = {"display": {"progress": "30%", "eta": "56s"}, "conditions": [said] if end else []}
    spec = {"template": {"spec": {"containers": [{"name": "trainer", "image": "any"}]}}}
    job = DDPJob.from_dict({"metadata": {"name": "digits"}, "spec": spec, "status": status})
    cells = dict(zip(COLUMNS, row(shown(job), NOW), strict=True))
    assert (cells["PROGRESS"], cells["ETA"]) == ("30%", eta)


@pytest.mark.parametrize(("said", "cell"), [("30%", "30%, evaluating"), ("", "evaluating")])
def test_a_row_says_what_a_job_does_between_two_steps(said: str, cell: str) -> None:
    status = {"state": "Running", "display": {"progress": said}, "progress": {"activity": "Evaluating"}}
    job = DDPJob.from_dict({"metadata": {"name": "digits"}, "spec": {"template": {}}, "status": status})
    assert dict(zip(COLUMNS, row(shown(job), NOW), strict=True))["PROGRESS"] == cell
