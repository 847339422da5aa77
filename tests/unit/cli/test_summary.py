"""What remains on the screen when a job has ended."""

import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from ddpjob_operator.api import DDPJob
from ddpjob_operator.cli.run import _say_what_came_of_it
from ddpjob_operator.cli.screen import Screen
from ddpjob_operator.cli.summary import NO_NCCL, advise, summarise
from ddpjob_operator.local import RunDirectory
from ddpjob_operator.view_model import LoggedProgress, Report

TO_ADD = "Ranks have no terminal, so breakpoint() and input() end them. To give rank 1 yours, add --attach 1 to your"
FAILURE = {
    "time": "2026-01-01T00:00:00Z",
    "attempt": 1,
    "node": 1,
    "rank": 1,
    "pod": "digits-1-x",
    "cause": "Application",
}
FAILED = {
    "type": "Failed",
    "status": "True",
    "message": "x",
    "observedGeneration": 1,
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


def a_job(state: str, message: str, **status: Any) -> DDPJob:
    template = {"spec": {"containers": [{"name": "trainer", "image": "any"}]}}
    said = {"state": state, "message": message, "restarts": 1, "incidents": [{**FAILURE, "message": "no"}], **status}
    return DDPJob.from_dict({"metadata": {"name": "digits"}, "spec": {"template": template}, "status": said})


def summary(state: str, message: str, said: LoggedProgress | None = None, **status: Any) -> str:
    said_on = io.StringIO()
    job = a_job(state, message, **status)
    summarise(Screen(file=said_on, width=200), job, said or LoggedProgress(), checkpoint=None, logs="logs")
    return said_on.getvalue()


def test_why_a_job_failed_is_told_once() -> None:
    said = summary("Failed", "Rank 1 failed: Application: no", conditions=[{**FAILED, "reason": "Application"}])
    assert (said.count("rank 1") + said.count("Rank 1"), "restarts   1\n" in said) == (1, True), said


@pytest.mark.parametrize("reason", ["DeadlineExceeded", ""])
def test_what_was_overcome_is_told_beside_how_the_job_ended(reason: str) -> None:
    ended = [{**FAILED, "reason": reason}] if reason else []
    said = summary("Failed" if reason else "Succeeded", "2 nodes finished", conditions=ended)
    assert "restarts   1 (last: rank 1, Application: no)" in said


def test_a_program_that_says_finished_in_its_own_words_is_summed_up_without_them() -> None:
    said = summary("Succeeded", "2 nodes finished", LoggedProgress(finished=Report("finished", {"epoch": "1"})))
    assert "throughput" not in said


def test_the_step_is_the_supervisors_where_no_line_told_one() -> None:
    assert "step       120\n" in summary("Succeeded", "2 nodes finished", progress={"step": 120})


@pytest.mark.parametrize(
    ("sentence", "lines", "status", "row"),
    [
        ("that a rank reports", ["loss 7", "progress step=1 loss=0.5"], {"loss": 1}, "0.5"),
        ("that the supervisor reports", ["loss 7"], {"step": 3, "loss": 0.123456}, "0.1235"),
        (
            "that the script only prints",
            ["iter 1: loss 7.5", "iter 2: loss 6.5\x1b[2J", "done"],
            {"step": 3},
            r"6.5 (from its log: iter 2: loss 6.5\x1b[2J)",
        ),
        (
            "in a long line",
            [f"loss 7 {'x' * 900}"],
            {},
            f"7 (from its log: loss 7 {'x' * 73}…)",
        ),
    ],
)
def test_the_end_shows_the_last_loss(sentence: str, lines: list[str], status: dict[str, Any], row: str) -> None:
    logged = LoggedProgress()
    for line in lines:
        logged.hear(0, line)
    assert f"  loss       {row}\n" in summary("Succeeded", "1 node finished", logged, progress=status), sentence


def test_a_script_without_a_loss_has_no_line_for_one() -> None:
    assert "loss" not in summary("Succeeded", "1 node finished", LoggedProgress())


@pytest.mark.parametrize(
    ("times", "seconds", "shown"),
    [
        ({"startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T01:05:00Z"}, 7.0, "1h5m"),
        ({}, 71.2, "1m11s"),
    ],
    ids=["of the job", "of the command, as after a stop"],
)
def test_the_end_shows_how_long_it_took(times: dict[str, str], seconds: float, shown: str) -> None:
    said_on = io.StringIO()
    job = a_job("Suspended", "x", **times)
    summarise(
        Screen(file=said_on, width=200), job, LoggedProgress(), seconds, logs="a/b", report="ddpjob report digits"
    )
    assert f"  duration   {shown}\n" in said_on.getvalue()
    assert said_on.getvalue().endswith("  logs       a/b\n  report     ddpjob report digits\n")


def test_the_end_of_a_job_that_was_resumed_shows_how_long_all_its_starts_took() -> None:
    said_on = io.StringIO()
    resumed = {"type": "Suspended", "status": "False", "reason": "JobResumed", "message": "", "observedGeneration": 1}
    resumed |= {"lastTransitionTime": "2026-01-01T00:00:00Z"}
    times = {"startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T01:05:00Z"}
    job = a_job("Succeeded", "x", conditions=[resumed], **times)
    summarise(Screen(file=said_on, width=200), job, LoggedProgress(), created=datetime(2025, 12, 31, 22, tzinfo=UTC))
    assert "  duration   1h5m since it was resumed; 3h5m in all, pauses included\n" in said_on.getvalue()


@pytest.mark.parametrize(
    ("backend", "message", "advised"),
    [
        ("Gloo", "RuntimeError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!", True),
        ("Gloo", "RuntimeError: nccl2 requires at least one CUDA device", True),
        ("Gloo", "RuntimeError: no GPU for NCCL: init_process_group(os.environ['DDPJOB_BACKEND'])", False),
        ("NCCL", "DistBackendError: NCCL error in: ...", False),
        ("Gloo", "ValueError: no", False),
    ],
)
def test_a_script_that_asks_for_nccl_without_gpus_is_told_whom_to_ask(
    backend: str, message: str, *, advised: bool
) -> None:
    failed = [{**FAILED, "reason": "Application"}]
    job = a_job("Failed", "x", backend=backend, incidents=[{**FAILURE, "message": message}], conditions=failed)
    said_on = io.StringIO()
    advise(Screen(file=said_on, width=200), job)
    assert (NO_NCCL in said_on.getvalue()) is advised


@pytest.mark.parametrize(("cause", "advised"), [("Application", True), ("StartError", False), ("ImageError", False)])
def test_the_log_to_look_at_is_one_that_there_is(cause: str, *, advised: bool) -> None:
    job = a_job("Failed", "x", incidents=[{**FAILURE, "cause": cause, "message": "no"}])
    said_on = io.StringIO()
    advise(Screen(file=said_on, width=200), job)
    assert said_on.getvalue() == ("Look at its log with: ddpjob logs digits --node 1\n" if advised else "")


@pytest.mark.parametrize(
    ("message", "attached", "advice"),
    [
        ("BdbQuit", None, TO_ADD),
        ("EOFError: EOF when reading a line", None, TO_ADD),
        ("EOFError: EOF when reading a line", 0, "Only rank 0 has a terminal, so input() ends rank 1. To give"),
        ("BdbQuit", 1, ""),
        ("EOFError: Ran out of input", None, ""),
        ("ValueError: no BdbQuit", None, ""),
    ],
)
def test_a_script_that_reads_from_a_terminal_is_told_how_to_have_one(
    message: str, attached: int | None, advice: str
) -> None:
    failed = [{**FAILED, "reason": "Application"}]
    said_on = io.StringIO()
    advise(
        Screen(file=said_on, width=200),
        a_job("Failed", "x", incidents=[{**FAILURE, "message": message}], conditions=failed),
        attached=attached,
    )
    _, _, told = said_on.getvalue().partition("\n")
    assert told.startswith(advice)
    assert ("To give rank 1 yours" in told) is bool(advice)


def test_a_terminal_is_not_promised_on_a_cluster() -> None:
    said_on = io.StringIO()
    failed = [{**FAILED, "reason": "Application"}]
    job = a_job("Failed", "x", incidents=[{**FAILURE, "message": "BdbQuit"}], conditions=failed)
    advise(Screen(file=said_on, width=200), job, " -n default")
    assert "run the job on this machine: ddpjob run … --attach 1\n" in said_on.getvalue()


@pytest.mark.parametrize(("attached", "flag"), [(1, " --attach 1"), (None, "")])
def test_a_run_that_was_stopped_goes_on_with_the_terminal_that_it_had(
    attached: int | None, flag: str, tmp_path: Path
) -> None:
    said_on, run = io.StringIO(), RunDirectory(tmp_path / "digits")
    run.create()
    run.attach(0)
    run.attach(attached)
    job = a_job("Suspended", "x", attempt=1, incidents=[])
    _say_what_came_of_it(Screen(file=said_on, width=200), job, LoggedProgress(), run, 3.0)
    assert said_on.getvalue().endswith(f"\nGo on with: ddpjob run --resume digits{flag}\n")


@pytest.mark.parametrize(("attempt", "shown"), [(1, True), (0, False)])
def test_a_run_that_was_stopped_has_a_report_unless_nothing_was_started(
    attempt: int, tmp_path: Path, *, shown: bool
) -> None:
    said_on = io.StringIO()
    job = a_job("Suspended", "x", attempt=attempt, incidents=[])
    _say_what_came_of_it(Screen(file=said_on, width=200), job, LoggedProgress(), RunDirectory(tmp_path), 3.0)
    assert ("  report     ddpjob report digits\n" in said_on.getvalue()) is shown
