"""How a program ends, and which exit code and which report its process leaves."""

import atexit
import faulthandler
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from ddpjob_rank.reporting import bars_seen, evaluations_seen, hugging_face, report, request, spawned, steps_seen
from ddpjob_rank.running import answering, attaching, function_call, rank, stderr


class LeftError(BaseException):
    """Instead of the process's end."""


@pytest.fixture
def ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., tuple[int, Any]]]:
    """Runs a function as rank 3's program; returns the exit code and the report."""
    told: list[str] = []

    def leave(code: int) -> NoReturn:
        told.append("leaves")
        raise LeftError(code)

    for module in (steps_seen, evaluations_seen, bars_seen, hugging_face, spawned):
        monkeypatch.setattr(module, "install", lambda name=module.__name__: told.append(name.rpartition(".")[2]))
    owners = {
        attaching: "attach",
        answering: "install",
        stderr: "redirect",
        faulthandler: "enable",
        report: "tell_end",
    }
    for owner, name in owners.items():
        monkeypatch.setattr(owner, name, lambda name=name, **_: told.append(name))
    monkeypatch.setattr(rank, "write_whole_lines", lambda: None)
    monkeypatch.setattr(rank, "run_as_batch", lambda backend: told.append(f"for {backend}"))
    monkeypatch.setattr(rank, "leave_at_once", leave)
    monkeypatch.setattr(threading, "_shutdown", lambda: told.append("waits for threads"))
    monkeypatch.setattr(atexit, "_run_exitfuncs", lambda: told.append("runs exit functions"))
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    for name, value in {"TERMINATION_LOG": str(tmp_path / "report"), "BACKEND": "gloo"}.items():
        monkeypatch.setenv(f"DDPJOB_{name}", value)
    monkeypatch.setenv("RANK", "3")
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}

    def become(run: Callable[[], object]) -> tuple[int, Any]:
        program: Any = SimpleNamespace(run=run)
        with pytest.raises(LeftError) as left:
            rank.become(program)
        assert told == [
            *("attach", "redirect", "enable", "for gloo"),
            *("steps_seen", "evaluations_seen", "bars_seen", "hugging_face", "spawned", "install"),
            *("tell_end", "waits for threads", "runs exit functions", "leaves"),
        ]
        written = tmp_path / "report"
        return left.value.args[0], json.loads(written.read_text()) if written.exists() else None

    yield become
    for number, handler in handlers.items():
        if handler is not signal.getsignal(number):
            signal.signal(number, handler)


def leaving(code: object) -> Callable[[], NoReturn]:
    return lambda: sys.exit(code)  # type: ignore[arg-type]


def failing(error: BaseException) -> Callable[[], NoReturn]:
    def run() -> NoReturn:
        raise error

    return run


def test_of_a_mistake_that_our_own_code_has_found_only_the_message_is_printed(
    ended: Callable[..., tuple[int, Any]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(Path(__file__).parent / "none" / "script.py")])
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setattr(Path, "read_bytes", lambda _: b'{"lr": 1}')
    _, written = ended(partial(function_call.call, lambda **_: object()))
    said = "".join(capsys.readouterr())
    assert "returned no result: result is of type object, which is not JSON" in said
    assert "Traceback" not in said
    assert (written["exception"], written["cause"]) == ("ConfigError", "ConfigError")


def handling(code: int, error: Exception, *, suppressed: bool = False, cause: bool = False) -> Callable[[], NoReturn]:
    """Exits while it handles an error."""

    def run() -> NoReturn:
        try:
            failing(error)()
        except Exception as caught:
            if suppressed:
                raise SystemExit(code) from None
            if cause:
                raise SystemExit(code) from caught
            sys.exit(code)

    return run


@pytest.mark.parametrize(
    ("run", "code", "told"),
    [
        (lambda: None, 0, None),
        (leaving(None), 0, None),
        (leaving(7), 7, None),
        (leaving(256 + 7), 7, None),
        (leaving(-1), 255, None),
        (leaving("no data in /data"), 1, ("SystemExit", "no data in /data", 1)),
        (failing(ValueError("no data")), 1, ("ValueError", "no data", 1)),
        (failing(KeyboardInterrupt()), 130, None),
        (handling(-1, ImportError("no module")), 255, ("ImportError", "no module", 255)),
        (handling(5, ImportError("no module"), cause=True), 5, ("ImportError", "no module", 5)),
        (handling(5, ImportError("no module"), suppressed=True), 5, None),
        (handling(5, ImportError()), 5, None),
        (handling(0, ImportError("no module")), 0, None),
        (handling(205, ImportError("no module")), 205, None),
        (handling(128 + 15, ImportError("no module")), 143, None),
        (handling(128 + 64, ImportError("no module")), 192, None),
        (handling(128 + 65, ImportError("no module")), 193, ("ImportError", "no module", 193)),
        (handling(128, ImportError("no module")), 128, ("ImportError", "no module", 128)),
    ],
)
def test_a_program_leaves_its_exit_code_and_why_it_failed(
    ended: Callable[..., tuple[int, Any]],
    run: Callable[[], object],
    code: int,
    told: tuple[str, str, int] | None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    left, written = ended(run)
    assert left == code
    assert (written and (written["exception"], written["message"], written["exitCode"])) == told
    assert written is None or written["rank"] == 3
    if told and told[0] == "SystemExit":
        assert capsys.readouterr().err == f"{told[1]}\n"


@pytest.mark.parametrize("number", ["", "first", "-1"])
def test_a_rank_whose_number_is_none_is_reported_as_the_first(
    ended: Callable[..., tuple[int, Any]], monkeypatch: pytest.MonkeyPatch, number: str
) -> None:
    monkeypatch.setenv("RANK", number)
    assert ended(failing(ValueError("no data")))[1]["rank"] == 0


@pytest.mark.parametrize(("code", "left"), [(0, 205), (7, 7)])
def test_a_program_that_stopped_because_it_was_told_to_is_resumed_later(
    ended: Callable[..., tuple[int, Any]], monkeypatch: pytest.MonkeyPatch, code: int, left: int
) -> None:
    monkeypatch.setattr(request, "stop_noticed", lambda: True)
    assert ended(leaving(code)) == (left, None)


def test_once_the_exit_code_is_decided_no_handler_of_a_signal_changes_it(
    ended: Callable[..., tuple[int, Any]],
) -> None:
    called: list[int] = []

    def handle(number: int, frame: object) -> None:
        called.append(number)
        assert frame is not None
        sys.exit(9)

    def run() -> None:
        signal.signal(signal.SIGUSR1, handle)
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)

    assert ended(run) == (0, None)
    os.kill(os.getpid(), signal.SIGUSR1)
    assert called == [signal.SIGUSR1]
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_IGN


def test_the_traceback_begins_with_the_programs_own_frame(
    ended: Callable[..., tuple[int, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    ended(failing(ValueError("no data")))
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if line.startswith("  File")] == [
        f'  File "{__file__}", line {failing.__code__.co_firstlineno + 2}, in run'
    ]
    assert lines[-1] == "ValueError: no data"
