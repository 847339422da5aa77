"""Whether a program of one's own was told to stop, by real signals to a real process."""

import os
import signal
import subprocess
import sys

import pytest

from tests.support.waiting import patience

DEADLINE_SECONDS = 20.0
IN_A_JOB = {"DDPJOB_NAME": "digits"}

ASKED = """
import os, signal, sys
import ddpjob
print(ddpjob.stop_requested())
os.kill(os.getpid(), signal.SIGTERM)
print(ddpjob.stop_requested(), "torch" in sys.modules)
"""
OWN_HANDLER = """
import os, signal
import ddpjob
signal.signal(signal.SIGTERM, lambda *_: print("the program's own"))
ddpjob.stop_requested()
os.kill(os.getpid(), signal.SIGTERM)
print(ddpjob.stop_requested())
"""
IN_A_CHILD = """
import multiprocessing, time, ddpjob
ddpjob.stop_requested()
child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(1000,))
child.start()
child.terminate()
child.join(10)
print(child.exitcode)
child.kill()
"""
TWICE = "import os, signal, ddpjob\nddpjob.stop_requested()\n" + "os.kill(os.getpid(), signal.SIGTERM)\n" * 2
IN_A_THREAD = """
import threading, ddpjob
thread = threading.Thread(target=lambda: print(ddpjob.stop_requested()))
thread.start()
thread.join()
print(ddpjob.stop_requested())
"""


def run(code: str, **env: str) -> tuple[int, list[str], str]:
    """Exit code, lines of output, and errors of a process."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**{name: value for name, value in os.environ.items() if not name.startswith("DDPJOB_")}, **env},
        capture_output=True,
        text=True,
        timeout=patience(DEADLINE_SECONDS),
        check=False,
    )
    return done.returncode, done.stdout.splitlines(), done.stderr


@pytest.mark.parametrize("env", [IN_A_JOB, {"DDPJOB_HEARTBEAT": "/nowhere"}], ids=["in a pod", "under a supervisor"])
def test_a_first_signal_is_told_and_does_not_end_the_program(env: dict[str, str]) -> None:
    assert run(ASKED, **env) == (0, ["False", "True False"], "")


def test_outside_a_job_a_signal_does_what_it_did_before() -> None:
    assert run(ASKED)[0] == -signal.SIGTERM


def test_a_second_signal_ends_the_program() -> None:
    assert run(TWICE, **IN_A_JOB)[0] == -signal.SIGTERM


def test_a_forked_child_is_ended_by_the_first_sigterm() -> None:
    assert run(IN_A_CHILD, **IN_A_JOB) == (0, ["-15"], "")


def test_a_programs_own_handler_is_called_as_well() -> None:
    assert run(OWN_HANDLER, **IN_A_JOB) == (0, ["the program's own", "True"], "")


def test_a_program_that_asks_in_a_thread_only_is_told_once_that_signals_are_not_heard() -> None:
    code, lines, warning = run(IN_A_THREAD, **IN_A_JOB)
    assert (code, lines) == (0, ["False", "False"])
    assert warning.count("stop_requested()") == 1
