"""Nothing that a program, a user or a cluster has said is read as markup, whatever command shows it."""

import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from ddpjob_operator.api import DDPJob
from ddpjob_operator.cli.arguments import parse
from ddpjob_operator.cli.cluster.job_status import status as status_there
from ddpjob_operator.cli.cluster.submit import submit
from ddpjob_operator.cli.display import Display
from ddpjob_operator.cli.screen import Screen
from ddpjob_operator.cli.status import status as status_here
from ddpjob_operator.cli.summary import summarise
from ddpjob_operator.engine import Event
from ddpjob_operator.local import Runs
from ddpjob_operator.view_model import LoggedProgress, Report

from tests.unit.cli.test_display import Lines
from tests.unit.client.api import a_cluster, a_list, jobs_of

SAID = "[/pytorch/third_party/gloo/pair.cc:534] [bold]peer[/bold] [red]:warning: lost[0] \x1b[2J\x07"
"""A closing tag without an opening one, tags, the name of an emoji, and what would clear the terminal."""
SHOWN = r"[/pytorch/third_party/gloo/pair.cc:534] [bold]peer[/bold] [red]:warning: lost[0] \x1b[2J\x07"

COPIED = re.compile(r"Go on with: |\[/pytorch/")
FAILURE = {"time": "2026-01-01T00:00:00Z", "attempt": 1, "node": 1, "pod": "digits-1-x", "cause": "PeerLost"}
CONDITION = {"type": "Running", "status": "False", "reason": "Restarting", "lastTransitionTime": FAILURE["time"]}
METADATA = {"name": "digits", "namespace": "team", "uid": "u", "creationTimestamp": FAILURE["time"]}
DOCUMENT = {
    "apiVersion": "ddpjob.dev/v1alpha2",
    "kind": "DDPJob",
    "metadata": METADATA,
    "spec": {"template": {"spec": {"containers": [{"name": "trainer", "image": SAID, "command": [SAID]}]}}},
    "status": {
        "state": "Running",
        "message": SAID,
        "incidents": [FAILURE | {"message": SAID}],
        "conditions": [CONDITION | {"message": SAID, "observedGeneration": 1}],
        "stragglers": [{"node": 0, "nodeName": SAID, "slowdown": 2.0}],
    },
}
JOB = DDPJob.from_dict(DOCUMENT)
EVENT = {"type": "Warning", "reason": "BackOff", "message": SAID, "metadata": METADATA}


def run(runs: Path, name: str) -> None:
    (runs / name).mkdir(parents=True)
    (runs / name / "job.json").write_text(json.dumps(DOCUMENT))


def one_here(runs: Path) -> None:
    run(runs, "digits")
    status_here(Runs(runs), None)


def all_here(runs: Path) -> None:
    run(runs, "digits")
    run(runs, "images")
    status_here(Runs(runs), None)


def one_there(_: Path) -> None:
    status_there(jobs_of(DOCUMENT, a_list(EVENT))[0], "digits", everywhere=False)


def all_there(_: Path) -> None:
    status_there(jobs_of(a_list(DOCUMENT))[0], None, everywhere=True)


def submission(directory: Path) -> None:
    file = directory / "job.yaml"
    job = {key: value for key, value in DOCUMENT.items() if key != "status"}
    file.write_text(f"{json.dumps(job)}\n---\n{json.dumps({'kind': SAID})}\n")
    submit(a_cluster(DOCUMENT), parse(["submit", str(file), "--dry-run"]))


def event(_: Path) -> None:
    Display(Screen(), Lines(SAID)).tell(Event(warning=True, reason="RankFailed", message=SAID))


def the_end(_: Path) -> None:
    progress = LoggedProgress(evaluated=Report("evaluated", {"accuracy": SAID}))
    summarise(Screen(), JOB, progress, checkpoint=SAID, logs=SAID)


@pytest.mark.parametrize("show", [one_here, all_here, one_there, all_there, submission, event, the_end])
def test_what_was_said_is_shown_as_it_was_said(
    show: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    show(tmp_path)
    assert SHOWN in capsys.readouterr().out


def test_the_live_display_shows_numbers_as_a_program_wrote_them() -> None:
    terminal = io.StringIO()
    display = Display(Screen(file=terminal, force_terminal=True, width=400), Lines(SAID))
    display.progress.ranks[0] = Report("progress", {"step": "1/2", "loss": SAID})
    with display.following(lost=lambda: None):
        pass
    assert SHOWN in terminal.getvalue()


def test_what_a_rank_writes_keeps_its_colours(capsys: pytest.CaptureFixture[str]) -> None:
    with Display(Screen(width=400), Lines(SAID)).following(lost=lambda: None):
        pass
    assert f"[rank 0] {SAID}".replace("\x07", "") in capsys.readouterr().out


@pytest.mark.parametrize("show", [one_here, all_here, one_there, all_there, the_end])
def test_on_a_terminal_lines_are_wrapped_at_spaces_beside_their_label(
    show: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"FORCE_COLOR": "1", "NO_COLOR": "1", "TERM": "xterm", "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)
    show(tmp_path)
    # What a reader copies, such as commands and paths, is one line.
    lines = [line for line in capsys.readouterr().out.splitlines() if not COPIED.search(line)]
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("    ") for line in lines)
