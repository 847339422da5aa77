"""What a supervisor says last is in its history, too, although its output is no longer heard then."""

import subprocess
import sys
from pathlib import Path

import pytest
from ddpjob_rank.environment import Env
from ddpjob_supervisor.history.history import seen_by_operator

from .conftest import Read, texts

PROGRAM = """
import os, sys
from ddpjob_rank.errors import ConfigError
from ddpjob_supervisor.history.history import recorded
with recorded(os.environ):
    print("before", flush=True)
    exec(sys.argv[1])
"""


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("raise ValueError('\\ud800')", "ValueError: \\ud800"),
        ("raise ConfigError('no port')", "error: no port"),
        ("sys.exit(3)", "before"),
    ],
)
def test_the_error_that_ends_a_supervisor_is_kept(tmp_path: Path, uid: str, read: Read, end: str, said: str) -> None:
    env = {
        Env.HISTORY: str(tmp_path),
        Env.STATUS_PORT: "29501",
        Env.NAMESPACE: "team",
        Env.NAME: "digits",
        Env.UID: uid,
    }
    done = subprocess.run([sys.executable, "-c", PROGRAM, end], env=env, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    lines = texts(read())
    assert (lines[0], lines[-1]) == ("before", said)
    traceback = "Traceback (most recent call last):"
    assert (traceback in lines) == (traceback in done.stderr and not said.startswith("error"))


@pytest.mark.parametrize(
    "written",
    ["", "{", "null", "[]", "3", "{}", '{"attempt": "x"}', '{"attempt": 1, "step": [1]}', "[" * 100_000],
)
def test_an_incident_that_a_newer_operator_describes_in_another_way_is_left_out(written: str) -> None:
    assert seen_by_operator(written) is None


def test_the_incident_of_which_the_operator_tells_is_an_event_of_the_attempt_that_it_ended() -> None:
    event = seen_by_operator('{"attempt": 4, "node": 1, "cause": "NodeLost", "step": 12}')
    assert event is not None
    assert (event.word, event.attempt, event.step) == ("incident", 4, 12)
    assert event.values == {"incident": {"attempt": 4, "node": 1, "cause": "NodeLost", "step": 12}}
