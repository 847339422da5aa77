"""Requests to stop, at each stage of a run."""

import signal
import subprocess
import sys

from tests.support.waiting import patience
from tests.training.runs import Runs

BETWEEN = """
import os, signal, time
from ddpjob_rank import stopping
def set_and_ask(number, handler, set=signal.signal):
    set(number, handler)
    if number == signal.SIGTERM: os.kill(os.getpid(), number)
signal.signal = set_and_ask
stopping.StopRequest().listen()
time.sleep(60)
"""
"""Is told to stop as soon as that would not end it any more."""


def test_a_request_in_the_moment_in_which_a_run_begins_to_listen_is_heard() -> None:
    command = [sys.executable, "-c", BETWEEN]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(30), check=False)
    assert (done.returncode, done.stdout) == (205, "stopped before the first step\n")


def test_before_the_first_step_a_run_ends_at_once(runs: Runs) -> None:
    run = runs.start(2, ranks=[1])
    run.wait("start", lambda: "rank 1 of 2" in run.output(1))
    run.send(signal.SIGTERM)
    assert run.end() == [205]
    assert run.output(1).endswith("stopped before the first step\n")


def test_without_a_checkpoint_directory_a_stopped_run_says_that_nothing_is_saved(runs: Runs) -> None:
    run = runs.start(1, "--epochs", 1000)
    run.wait("a step", lambda: bool(run.steps()))
    run.send(signal.SIGINT)
    assert run.end() == [205]
    assert run.output().endswith("; without --checkpoint-dir nothing is saved\n")


def test_a_second_signal_ends_a_process_at_once_even_inside_a_collective(runs: Runs) -> None:
    run = runs.start(2, "--epochs", 1000)
    run.wait("a step", lambda: bool(run.steps()))
    run.send(signal.SIGSTOP, rank=1)
    run.send(signal.SIGTERM, rank=0)
    run.wait("the first signal", lambda: "told to stop (SIGTERM)" in run.output())
    run.send(signal.SIGTERM, rank=0)
    assert run.end_of(0) == 128 + signal.SIGTERM, run.story()
    assert run.output().endswith("stopped at once by a second signal (SIGTERM)\n")
