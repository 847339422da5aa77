"""A supervisor alone in its gang, from its first line to its exit code, and the signals that it gets."""

import asyncio
import json
import os
import signal
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.running.program import Program
from ddpjob_supervisor import taking_part
from ddpjob_supervisor.gang.messages import HeldProgram
from ddpjob_supervisor.gang.settings import read_settings
from ddpjob_supervisor.gang.states import RunEnd
from ddpjob_supervisor.node import open_files
from ddpjob_supervisor.node.cold import Cold
from ddpjob_supervisor.preflight.findings import Finding, Level, PreflightError
from ddpjob_supervisor.taking_part import REQUESTS, settings_of, take_part

from tests.support.ports import hold_port
from tests.support.waiting import patience


def asked_of_ranks(
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    send: Callable[[], Coroutine[Any, Any, None]],
    handled: signal.Handlers = signal.SIG_DFL,
) -> list[int]:
    """What the ranks are asked to do while `send` sends signals. At the beginning, `number` is handled as given."""
    # Only on Linux would this process adopt orphans from now on.
    monkeypatch.setattr(taking_part, "sys", SimpleNamespace(platform="darwin"))
    asked: list[int] = []
    follower: Any = SimpleNamespace(request=asked.append)

    async def scene() -> None:
        taking_part._listen_to_signals(follower, None)  # type: ignore[arg-type]
        await send()
        await asyncio.sleep(0.05)

    before = signal.signal(number, handled)
    try:
        asyncio.run(scene())
    finally:
        signal.signal(number, before)
    return asked


@pytest.mark.parametrize("together", [True, False])
def test_a_terminal_that_is_closed_stops_the_ranks_once_however_often_it_says_so(
    monkeypatch: pytest.MonkeyPatch, *, together: bool
) -> None:
    async def send() -> None:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGHUP)
            await asyncio.sleep(0 if together else 0.02)

    assert asked_of_ranks(monkeypatch, signal.SIGHUP, send) == [signal.SIGTERM]


@pytest.mark.parametrize(("grace", "stays"), [(30.0, 3.0), (6.0, 3.0), (4.0, 2.0), (1.0, 0.5), (0.0, 0.0)])
def test_the_supervisor_of_rank_0_leaves_before_it_is_killed(grace: float, stays: float) -> None:
    assert taking_part._stays(grace) == stays


class History:
    """Remembers what is told."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, int]] = []
        self.ends: list[tuple[int, bool]] = []

    def note(self, word: str, attempt: int, *_: object, **__: object) -> None:
        self.notes.append((word, attempt))

    def end(self, code: int, *, stopped: bool) -> None:
        self.ends.append((code, stopped))

    def __getattr__(self, _: str) -> Callable[..., object]:
        return lambda *_, **__: None


@pytest.fixture
def taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, dict[str, Any], History]]:
    """Takes part with a script; returns the exit code, the final status or report, and the history."""
    # On Linux this process would adopt orphans from now on, and not only those of its ranks.
    monkeypatch.setattr(taking_part, "sys", SimpleNamespace(platform="darwin"))
    monkeypatch.setattr(open_files, "raise_limit", lambda: None)
    place = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    place |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    ours = {"UID": "u", "ATTEMPT": "1", "TERMINATION_LOG": str(tmp_path / "log")}

    def take(script: str, *, in_a_job: bool = True, **more: str) -> tuple[int, dict[str, Any], History]:
        (tmp_path / "train.py").write_text(script)
        port = {"DDPJOB_STATUS_PORT": str(hold_port())} if in_a_job else {}
        env: Mapping[str, str] = {
            **os.environ,
            **place,
            **port,
            **{f"DDPJOB_{name}": value for name, value in (ours | more).items()},
        }
        history: Any = History()

        async def scene() -> int:
            async with asyncio.timeout(patience(60)):
                program = Program(module=False, name=str(tmp_path / "train.py"))
                return await take_part(read_settings(env), program, Cold(), env, history)

        code = asyncio.run(scene())
        log = tmp_path / "log"
        return code, json.loads(log.read_text()) if log.exists() else {}, history

    return take


REPORTS = """
import ddpjob
for step in (1, 2): ddpjob.report(step=step, loss=0.5)
"""


def test_a_job_that_succeeds_leaves_its_progress_and_its_end(
    taken: Callable[..., tuple[int, dict[str, Any], History]],
) -> None:
    code, left, history = taken(f"{REPORTS}ddpjob.set_result({{'accuracy': 0.5}})")
    assert code == 0
    assert (left["progress"]["step"], left["progress"]["loss"]) == (2, 0.5)
    assert left["result"] == {"accuracy": 0.5}
    assert history.notes[0] == ("facts", 1)
    assert history.ends == [(0, False)]


def test_a_job_that_fails_leaves_why(taken: Callable[..., tuple[int, dict[str, Any], History]]) -> None:
    code, left, history = taken(f"{REPORTS}raise ValueError('no data')")
    assert code == 1
    assert (left["exception"], left["message"]) == ("ValueError", "no data")
    assert history.ends == [(1, False)]


@pytest.mark.parametrize("request_", [signal.SIGTERM, signal.SIGQUIT])
def test_a_job_that_is_told_to_stop_saves_and_stops(
    taken: Callable[..., tuple[int, dict[str, Any], History]], request_: signal.Signals
) -> None:
    code, left, history = taken(
        "import os, sys, time, signal\n"
        f"signal.signal({int(REQUESTS[request_])}, lambda *_: sys.exit(205))\n"
        f"os.kill({os.getpid()}, {int(request_)})\n"
        "for _ in range(600): time.sleep(0.1)"
    )
    assert code == 205
    assert "progress" in left
    assert history.ends == [(205, True)]


def test_without_an_operator_no_status_is_left(taken: Callable[..., tuple[int, dict[str, Any], History]]) -> None:
    code, left, history = taken(REPORTS, in_a_job=False)
    assert (code, left) == (0, {})
    assert history.ends == [(0, False)]


@pytest.mark.parametrize("level", [Level.FAIL, Level.WARN])
def test_a_node_that_is_not_fit_runs_nothing(
    taken: Callable[..., tuple[int, dict[str, Any], History]],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    level: Level,
) -> None:
    asked: list[object] = []

    async def preflight(*how: object) -> list[Finding]:
        asked.extend(how[2:])
        return [Finding("disk", level, "the disk is full")]

    monkeypatch.setattr(taking_part, "preflight", preflight)
    if level is Level.FAIL:
        with pytest.raises(PreflightError, match="the disk is full"):
            taken("print('has run', flush=True)", PREFLIGHT="Fast")
    else:
        assert taken("print('has run', flush=True)", PREFLIGHT="Fast")[0] == 0
    said = capfd.readouterr()
    assert ("has run" in said.out, "preflight: the disk is full" in said.err) == (level is Level.WARN,) * 2
    assert asked == ["127.0.0.1", 300.0]


@pytest.mark.parametrize(
    ("in_a_job", "asked", "joining"), [(True, None, None), (True, 5.0, None), (False, 5.0, 5.0), (False, None, 600.0)]
)
def test_how_long_other_nodes_are_waited_for_is_said_only_where_no_operator_starts_them(
    asked: float | None, joining: float | None, *, in_a_job: bool
) -> None:
    env = {"DDPJOB_STATUS_PORT": "29501"} if in_a_job else {}
    assert settings_of(env, None, asked).joining_seconds == joining
    assert settings_of(env, 7, asked).limits.restarts == 7


def test_only_a_job_is_held() -> None:
    assert settings_of({"DDPJOB_STATUS_PORT": "29501"}, None, None, 60.0).idle_seconds == 60.0
    with pytest.raises(ConfigError, match="--hold is for jobs on a cluster"):
        settings_of({}, None, None, 60.0)


@pytest.mark.parametrize(
    ("revision", "there", "found", "said"),
    [
        (None, True, False, ""),
        (3, True, True, ""),
        (3, False, False, "there is no archive of the code at {}, so the code cannot be replaced in place"),
    ],
)
def test_the_code_that_a_pod_was_made_with_is_where_it_was_mounted(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    revision: int | None,
    said: str,
    *,
    there: bool,
    found: bool,
) -> None:
    archive = tmp_path / "code.zip"
    if there:
        archive.touch()
    settings: Any = SimpleNamespace(code_revision=revision)
    mounted = taking_part._mounted(settings, {"DDPJOB_CODE_ARCHIVE": str(archive)})
    assert mounted == (archive if found else None)
    told = capsys.readouterr().err
    assert said.format(archive) in told if said else not told


def test_a_signal_that_is_not_passed_on_is_told_and_asks_for_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = taking_part.OTHERS[0]

    async def send() -> None:
        os.kill(os.getpid(), other)
        await asyncio.sleep(0.05)
        for number in REQUESTS:
            os.kill(os.getpid(), number)

    assert sorted(asked_of_ranks(monkeypatch, other, send)) == sorted(REQUESTS.values())
    assert f"ddpjob-supervise does not pass {other.name} on to the ranks" in capsys.readouterr().err


@pytest.mark.parametrize("ignored", [True, False])
def test_who_was_started_by_nohup_does_not_mind_a_terminal_that_is_closed(
    monkeypatch: pytest.MonkeyPatch, *, ignored: bool
) -> None:
    async def send() -> None:
        os.kill(os.getpid(), signal.SIGHUP)

    handled = signal.SIG_IGN if ignored else signal.SIG_DFL
    asked = asked_of_ranks(monkeypatch, signal.SIGHUP, send, handled)
    assert asked == ([] if ignored else [signal.SIGTERM])


def test_which_program_a_hold_runs_and_how_it_ends_is_kept_without_its_arguments() -> None:
    kept: list[Any] = []
    history: Any = SimpleNamespace(note=lambda *words, **how: kept.append((*words, how)))
    program = HeldProgram(("train.py", "--token", "s3cr3t"), "0123456789abcdef", "alice")
    taking_part._keep_run(history, 3, program)
    ended: list[RunEnd] = []
    status: Any = SimpleNamespace(finish_run=ended.append)
    end = RunEnd(3, 7, "rank 1 failed")
    taking_part._keep_end(history, status, end)
    assert ended == [end]
    assert kept == [
        (taking_part.PROGRAM, 3, {"hurry": True, "program": "train.py", "code": "0123456789ab", "by": "alice"}),
        (taking_part.PROGRAM_ENDED, 3, {"hurry": True, "exitCode": 7, "message": "rank 1 failed"}),
    ]
