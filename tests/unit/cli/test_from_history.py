"""`--history` of `ddpjob logs`, `status` and `report`: no pod, no job, no cluster."""

import json
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from ddpjob_operator.cli import from_history, prune
from ddpjob_operator.cli.from_history import _end, _incidents, _moment
from ddpjob_operator.cli.main import main
from ddpjob_operator.cli.top.feeds import KeptJobs
from ddpjob_operator.history import PlaceError, open_place
from ddpjob_operator.history.places import DirectoryPlace
from ddpjob_rank.recording.event import Event
from ddpjob_supervisor.history.history import seen_by_operator
from ddpjob_supervisor.history.journal import Journal
from ddpjob_supervisor.history.secret_values import SecretValues
from ddpjob_supervisor.history.segments import HistoryWriter
from ddpjob_supervisor.history.targets import DirectoryTarget

Says = Callable[..., str]

INCIDENT = {"attempt": 1, "node": 1, "rank": 2, "cause": "OOMKilled", "message": "killed\x1b[2J", "step": 12}


def keep(
    directory: Path,
    node: int,
    *content: bytes | Event,
    attempt: int = 1,
    incarnation: int = 1,
    job: tuple[str, str] = ("digits", "a-uid"),
) -> None:
    writer = HistoryWriter("team", *job, node, incarnation, 2)
    target = DirectoryTarget(directory, writer)
    journal = Journal(str(directory), writer, SecretValues({}), attempt, lambda: target)
    for item in content:
        if isinstance(item, Event):
            journal.note(item)
        else:
            journal.attempt = 2
            journal.hear(1, item)
    journal.close(30)


def event(word: str, attempt: int, step: int, **values: Any) -> Event:
    return Event(word, time.time(), attempt, step, values)


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A job of two nodes whose rank 2 failed first, and which was done in its second attempt."""
    again = b"attempt 2 begins in place: rank 2 on node 1 failed\n"
    keep(
        tmp_path,
        0,
        b"loading\n" + again + b"done 0\n",
        event("started", 1, 0, seen=True),
        event("progress", 1, 12, loss=0.5, total_steps=40),
        event("incident", 1, 12, incident=INCIDENT),
        event("rank_ended", 1, 12, rank=0, exitCode=137, cause="", message=""),
        event("code_replaced", 2, 12, revision=3, digest="4c" * 32, by="alice@laptop"),
        event("code_failed", 2, None, revision=4, digest="5d" * 32, by="bob", story="failed at once"),
        event("started", 2, 10, seen=True),
        event("progress", 2, 40, loss=0.25, total_steps=40),
        event("rank_ended", 2, 40, rank=0, exitCode=0, cause="", message=""),
        event("finished", 2, 40),
    )
    keep(tmp_path, 1, b"boom\x1b[2J\n" + again + b"done 1\n")
    return tmp_path


@pytest.fixture
def says(kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Says:
    """What a command prints, on both streams."""
    monkeypatch.chdir(tmp_path)

    def says(*words: str, code: int = 0, place: Path = kept) -> str:
        monkeypatch.setattr("sys.argv", ["ddpjob", *words, "--history", str(place)])
        with pytest.raises(SystemExit) as end:
            main()
        shown = capsys.readouterr()
        assert end.value.code == code, shown
        return shown.out + shown.err

    return says


def test_logs_has_all_nodes_and_all_attempts_of_the_last_pods(says: Says) -> None:
    lines = says("logs", "digits").splitlines()
    assert [line for line in lines if "begins" not in line] == [
        *("[node 0] loading", "[node 0] done 0"),
        *("[node 1] boom\x1b[2J", "[node 1] done 1"),
    ]


@pytest.mark.parametrize("flags", [("--attempt", "1"), ("--previous",)])
def test_logs_of_an_attempt_begin_with_the_node_that_failed_first(says: Says, flags: tuple[str, ...]) -> None:
    assert says("logs", "team/digits", *flags).splitlines() == ["[node 1] boom\x1b[2J", "[node 0] loading"]


def test_logs_can_be_limited(says: Says) -> None:
    assert says("logs", "--node", "1", "--tail", "1") == "[node 1] done 1\n"
    assert says("logs", "--rank", "3", "--tail", "1") == "[node 1] done 1\n", "two ranks of a node write to its log"
    assert says("logs", "-n", "team", "--since", "1h").count("\n") == 6
    moment, text = says("logs", "--node", "0", "--tail", "1", "--timestamps").removeprefix("[node 0] ").split(" ", 1)
    assert (moment[-1], text) == ("Z", "done 0\n")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("logs", "other"), "holds no history of a job named other"),
        (("logs", "digits", "--node", "7"), "there is no log of node 7; there is one of node 0, 1"),
        (("logs", "digits", "--rank", "4"), "digits has no rank 4: its ranks are numbered 0 to 3"),
        (("logs", "digits", "--rank", "1", "--node", "1"), "argument --node: not allowed with argument --rank"),
        (("logs", "digits", "--attempt", "3"), "no log of attempt 3 is kept; there is 1, 2"),
        (("logs", "digits", "-f"), "--follow does not go with --history"),
        (("status", "digits", "--stacks"), "--stacks does not go with --history"),
        (("logs", "digits", "--uid", "x"), "with the uid x"),
    ],
)
def test_what_cannot_be_had_is_said(says: Says, words: tuple[str, ...], problem: str) -> None:
    assert problem in says(*words, code=2)


def test_status_tells_what_supervisors_have_recorded(says: Says) -> None:
    shown = says("status")
    for line in (
        *(
            "Name:         digits",
            "State:        Succeeded",
            "Namespace:    team",
            "Uid:          a-uid",
            "World:        2 nodes x 2 processes",
        ),
        *("End:          the program finished", "Attempts:     1 to 2", "Progress:     step 40 of 40"),
        "New code:     revision 3 (4c4c4c4c4c4c), sent by alice@laptop; in place since attempt 2",
        "Failed code:  revision 4 (5d5d5d5d5d5d), sent by bob; failed at once, so the former code ran again",
        *("Loss:         0.25", "Incidents:    attempt 1, rank 2 on node 1: OOMKilled: killed\\x1b[2J"),
    ):
        assert line in shown


@pytest.fixture
def held(tmp_path: Path) -> Path:
    """A job that was held, and on which two programs were run."""
    directory = tmp_path / "held"
    keep(
        directory,
        0,
        event("program", 1, 0, program="train.py", code="0123456789ab", by="alice@laptop"),
        event("started", 1, 0, seen=True),
        event("progress", 1, 12, loss=0.5),
        event("program_ended", 1, 12, exitCode=1, message="rank 1 failed: <b>bad</b>\x1b[2J"),
        event("program", 2, 0, program="train.py", code="fedcba987654", by="bob@laptop"),
        event("started", 2, 0, seen=True),
        event("progress", 2, 40, loss=0.25),
        event("program_ended", 2, 40, exitCode=0, message=""),
        event("hold_ended", 3, 0, idleSeconds=1800.0),
        event("ended", 2, 0, result="succeeded", exitCode=0),
        job=("dev", "b-uid"),
    )
    return directory


def test_the_programs_of_a_held_job_are_listed_and_are_no_incidents(held: Path, says: Says, tmp_path: Path) -> None:
    shown = says("status", "dev", place=held)
    assert "End:          the hold ended, because no program had run for its idle time\n" in shown
    assert [line[14:] for line in shown.splitlines()[-2:]] == [
        "attempt 2, train.py (code fedcba987654, run by bob@laptop): done",
        r"attempt 1, train.py (code 0123456789ab, run by alice@laptop): rank 1 failed: <b>bad</b>\x1b[2J",
    ]
    says("report", "dev", "--output", str(tmp_path / "page.html"), place=held)
    page = (tmp_path / "page.html").read_text()
    assert "started again" not in page
    assert "alice@laptop" in page
    assert "&lt;b&gt;bad" in page


def test_of_many_programs_the_newest_are_shown(held: Path, says: Says, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(from_history, "PROGRAMS", 1)
    shown = says("status", "dev", place=held)
    assert "attempt 2, train.py (code fedcba987654" in shown
    assert "attempt 1, train.py" not in shown


@pytest.mark.parametrize(("most", "ranks"), [(2, [0, 2, 3]), (1, [0])])
def test_of_a_job_that_is_not_too_large_the_end_of_each_rank_is_read(
    kept: Path, says: Says, monkeypatch: pytest.MonkeyPatch, most: int, ranks: list[int]
) -> None:
    monkeypatch.setattr(from_history, "NODES", most)
    keep(kept, 1, *(event("rank_ended", 2, 40, rank=rank, exitCode=0) for rank in (2, 3)), incarnation=2)
    assert [end["rank"] for end in json.loads(says("status", "-o", "json"))["ranks"]] == ranks


@pytest.mark.parametrize(
    ("code", "attempt", "shown"), [(0, 1, "the program finished"), (3, 1, "none"), (0, 2, "none")]
)
def test_a_program_that_reports_no_steps_has_finished_when_all_its_ranks_have(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    code: int,
    attempt: int,
    shown: str,
) -> None:
    ends = [event("rank_ended", 1, 0, rank=rank, exitCode=exits) for rank, exits in enumerate((0, code))]
    keep(tmp_path, 0, b"done\n", *ends)
    if attempt > 1:
        keep(tmp_path, 0, b"again\n", attempt=attempt, incarnation=attempt)
    monkeypatch.setattr("sys.argv", ["ddpjob", "status", "--history", str(tmp_path)])
    with pytest.raises(SystemExit):
        main()
    assert f"End:          {shown}" in capsys.readouterr().out


def test_a_quiet_program_has_a_report(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    keep(tmp_path, 0, event("started", 1, 0, seen=True))
    page = tmp_path / "page.html"
    monkeypatch.setattr("sys.argv", ["ddpjob", "report", "--history", str(tmp_path), "--output", str(page)])
    with pytest.raises(SystemExit) as end:
        main()
    assert (end.value.code, page.exists()) == (0, True)


def test_logs_are_found_if_the_first_nodes_have_printed_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.argv", ["ddpjob", "logs", "--history", str(tmp_path)])
    for node in range(9):
        keep(tmp_path, node, event("started", 1, 0, seen=True), *[b"the only words\n"] * (node == 8))
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().out == "[node 8] the only words\n"


def test_a_name_that_several_jobs_had_tells_how_to_choose(says: Says, kept: Path) -> None:
    for number in range(7):
        keep(kept, 0, b"again\n", job=("digits", f"{number}-uid"))
    shown = says("logs", "digits")
    assert "this is the newest of 8 jobs named digits. Choose another one with --uid:" in shown
    assert [line.split()[2] for line in shown.splitlines() if "  --uid " in line] == [
        f"{n}-uid" for n in range(5, 0, -1)
    ]
    assert f"and 2 more, which ddpjob ls digits --history {kept} lists" in shown
    assert says("logs", "digits", "--uid", "a-").endswith("done 1\n")
    assert "began" not in says("status", "digits", "--uid", "3-uid")


def test_top_shows_what_is_kept_in_one_line_and_in_full(says: Says, kept: Path) -> None:
    head, _, row = says("top", "--once").splitlines()
    assert (head, row.split()[:3]) == ("1 job: 1 Unknown", ["history", "digits", "Unknown"])
    assert "--local does not go with --history" in says("top", "--once", "--local", code=2)
    feed = KeptJobs(open_place(str(kept)), None)
    feed.fetch()
    (one,) = feed.rows(datetime.now(UTC))
    found = feed.detail(one.key, datetime.now(UTC))
    assert found is not None
    assert found.axis is not None
    assert (found.lines["End"], found.curves["loss"].points) == ("the program finished", [(40, 0.25)])
    assert [incident.message for incident in found.axis.incidents] == [r"killed\x1b[2J"]


def test_jobs_are_listed_the_newest_first(says: Says, kept: Path) -> None:
    keep(kept, 0, b"later\n", job=("other", "b-uid"))
    rows = [line.split() for line in says("ls").splitlines()]
    assert rows[0] == ["NAMESPACE", "NAME", "RESULT", "AGE", "BEGAN", "UID"]
    assert [(row[0], row[1], row[-1]) for row in rows[1:]] == [
        ("team", "other", "b-uid"),
        ("team", "digits", "a-uid"),
    ]
    again = [line.split() for line in says("status").splitlines()]
    assert [row[-2:] for row in again] == [row[-2:] for row in rows]
    assert says("ls", "team/digits").count("\n") == 2
    assert [job["uid"] for job in json.loads(says("ls", "-o", "json"))] == ["b-uid", "a-uid"]
    assert "which job? team/other, team/digits" in says("logs", code=2)
    assert "lists no history of a job named none" in says("ls", "none", code=2)
    assert "--state does not go with --history" in says("ls", "--state", "Running", code=2)


def test_on_a_narrow_terminal_no_line_is_too_long(says: Says, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    message = "rank 2 on node 1 was killed, because it had used more memory than its limit permits: " + "more " * 30
    again = event("incident", 2, 40, incident=INCIDENT | {"message": message})
    keep(kept, 0, again, job=("digits-of-the-seventh-sweep-of-june", "8b59f1a0-2df5-4d0e-8d22-b5a4a7c5a9f0"))
    for name, value in {"FORCE_COLOR": "1", "NO_COLOR": "1", "TERM": "xterm", "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)
    shown = says("status", "digits-of-the-seventh-sweep-of-june")
    assert max(map(len, shown.splitlines())) <= 80
    assert f"rank 2 on node 1: OOMKilled: rank 2 on node 1 was\n{'':<14}killed, because" in shown
    listed = says("ls")
    assert max(map(len, listed.splitlines())) <= 80
    assert "digits-of-the-seventh-sweep-of-june" in listed
    assert " 8b59f1a0" in listed


def test_prune_removes_only_what_it_says(says: Says, kept: Path) -> None:
    keep(kept, 0, b"later\n", job=("digits", "b-uid"))
    (entry,) = (kept / "team/_jobs").glob("*a-uid*")
    entry.with_name(f"{entry.name}_failed").touch()
    keeps = "0 jobs, 0 B; 2 jobs remain"
    assert says("prune", "--keep", "2") == f"{keeps}\n"
    for limits, number in ((("--keep", "1"), "1 job"), (("--keep", "0"), "2 jobs")):
        assert says("prune", *limits).startswith(f"{keeps}\nddpjob: {number} may still run: a job is removed a day")
    for file in (kept / "team/digits/a-uid").rglob("*"):
        os.utime(file, (1e9, 1e9))
    for limits in (("--keep", "2"), ("other", "--keep", "0"), ("--max-size", "1Gi"), ("other/digits", "--keep", "0")):
        assert says("prune", *limits).startswith("0 jobs, 0 B")
    for limits in (("--keep", "1"), ("digits", "--keep", "0"), ("--max-size", "1k")):
        shown = says("prune", *limits, "--dry-run").splitlines()
        assert shown[0].startswith("would remove team/digits a-uid, which began 20")
        assert shown[1].endswith("; 1 job remains")
    assert says("prune", "--keep", "1").startswith("removed team/digits a-uid")
    assert not (kept / "team/digits/a-uid").exists()
    assert says("ls").count("\n") == 2
    assert "use --keep, --older-than or --max-size" in says("prune", code=2)
    assert "must be a quantity of bytes" in says("prune", "--max-size", "much", code=2)


def test_prune_goes_on_after_a_job_that_it_cannot_remove(
    says: Says, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("first", "last"):
        keep(kept, 0, b"done\n", job=(name, f"{name}-uid"))
        (entry,) = (kept / "team/_jobs").glob(f"*_{name}-uid_*")
        entry.with_name(f"{entry.name}_failed").touch()
    for file in kept.rglob("*"):
        os.utime(file, (1e9, 1e9))
    real = DirectoryPlace.remove

    def remove(place: DirectoryPlace, path: str) -> None:
        if path.startswith("team/first/"):
            raise PlaceError(f"cannot remove {path}: Permission denied")
        real(place, path)

    monkeypatch.setattr(DirectoryPlace, "remove", remove)
    shown = says("prune", "--keep", "0", code=1)
    assert "team/first first-uid is not removed, or not all of it: cannot remove team/first/" in shown
    assert "removed team/last last-uid" in shown
    assert (kept / "team/first/first-uid").exists()
    assert not (kept / "team/last/last-uid").exists()


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536 << 10, "1.5 MiB"),
        (1 << 30, "1.0 GiB"),
        (5 << 40, "5120.0 GiB"),
    ],
)
def test_what_was_freed_is_told_in_a_unit_that_fits(size: int, words: str) -> None:
    assert prune._in_units(size) == words


def test_the_folder_of_a_job_is_no_list(
    kept: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for words, problem in (
        (("ls", "--history", str(kept / "team/digits/a-uid")), "is the folder of one job: see it with ddpjob status"),
        (
            ("prune", "--keep", "1", "--history", str(kept / "team/digits/a-uid")),
            "is the folder of one job: name the place that contains its namespace",
        ),
        (("ls", "digits"), "a name goes with --history; ddpjob status digits shows a run"),
    ):
        monkeypatch.setattr("sys.argv", ["ddpjob", *words])
        with pytest.raises(SystemExit):
            main()
        assert problem in capsys.readouterr().err


def test_status_as_json(says: Says) -> None:
    document = json.loads(says("status", "-o", "json"))
    assert (document["uid"], document["attempts"], document["finished"]) == ("a-uid", [1, 2], True)
    assert [incident["rank"] for incident in document["incidents"]] == [2]
    assert [(end["rank"], end["exitCode"]) for end in document["ranks"]] == [(0, 0)]


@pytest.mark.parametrize("word", ["facts", "progress", "incident", "rank_ended", "finished"])
def test_events_that_are_not_as_they_should_be_end_nothing(says: Says, kept: Path, word: str) -> None:
    for number, odd in enumerate((None, [], {}, "x", -1, 1e400, {"attempt": "x"})):
        values = dict.fromkeys(("incident", "rank", "loss", "total_steps", "cause"), odd)
        keep(kept, 0, event(word, 2, 41, **values), incarnation=number + 2, attempt=2)
    for command in ("status", "report", "logs"):
        says(command)


def test_report_is_drawn_from_it(says: Says, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert says("report", "digits", "--output", str(page)).startswith("written: ")
    text = page.read_text()
    assert "rank 2: OOMKilled" in text
    assert "Finished" in text


SILENT = "Kubernetes node a is not ready: its kubelet is silent"
LOST = {"attempt": 1, "node": 1, "cause": "NodeLost", "message": SILENT}


def test_what_the_operator_knows_of_an_incident_is_shown_instead_of_what_supervisors_saw(
    kept: Path, says: Says
) -> None:
    told = seen_by_operator(json.dumps(LOST))
    assert told is not None
    keep(kept, 0, told, event("begun", 2, 0), attempt=2, incarnation=2)
    shown = [line for line in says("status", "digits").splitlines() if "attempt 1, " in line]
    assert shown == [f"Incidents:    attempt 1, node 1: NodeLost: {SILENT}"]
    assert json.loads(says("status", "digits", "-o", "json"))["incidents"] == [LOST]


def test_only_the_last_incidents_are_shown(kept: Path, says: Says) -> None:
    keep(kept, 0, *(event("incident", n, 1, incident=INCIDENT | {"attempt": n}) for n in range(2, 31)), incarnation=2)
    shown = says("status", "digits")
    assert [attempt for attempt in range(1, 31) if f"attempt {attempt}, rank 2" in shown] == [*range(15, 31)]


GONE = "it still runs, or was lost with its node"


@pytest.mark.parametrize(
    ("incidents", "reached", "stopped", "end"),
    [
        ([], 1, "", f"none was recorded: {GONE}"),
        ([], 1, "SIGTERM", "the program was told to stop (SIGTERM)"),
        ([1], 1, "", "OutOfMemory: at 1"),
        ([1], 2, "", f"none was recorded since the last incident: {GONE}"),
        ([1, 3], 3, "SIGTERM", "OutOfMemory: at 3"),
        ([1, 3], 4, "SIGTERM", "the program was told to stop (SIGTERM)"),
        (["x"], 4, "", "OutOfMemory: at x"),
    ],
)
def test_how_it_ended_is_what_was_recorded_last(incidents: list[Any], reached: int, stopped: str, end: str) -> None:
    told = [{"cause": "OutOfMemory", "message": f"at {attempt}", "attempt": attempt} for attempt in incidents]
    seen = SimpleNamespace(last_incident=told[-1] if told else {}, reached=reached, stopped=stopped)
    assert _end(cast("Any", seen)) == end


def test_jobs_of_a_history_are_compared(says: Says, kept: Path, tmp_path: Path) -> None:
    keep(kept, 0, event("started", 1, 0, seen=True), event("progress", 1, 12, loss=0.5), job=("second", "s-uid"))
    assert says("report", "digits", "team/second") == "written: comparison.html\n"
    text = (tmp_path / "comparison.html").read_text()
    assert text.count(">loss <span>by step</span>") == 1
    assert '<span class="run-1">second</span>' in text
    assert "no history of a job named third" in says("report", "digits", "third", code=2)


def test_a_report_has_the_last_lines_of_the_node_that_failed_first(says: Says, kept: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    incident = INCIDENT | {"time": "2026-01-01T12:00:00Z"}
    keep(kept, 0, event("incident", 1, 12, incident=incident), incarnation=2, attempt=2)
    says("report", "digits", "--output", str(page))
    text = page.read_text()
    assert ">Last lines of node 1, attempt 1</h2>" in text
    assert r'<pre class="scroll" tabindex="0">boom\x1b[2J</pre>' in text


def test_a_program_that_reports_nothing_has_ended_all_the_same(says: Says, tmp_path: Path, kept: Path) -> None:
    incident = INCIDENT | {"exception": "MemoryError", "message": "no more", "time": "2026-01-01T12:00:00Z"}
    job = ("quiet", "q-uid")
    keep(kept, 0, event("begun", 1, 0), event("incident", 1, 0, incident=incident), job=job)
    keep(kept, 0, event("begun", 2, 0), event("ended", 2, 0, result="succeeded"), job=job, attempt=2, incarnation=2)
    shown = says("status", "quiet")
    assert "End:          the program finished" in shown
    assert "Attempts:     1 to 2" in shown
    assert ": MemoryError: no more" in shown
    page = tmp_path / "page.html"
    says("report", "quiet", "--output", str(page))
    text = page.read_text()
    assert "quiet: Succeeded" in text
    assert "1 node x 2 processes" in text
    assert "MemoryError: no more" in text


def test_a_job_that_was_told_to_stop_and_one_that_ended_before_it_printed(says: Says, kept: Path) -> None:
    job = ("quiet", "q-uid")
    keep(kept, 0, event("begun", 1, 0), event("stopping", 1, 0, signal="SIGTERM"), job=job)
    assert "End:          the program was told to stop (SIGTERM)" in says("status", "quiet")
    assert "the history of quiet has no log: none of its ranks has printed anything" in says("logs", "quiet", code=2)
    job = ("short", "s-uid")
    keep(kept, 0, b"a line\n", job=job)
    assert "there is no previous attempt; leave out --previous" in says("logs", "short", "--previous", code=2)


@pytest.mark.parametrize("most", [1, 2])
def test_that_there_are_more_jobs_is_said(says: Says, kept: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    keep(kept, 0, b"a line\n", job=("second", "s-uid"))
    monkeypatch.setattr("ddpjob_operator.cli.kept_jobs.MOST_JOBS", most)
    shown = says("ls")
    assert ("there are more jobs; only the newest 1 were looked at" in shown) is (most == 1)
    assert shown.count("-uid") == most


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00+14:00", "2026-01-01T12:00:00", "yesterday", 5, None])
def test_a_time_that_cannot_be_read_is_none(time: Any) -> None:
    assert _moment(time) is None
    seen: Any = SimpleNamespace(incidents={1: INCIDENT | {"time": time}})
    assert [*_incidents(seen)] == []


@pytest.mark.parametrize(
    ("values", "lines"),
    [
        ({"loss": 1 / 3, "total_steps": 9}, ["Progress:     step 7 of 9", "Loss:         0.3333"]),
        ({"loss": "NaN"}, ["Progress:     step 7", "Loss:         NaN"]),
        ({"loss": None, "total_steps": "x"}, ["Progress:     step 7"]),
    ],
)
def test_progress_is_told_as_far_as_it_was_recorded(
    says: Says, kept: Path, values: dict[str, Any], lines: list[str]
) -> None:
    keep(kept, 0, event("progress", 1, 7, **values), job=("other", "o-uid"))
    shown = says("status", "other").splitlines()
    assert [line for line in shown if line.startswith(("Progress:", "Loss:"))] == lines
