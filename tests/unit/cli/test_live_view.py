"""What the live display shows of a run at a moment."""

import io
import random
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from ddpjob_operator.api import DDPJobStatus
from ddpjob_operator.cli.live_view import live_view
from ddpjob_operator.cli.run_logs import Line
from ddpjob_operator.cli.screen import Screen
from ddpjob_operator.view_model import LoggedProgress, parse

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RANK = re.compile(r" *(\d+) +(\d+)/100")


def ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).isoformat()


def running(**more: Any) -> DDPJobStatus:
    said = {"type": "Running", "status": "True", "reason": "AllPodsRunning", "message": "1 node running"}
    said |= {"observedGeneration": 1}
    conditions = [{**said, "lastTransitionTime": ago(12)}]
    return DDPJobStatus.model_validate(
        {"state": "Running", "message": "1 node running", "attempt": 1, "startTime": ago(100)}
        | {"conditions": conditions}
        | more
    )


def logged(*lines: str, attempt: int = 1, seconds: float = 3) -> LoggedProgress:
    progress = LoggedProgress()
    for line in lines:
        report = parse(line)
        assert report is not None
        progress.take(0, report, attempt, NOW - timedelta(seconds=seconds))
    return progress


def shown(
    progress: LoggedProgress, status: DDPJobStatus | None, *bars: str, width: int = 80, height: int = 24
) -> list[str]:
    terminal = io.StringIO()
    screen = Screen(file=terminal, width=width, height=height)
    view = live_view(progress, status, [Line(0, 1, bar) for bar in bars], NOW, height)
    screen.print(view, soft_wrap=False)
    return [line.rstrip() for line in terminal.getvalue().splitlines()]


@pytest.mark.parametrize(("height", "each"), [(10, 1), (24, 3), (60, 3)])
def test_of_many_ranks_the_slowest_and_the_fastest_are_shown_and_the_bar_comes_last(height: int, each: int) -> None:
    steps = {rank: random.randint(20, 80) for rank in range(60)}
    steps |= {random.randrange(20): 7, random.randrange(20, 40): 8, random.randrange(40, 60): 99}
    progress = logged(*(f"progress rank={rank} step={step}/100" for rank, step in steps.items()))
    lines = shown(progress, running(), "bar", height=height)
    by_rank = [(int(found[1]), int(found[2])) for line in lines if (found := RANK.match(line))]
    assert {rank: steps[rank] for rank, _ in by_rank} == dict(by_rank)
    assert [step for _, step in by_rank] == [*sorted(steps.values())[:each], *sorted(steps.values())[-each:]]
    assert f"60 ranks: the slowest {each}, {60 - 2 * each} between, the fastest {each}" in lines
    assert lines[-1].endswith(" 7%")
    assert len(lines) <= min(height, 24)


@pytest.mark.parametrize(("height", "fits"), [(10, False), (24, True)])
def test_a_rank_more_or_less_is_no_reason_to_leave_any_out(height: int, *, fits: bool) -> None:
    lines = shown(logged(*(f"progress rank={rank} step=1/2" for rank in range(8))), running(), height=height)
    assert len(lines) <= height
    assert any("between" in line for line in lines) is not fits
    assert any(line.strip() == "…" for line in lines) is not fits


def test_a_long_value_of_a_program_takes_no_room_from_what_every_program_reports() -> None:
    long = "x" * random.randint(80, 200)
    lines = shown(logged(f"progress step=5/100 loss=0.25 file={long} note={long}"), running())
    assert re.fullmatch(r"rank +epoch +step +loss +samples/s +ETA +file +note", lines[0])
    assert re.fullmatch(r" +0 +5/100 +0\.25 +x+… +x+…", lines[1])
    assert len(lines) == 4


def test_however_many_ranks_have_a_progress_bar_there_is_room_for_the_job() -> None:
    lines = shown(logged("progress step=1/2"), running(), *(f"bar {number}" for number in range(40)))
    assert lines[4:6] == ["[rank 0] bar 4", "… and 35 more"]
    assert len(lines) < 12


@pytest.mark.parametrize(
    ("sentence", "progress", "status", "words"),
    [
        (
            "how long ago a step was finished",
            logged("progress step=1/9"),
            {},
            "last step 3s ago, 1m40s elapsed",
        ),
        (
            "what the supervisor counts, if the script prints nothing",
            logged(),
            {"progress": {"attempt": 1, "step": 7, "lastStepTime": ago(9)}},
            "step 7, last step 9s ago, 1m40s elapsed",
        ),
        (
            "that a step takes much longer than usual",
            logged(),
            {"progress": {"attempt": 1, "step": 7, "lastStepTime": ago(45), "stepSeconds": 0.214}},
            "step 7, last step 45s ago (usually 0.21 s), 1m40s elapsed",
        ),
        (
            "when that counts as a stall",
            logged(),
            {
                "progress": {
                    "attempt": 1,
                    "step": 7,
                    "lastStepTime": ago(45),
                    "stepSeconds": 2,
                    "stallLimitSeconds": 480,
                }
            },
            "step 7, last step 45s ago (usually 2 s), stalled in 7m15s, 1m40s elapsed",
        ),
        (
            "the same of a save, which has no usual time",
            logged(),
            {"progress": {"attempt": 1, "step": 7, "lastStepTime": ago(45), "stallLimitSeconds": 80}},
            "step 7, last step 45s ago, stalled in 35s, 1m40s elapsed",
        ),
        (
            "that an evaluation goes on, which is then not late",
            logged(),
            {
                "progress": {
                    "attempt": 1,
                    "step": 7,
                    "lastStepTime": ago(900),
                    "activity": "Evaluating",
                    "activityTime": ago(2),
                    "stepSeconds": 0.2,
                    "stallLimitSeconds": 600,
                }
            },
            "step 7, evaluating, last step 15m ago, 1m40s elapsed",
        ),
        (
            "when an evaluation that stands still counts as stalled",
            logged(),
            {
                "progress": {
                    "attempt": 1,
                    "step": 7,
                    "lastStepTime": ago(900),
                    "activity": "Evaluating",
                    "activityTime": ago(400),
                    "stallLimitSeconds": 600,
                }
            },
            "step 7, evaluating, last step 15m ago, stalled in 3m20s, 1m40s elapsed",
        ),
        (
            "nothing of stalls while steps come",
            logged(),
            {
                "progress": {
                    "attempt": 1,
                    "step": 7,
                    "lastStepTime": ago(9),
                    "stepSeconds": 2,
                    "stallLimitSeconds": 60,
                }
            },
            "step 7, last step 9s ago, 1m40s elapsed",
        ),
        (
            "what the message has beyond that it runs",
            logged(),
            {"message": "1 node running; the loss is NaN"},
            "1 node running; the loss is NaN",
        ),
        (
            "that nothing has come yet",
            logged(),
            {},
            "waiting for the first step (12s), 1m40s elapsed",
        ),
        (
            "that nothing has come yet since a restart, of which the lines tell",
            logged("progress step=1/9"),
            {"attempt": 2, "progress": {"attempt": 1, "lastStepTime": ago(9)}},
            "waiting for the first step of attempt 2 (12s), 1m40s elapsed",
        ),
        (
            "what the job waits for",
            logged(),
            {"state": "Restarting", "message": "Waiting 9s\x1b[2J"},
            r"Waiting 9s\x1b[2J, 1m40s elapsed",
        ),
        (
            "that it has stalled",
            logged("progress step=1/9", seconds=70),
            {"state": "Stalled", "message": "Training has stalled"},
            "Training has stalled, last step 70s ago, 1m40s elapsed",
        ),
    ],
)
def test_while_nothing_comes_it_says(
    sentence: str, progress: LoggedProgress, status: dict[str, Any], words: str
) -> None:
    assert words in shown(progress, running(**status)), sentence


def test_a_long_message_or_value_is_cut_at_the_end_of_the_line() -> None:
    status = running(state="Restarting", message="no " * 300)
    assert len(shown(logged(f"progress step=1/9 loss={'9' * 999}"), status)) == 4


def test_after_a_restart_the_ranks_of_the_attempt_before_are_forgotten_once_one_reports() -> None:
    progress = logged("progress rank=0 step=7", "progress rank=1 step=7")
    report = parse("progress rank=1 step=5")
    assert report is not None
    progress.take(0, report, 2, NOW)
    assert list(progress.ranks) == [1]
    late = parse("progress rank=0 step=8")
    assert late is not None
    progress.take(0, late, 1, NOW)
    assert list(progress.ranks) == [1]
