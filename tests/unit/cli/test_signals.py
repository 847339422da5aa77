"""What ddpjob run heeds of the signals of its terminal."""

import contextlib
import signal
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from ddpjob_operator.cli import run

HEEDED = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGURG)


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    handlers = {number: signal.getsignal(number) for number in HEEDED}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


def what_follows(number: signal.Signals) -> list[str]:
    """What a run does when it gets a signal, and says."""
    done: list[str] = []

    def train() -> Any:
        signal.raise_signal(number)
        return SimpleNamespace(finished=True)

    def runner() -> Any:
        asked = {name: partial(done.append, name) for name in ("stop", "interrupt", "look")}
        return SimpleNamespace(run=train, interrupted=False, **asked)

    display: Any = SimpleNamespace(
        following=lambda *_: contextlib.nullcontext(), tell=lambda event: done.append(event.message)
    )
    run._carry_on(runner(), display)
    return done


def test_a_run_stops_when_its_terminal_is_closed() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    assert what_follows(signal.SIGHUP) == ["stop"]


def test_a_run_under_nohup_goes_on_without_its_terminal() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert what_follows(signal.SIGHUP) == []


def test_a_run_looks_for_a_request_when_it_is_told_of_one() -> None:
    assert what_follows(signal.SIGURG) == ["look"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGQUIT], ids=lambda number: number.name)
def test_a_run_is_interrupted_by_what_interrupts_torchrun(number: signal.Signals) -> None:
    assert what_follows(number) == ["interrupt"]


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2], ids=lambda number: number.name)
def test_a_run_goes_on_after_a_signal_for_its_script_and_says_whom_to_send_it_to(number: signal.Signals) -> None:
    assert what_follows(number) == [
        f"ddpjob run does not pass {number.name} on to the ranks; send it to the process of a rank"
    ]


def test_a_run_stops_when_its_output_is_closed_and_says_how_it_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    done: list[str] = []

    @contextlib.contextmanager
    def following(lost: Any, *_: Any) -> Iterator[None]:
        lost()
        yield

    runner: Any = SimpleNamespace(
        run=lambda: SimpleNamespace(finished=False),
        job=SimpleNamespace(metadata=SimpleNamespace(name="train")),
        interrupted=True,
        stop=partial(done.append, "stop"),
    )
    display: Any = SimpleNamespace(following=following, tell=None)
    assert run._carry_on(runner, display)
    assert done == ["stop"]
    assert capsys.readouterr().err == (
        "ddpjob: the output was closed or is full, so the run stops; go on with: ddpjob run --resume train\n"
    )
