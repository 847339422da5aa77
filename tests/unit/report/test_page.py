"""What the page says of a run whose program records nothing."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ddpjob_operator.api import BadInputError
from ddpjob_operator.cli.printed_records import printed
from ddpjob_operator.report import LastLines, find, render
from ddpjob_operator.report.page import _began, _lasted, settings_of
from ddpjob_operator.view_model import advice_on
from markupsafe import escape

from tests.unit.report.lines import ZERO, line, write

DOCUMENT = {
    "apiVersion": "ddpjob.dev/v1alpha2",
    "kind": "DDPJob",
    "metadata": {"name": "own"},
    "spec": {"template": {"spec": {"containers": [{"name": "trainer", "image": "any", "command": ["python"]}]}}},
}


@pytest.mark.parametrize(
    ("progress", "facts"),
    [
        (
            {"step": 7, "totalSteps": 30, "loss": 0.25},
            ["<dt>Step</dt><dd>7 of 30</dd>", "<dt>Loss</dt><dd>0.25</dd>"],
        ),
        ({"step": 7}, ["<dt>Step</dt><dd>7</dd>"]),
    ],
)
def test_how_far_it_came_is_told_by_its_supervisor(
    progress: dict[str, Any], facts: list[str], tmp_path: Path
) -> None:
    (tmp_path / "job.json").write_text(json.dumps(DOCUMENT | {"status": {"state": "Failed", "progress": progress}}))
    page = render(find(tmp_path), datetime(2026, 1, 1, tzinfo=UTC))
    assert all(fact in page for fact in facts)
    assert "<dt>Loss" in page or "loss" not in progress


def a_page(directory: Path, command: list[str]) -> str:
    trainer = {"name": "trainer", "image": "any", "command": command}
    document = DOCUMENT | {"spec": {"template": {"spec": {"containers": [trainer]}}}}
    (directory / "job.json").write_text(json.dumps(document))
    return render(find(directory), datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        (["ddpjob-train"], "No step has been seen yet."),
        (["/opt/bin/ddpjob-supervise", "train.py"], "reports its steps with ddpjob.report(step=…)."),
        (["python", "train.py"], "under ddpjob-supervise, or where the program prints: progress step=1"),
    ],
)
def test_where_there_are_no_curves_the_advice_fits_the_program(
    command: list[str], advice: str, tmp_path: Path
) -> None:
    page = a_page(tmp_path, command)
    assert advice in page
    assert "--log-dir" not in page
    assert "Checkpoints" not in page, "it has told of none"


@pytest.mark.parametrize("place", ["stalls", "volumes/checkpoints/stalls", "volumes/data/some/where/stalls"])
def test_what_ranks_did_when_they_hung_is_shown_as_text_without_secrets(place: str, tmp_path: Path) -> None:
    for attempt, rank in ((1, 0), (2, 10), (2, 9)):
        file = tmp_path / place / f"attempt-{attempt}" / f"rank-{rank}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"<b>rank {rank}</b> in load(token='not-to-be-seen')")
    page = a_page(tmp_path, ["python"])
    order = ("Attempt 2, rank 9", "Attempt 2, rank 10", "Attempt 1, rank 0")
    assert sorted(order, key=page.index) == list(order)
    assert "&lt;b&gt;rank 9&lt;/b&gt; in load" in page
    assert "not-to-be-seen" not in page


def test_of_many_long_stacks_a_part_is_shown(tmp_path: Path) -> None:
    for rank in range(20):
        write(tmp_path / "stalls" / "attempt-1" / f"rank-{rank}.txt", "x" * (32 << 10), "the rest")
    page = a_page(tmp_path, ["python"])
    assert (page.count("Attempt 1, rank "), page.count("x" * (32 << 10)), page.count("the rest")) == (16, 16, 0)


def test_the_stacks_beside_metrics_alone_are_found(tmp_path: Path) -> None:
    write(tmp_path / "metrics" / "progress.jsonl", line("started", 1, 0))
    write(tmp_path / "stalls" / "attempt-1" / "rank-0.txt", "in load_batch")
    assert "in load_batch" in render(find(tmp_path / "metrics"), datetime(2026, 1, 1, tzinfo=UTC))


def test_the_metrics_beside_checkpoints_that_a_pod_keeps_outside_its_run_are_found(tmp_path: Path) -> None:
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    write(elsewhere / "metrics" / "metrics.jsonl", line("started", 1, 0), line("progress", 1, 7, loss=0.5))
    write(run / "pods" / "own-0" / "process.json", json.dumps({"env": {"DDPJOB_CHECKPOINT_DIR": str(elsewhere)}}))
    page = a_page(run, ["python"])
    assert "<dt>Step</dt><dd>7</dd>" in page
    assert "<dt>World</dt><dd>1 process</dd>" in page, "its program does not say how many there are"


def test_a_url_for_checkpoints_is_not_looked_for_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, elsewhere = tmp_path / "run", tmp_path / "s3:" / "bucket"
    write(elsewhere / "metrics" / "metrics.jsonl", line("started", 1, 0), line("progress", 1, 7, loss=0.5))
    write(run / "pods" / "own-0" / "process.json", json.dumps({"env": {"DDPJOB_CHECKPOINT_DIR": "s3://bucket"}}))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInputError, match=r"holds neither a run \(job.json\) nor metrics"):
        find(run)


@pytest.mark.parametrize("event", ["saved", "ended", "finished"])
def test_the_step_is_the_last_one_and_not_that_of_the_last_line_of_progress(event: str, tmp_path: Path) -> None:
    began, told = line("started", 1, 0, total_steps=1000), line("progress", 1, 810, loss=0.5)
    write(tmp_path / "metrics" / "metrics.jsonl", began, told, line(event, 1, 816))
    assert "<dt>Step</dt><dd>816 of 1000</dd>" in render(find(tmp_path), datetime(2026, 1, 1, tzinfo=UTC))


def test_what_a_program_has_printed_of_rank_0_is_drawn_where_nothing_else_tells_a_loss(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "attempt-1" / "node-0.log"
    write(
        log,
        "hello",
        "progress step=1/9 loss=0.5 accuracy=0.1",
        "progress step=2/9 loss=1e-3 accuracy=0.2",
        "progress rank=1 step=7 loss=9",
        "progress step=2 loss=nan samples_per_second=7",
        "evaluated step=2 loss=0.25 f1=0.5",
        "progress epoch=3",
    )
    write(log.with_name("node-1.log"), "progress step=5 loss=9")
    write(
        tmp_path / "logs" / "attempt-2" / "node-0.log",
        *("progress step=2 loss=0.75", "progress step=3/9 loss=0.5", "saved step=4 checkpoint=last.pt"),
    )
    told = printed(tmp_path / "logs", ZERO)
    assert [(entry.attempt, entry.step, entry.number("loss")) for entry in told.of("progress")] == [
        (1, 1, 0.5),
        (2, 2, 0.75),
        (2, 3, 0.5),
    ]
    write(tmp_path / "job.json", json.dumps(DOCUMENT))
    alone = render(replace(find(tmp_path), printed=told), datetime(2026, 1, 1, tzinfo=UTC))
    assert "<dt>Step</dt><dd>4 of 9</dd>" in alone
    write(tmp_path / "metrics" / "progress.jsonl", line("started", 1, 0), line("progress", 1, 2))
    found = replace(find(tmp_path), printed=told)
    page = render(found, datetime(2026, 1, 1, tzinfo=UTC))
    assert all(f"<figcaption>{heading} " in page for heading in ("Loss", "accuracy"))


def test_a_value_that_is_secret_in_one_place_is_shown_in_no_other(tmp_path: Path) -> None:
    secret = "correct-horse-battery"
    trainer = {
        "name": "trainer",
        "image": "any",
        "command": ["python", "train.py", secret],
        "env": [{"name": "DB_PASSWORD", "value": secret}, {"name": "NOTE", "value": f"is {secret}"}],
    }
    failure = {"time": "2026-01-01T00:00:00Z", "attempt": 1, "node": 0, "pod": "own-0-x", "cause": "ProgramError"}
    status = {"state": "Failed", "message": f"no {secret}", "incidents": [failure | {"message": f"bad {secret}"}]}
    document = DOCUMENT | {"spec": {"template": {"spec": {"containers": [trainer]}}}, "status": status}
    (tmp_path / "job.json").write_text(json.dumps(document))
    options = {"options": {"note": secret, "batch": 8}, "seen": True}
    metrics = {"loss": 0.5, "metrics": {f"acc of {secret}": 1.0, "tokens_per_second": 2.0}}
    write(tmp_path / "metrics.jsonl", line("started", 1, 0, **options), line("progress", 1, 1, **metrics))
    (tmp_path / "stalls" / "attempt-1").mkdir(parents=True)
    (tmp_path / "stalls" / "attempt-1" / "rank-0.txt").write_text(f"connect('{secret}')")
    page = render(find(tmp_path), datetime(2026, 1, 1, tzinfo=UTC))
    assert secret not in page
    shown = ("python train.py •••", "is •••", "no •••", "bad •••", "acc of •••", "tokens_per_second", "connect(")
    assert [one for one in shown if one not in page] == []


@pytest.mark.parametrize(
    ("resumed", "said"), [(100, ""), (99, "1 step"), (80, "20 steps")], ids=["none", "one", "some"]
)
def test_how_many_steps_were_trained_again_is_told(resumed: int, said: str, tmp_path: Path) -> None:
    ran = line("started", 1, 0), line("progress", 1, 100, at=100)
    write(tmp_path / "progress.jsonl", *ran, line("started", 2, resumed, at=200), line("progress", 2, 120, at=300))
    page = render(find(tmp_path), ZERO)
    assert ("<dt>Trained again</dt>" in page) == bool(said)
    assert not said or f"<dt>Trained again</dt><dd>{said} after interruptions</dd>" in page


def test_steps_that_an_attempt_finished_before_it_failed_count_even_if_they_were_not_recorded(tmp_path: Path) -> None:
    seen = {"seen": True, "counted": False}
    write(
        tmp_path / "metrics" / "progress.jsonl",
        *(line("started", 1, 0, **seen), line("progress", 1, 86, at=10)),
        *(line("started", 2, 80, at=20, **seen), line("progress", 2, 200, at=30)),
    )
    incident = {"time": "2026-01-01T12:00:12Z", "attempt": 1, "node": 1, "rank": 1, "pod": "own-1"}
    incident |= {"cause": "Application", "message": "no", "step": 116}
    (tmp_path / "job.json").write_text(json.dumps(DOCUMENT | {"status": {"incidents": [incident]}}))
    page = render(find(tmp_path), ZERO)
    assert "<dt>Trained again</dt><dd>at least 36 steps after interruptions</dd>" in page


def test_a_run_that_failed_has_advice_and_its_last_lines(tmp_path: Path) -> None:
    incident = {"time": "2026-01-01T12:00:12Z", "attempt": 1, "node": 1, "rank": 1, "pod": "own-1"}
    incident |= {"cause": "OutOfMemory", "message": "killed", "exitCode": 137}
    failed = {"type": "Failed", "status": "True", "reason": "MaxRestartsExceeded", "message": "no restart is left"}
    failed |= {"lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1}
    status = {"state": "Failed", "incidents": [incident], "conditions": [failed]}
    (tmp_path / "job.json").write_text(json.dumps(DOCUMENT | {"status": status}))
    found = find(tmp_path)
    page = render(replace(found, last_lines=LastLines(1, "rank 1", ["a", "<b>"])), ZERO)
    assert found.job is not None
    assert advice_on(found.job)
    assert f"<strong>Advice</strong> {escape(advice_on(found.job))}</p>" in page
    assert '>Last lines of rank 1, attempt 1</h2>\n<pre class="scroll" tabindex="0">a\n&lt;b&gt;</pre>' in page


def test_what_there_is_nothing_of_has_no_heading(tmp_path: Path) -> None:
    page = a_page(tmp_path, ["python"])
    assert re.findall("<h2.*?</h2>", page) == []


STARTED_OVER = {"type": "StartedOver", "status": "True", "reason": "NoCheckpoint", "message": "attempt 3 at step 0"}
STARTED_OVER |= {"lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1}


@pytest.mark.parametrize(
    ("begins", "values", "condition", "said"),
    [
        ([0, 0, 0], {}, None, "attempt 2 at step 0, attempt 3 at step 0"),
        ([5, 50, 5], {}, None, "attempt 3 at step 5"),
        ([0, 50, 60], {}, None, ""),
        ([0, 0, 0], {"seen": True}, None, ""),
        ([0, 0, 0], {}, {}, ""),
        ([0, 50, 60], {}, STARTED_OVER, "attempt 3 at step 0"),
    ],
    ids=["twice", "once", "never", "seen by a supervisor", "the job does not say so", "the job says so"],
)
def test_which_attempts_began_anew_is_told(
    begins: list[int], values: dict[str, Any], condition: dict[str, Any] | None, said: str, tmp_path: Path
) -> None:
    lines = [
        one
        for attempt, step in enumerate(begins, start=1)
        for at in [1000 * attempt]
        for one in (line("started", attempt, step, at=at, **values), line("progress", attempt, 100, at=at + 500))
    ]
    write(tmp_path / "metrics" / "progress.jsonl", *lines)
    if condition is not None:
        status = {"conditions": [condition] if condition else []}
        write(tmp_path / "job.json", json.dumps(DOCUMENT | {"status": status}))
    page = render(find(tmp_path), ZERO)
    assert re.findall("<dt>Started over</dt><dd>(.*?)</dd>", page) == ([said] if said else [])


def test_with_what_a_program_ran_is_shown_of_its_last_start(tmp_path: Path) -> None:
    ran = {"options": {"lr": 0.1, "model": {"depth": 3, "act": {"name": "relu"}}}, "versions": {"torch": "2.9"}}
    write(
        tmp_path / "metrics" / "progress.jsonl",
        line("started", 1, 0, at=0, host="first", options={"lr": 0.5}),
        line("started", 2, 0, at=9, host="second", world_size=4, secret="no", environment="no", **ran),
    )
    env = [{"name": "PLAIN", "value": "x"}, {"name": "NODE", "valueFrom": {"fieldRef": {}}}, {"name": "EMPTY"}]
    trainer = {"name": "trainer", "image": "any", "command": ["python"], "env": env}
    document = DOCUMENT | {"spec": {"template": {"spec": {"containers": [trainer]}}}}
    write(tmp_path / "job.json", json.dumps(document))
    assert [*settings_of(find(tmp_path))] == [
        ("Machine", [("host", "second"), ("world_size", "4")]),
        ("Versions", [("torch", "2.9")]),
        ("Options", [("lr", "0.1"), ("model.depth", "3"), ("model.act.name", "relu")]),
        ("Variables of the template", [("PLAIN", "x"), ("NODE", "from fieldRef"), ("EMPTY", "")]),
    ]


def test_each_figure_of_a_page_is_drawn(tmp_path: Path) -> None:
    told = {"samples_per_second": 8.0, "metrics": {"accuracy": 0.5}}
    lines = (line("progress", 1, step, at=step, loss=1.0, **told) for step in (1, 2, 3))
    write(tmp_path / "progress.jsonl", line("started", 1, 0), *lines)
    page = render(find(tmp_path), ZERO)
    assert [heading for heading in ("Loss", "accuracy", "Throughput") if f"<figcaption>{heading} " not in page] == []
    assert page.count("<svg") == page.count("<figcaption>") == 3


def test_of_a_program_whose_steps_are_counted_anew_no_step_is_said_to_be_lost(tmp_path: Path) -> None:
    write(
        tmp_path / "progress.jsonl",
        line("started", 1, 0, seen=True, counted=False),
        *(line("progress", 1, step, at=step) for step in (1, 100, 2140)),
        line("started", 2, 5, at=2200, seen=True, counted=True),
        line("progress", 2, 364, at=2500),
    )
    page = render(find(tmp_path), ZERO)
    assert "<dt>Step</dt><dd>364 steps since the last restart</dd>" in page
    assert "Trained again" not in page
    assert '<td data-of="went on from"></td>' in page


def test_a_loss_that_is_not_finite_is_told_and_with_it_since_when(tmp_path: Path) -> None:
    message = "The loss has been NaN since step 25 or earlier"
    said = {"type": "LossNotFinite", "status": "True", "reason": "NotFinite", "message": message}
    said |= {"lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1}
    status = {"state": "Succeeded", "conditions": [said]}
    (tmp_path / "job.json").write_text(json.dumps(DOCUMENT | {"status": status}))
    write(tmp_path / "progress.jsonl", line("started", 1, 0, seen=True), line("progress", 1, 40, loss="NaN"))
    assert f"<dt>Loss not finite</dt><dd>{message}</dd>" in render(find(tmp_path), ZERO)


def test_what_would_turn_around_a_line_of_the_page_is_written_out(tmp_path: Path) -> None:
    hostile = "exe.\u202egnp\x1b[31m\x07"
    status = {"state": "Failed", "message": hostile}
    (tmp_path / "job.json").write_text(json.dumps(DOCUMENT | {"status": status}))
    lines = (line("progress", 1, step, at=step, loss=1.0, metrics={hostile: 1.0}) for step in (1, 2))
    write(tmp_path / "progress.jsonl", line("started", 1, 0, seen=True), *lines)
    page = render(find(tmp_path), ZERO)
    assert page.count(r"exe.\u202egnp\x1b[31m\x07") >= 2
    assert not set(page) & {"\u202e", "\x1b", "\x07"}


def test_where_no_line_can_be_read_there_is_no_page(tmp_path: Path) -> None:
    file = write(tmp_path / "metrics" / "progress.jsonl", "junk", '{"event": "progress"}')
    with pytest.raises(BadInputError, match=f"no line of {file} says when a run started"):
        find(tmp_path)


@pytest.mark.parametrize("counted", [False, True])
def test_after_a_start_that_failed_before_its_first_step_the_page_says_how_far_the_run_had_come(
    counted: bool,  # noqa: FBT001  A table.
    tmp_path: Path,
) -> None:
    write(
        tmp_path / "metrics" / "metrics.jsonl",
        line("started", 1, 0),
        line("progress", 1, 20, 10, loss=0.25, total_steps=40),
        line("started", 2, 0, 20, seen=counted, counted=counted),
    )
    page = render(find(tmp_path), ZERO)
    assert "<dt>Step</dt><dd>20 of 40</dd>" in page
    assert "Trained again" not in page
    assert "Started over" not in page


def test_of_a_run_that_was_resumed_the_page_says_how_long_this_start_took_and_all(tmp_path: Path) -> None:
    resumed = {"type": "Suspended", "status": "False", "reason": "JobResumed", "message": ""}
    status: dict[str, Any] = {
        "state": "Succeeded",
        "startTime": "2026-01-01T14:00:00Z",
        "completionTime": "2026-01-01T14:10:00Z",
        "conditions": [resumed | {"lastTransitionTime": "2026-01-01T14:00:00Z", "observedGeneration": 1}],
    }
    (tmp_path / "job.json").write_text(json.dumps(DOCUMENT | {"status": status}))
    page = render(replace(find(tmp_path), created=ZERO), ZERO)
    assert "<dt>Started</dt><dd>2026-01-01 12:00:00 UTC</dd>" in page
    assert "<dt>Duration</dt><dd>10m since it was resumed; 2h10m in all, pauses included</dd>" in page
    status["conditions"] = []
    (tmp_path / "job.json").write_text(json.dumps(DOCUMENT | {"status": status}))
    assert "<dt>Duration</dt><dd>10m</dd>" in render(replace(find(tmp_path), created=ZERO), ZERO)


@pytest.mark.parametrize(
    ("status", "began"),
    [(None, 60), ({}, 60), ({"startTime": "2026-01-01T12:00:00Z"}, 0), ({"startTime": "2026-01-01T13:00:00Z"}, 60)],
    ids=["no job", "a job that has not begun", "a job that began before", "a job that began again"],
)
def test_a_run_began_when_its_job_or_its_program_did(
    status: dict[str, Any] | None, began: int, tmp_path: Path
) -> None:
    write(tmp_path / "metrics" / "progress.jsonl", line("started", 1, 0, at=60), line("started", 2, 0, at=90))
    if status is not None:
        write(tmp_path / "job.json", json.dumps(DOCUMENT | {"status": status}))
    assert _began(find(tmp_path)) == ZERO + timedelta(seconds=began)


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (None, "1m40s"),
        ({"resumed": False, "start_time": ZERO + timedelta(seconds=60)}, "1m40s"),
        ({"resumed": True, "start_time": None}, "1m40s"),
        (
            {"resumed": True, "start_time": ZERO + timedelta(seconds=60)},
            "40s since it was resumed; 1m40s in all, pauses included",
        ),
        (
            {"resumed": True, "start_time": ZERO + timedelta(seconds=200)},
            "0s since it was resumed; 1m40s in all, pauses included",
        ),
    ],
)
def test_how_long_a_job_took_is_told_since_it_was_resumed_too(status: dict[str, Any] | None, said: str) -> None:
    job: Any = None if status is None else SimpleNamespace(status=SimpleNamespace(**status))
    assert _lasted(job, ZERO, ZERO + timedelta(seconds=100)) == said
