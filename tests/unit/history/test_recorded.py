"""What a supervisor says last is in its history, too, although its output is no longer heard then."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from ddpjob_rank.environment import Env
from ddpjob_rank.exit_codes import ExitCode
from ddpjob_supervisor.history.history import _is_early, recorded, seen_by_operator

from tests.support.waiting import wait_for

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
    [
        "",
        "{",
        "null",
        "[]",
        "3",
        "{}",
        '{"attempt": "x"}',
        '{"attempt": 1, "step": [1]}',
        "[" * 100_000,
        '{"attempt": Infinity}',
        '{"attempt": 0}',
        '{"attempt": 1000000000}',
    ],
)
def test_an_incident_that_a_newer_operator_describes_in_another_way_is_left_out(written: str) -> None:
    assert seen_by_operator(written) is None


def test_the_incident_of_which_the_operator_tells_is_an_event_of_the_attempt_that_it_ended() -> None:
    event = seen_by_operator('{"attempt": 4, "node": 1, "cause": "NodeLost", "step": 12}')
    assert event is not None
    assert (event.word, event.attempt, event.step) == ("incident", 4, 12)
    assert event.values == {"incident": {"attempt": 4, "node": 1, "cause": "NodeLost", "step": 12}}


@pytest.mark.parametrize("made", [False, True], ids=["is not there", "is empty"])
def test_a_directory_for_checkpoints_is_left_to_the_program_until_something_is_in_it(
    tmp_path: Path, uid: str, *, made: bool
) -> None:
    kept = tmp_path / "kept"
    env = {
        Env.CHECKPOINT_DIR: str(kept),
        Env.HISTORY: str(kept / "history"),
        Env.STATUS_PORT: "29501",
        Env.NAMESPACE: "team",
        Env.NAME: "digits",
        Env.UID: uid,
    }
    if made:
        kept.mkdir()
    with recorded(env) as history:
        history.note("begun", 1, hurry=True)
        time.sleep(1.5)  # Nothing happens, although it is written within a second otherwise.
        assert kept.exists() == made
        assert not made or not [*kept.iterdir()]
        kept.mkdir(exist_ok=True)
        (kept / "checkpoint-10").mkdir()
        wait_for("the history", lambda: [*kept.glob("history/team/digits/*/node-00000/*/events-*")])


def test_what_was_printed_before_the_program_has_saved_anything_is_kept_at_its_end(tmp_path: Path, uid: str) -> None:
    kept = tmp_path / "kept"
    env = {Env.CHECKPOINT_DIR: str(kept), Env.HISTORY: str(kept / "history"), Env.STATUS_PORT: "29501"}
    with recorded({**env, Env.NAMESPACE: "team", Env.NAME: "digits", Env.UID: uid}) as history:
        history.note("begun", 1)
        history.end(1)
    assert [*kept.glob("history/team/digits/*/node-00000/*/events-*")]
    assert [*kept.glob("history/team/_jobs/*_digits_failed")]


@pytest.mark.parametrize("code", [None, ExitCode.SAVED_AND_STOPPED, 143])
def test_a_node_that_is_told_to_stop_leaves_an_empty_directory_to_the_program_of_the_next_pod(
    tmp_path: Path, uid: str, code: int | None
) -> None:
    kept = tmp_path / "kept"
    env = {Env.CHECKPOINT_DIR: str(kept), Env.HISTORY: str(kept / "history"), Env.STATUS_PORT: "29501"}
    kept.mkdir()
    with recorded({**env, Env.NAMESPACE: "team", Env.NAME: "digits", Env.UID: uid}) as history:
        history.note("begun", 1)
        history.stop(1, "SIGTERM")
        if code is not None:  # Only node 0 says how the gang has ended.
            history.end(code, stopped=True)
    assert not [*kept.iterdir()]


def test_a_node_that_is_told_to_stop_but_is_done_or_has_saved_keeps_its_history(tmp_path: Path, uid: str) -> None:
    for done in (True, False):
        kept = tmp_path / f"{done}"
        env = {Env.CHECKPOINT_DIR: str(kept), Env.HISTORY: str(kept / "history"), Env.STATUS_PORT: "29501"}
        with recorded({**env, Env.NAMESPACE: "team", Env.NAME: "digits", Env.UID: uid}) as history:
            history.stop(1, "SIGTERM")
            if done:
                history.end(ExitCode.DONE)
            else:
                (kept / "checkpoint-10").mkdir(parents=True)
        assert [*kept.glob("history/team/digits/*/node-00000/*/events-*")]


@pytest.mark.parametrize("history", ["s3://bucket/kept/history", "/elsewhere/history", "/keptelse/history"])
def test_a_history_elsewhere_does_not_wait(history: str, tmp_path: Path) -> None:
    assert not _is_early({Env.CHECKPOINT_DIR: str(tmp_path / "kept")}, history)()
    assert not _is_early({Env.CHECKPOINT_DIR: "s3://bucket/kept"}, history)()
    assert not _is_early({}, history)()
    assert _is_early({Env.CHECKPOINT_DIR: str(tmp_path / "kept")}, str(tmp_path / "kept/history"))()
