"""What ddpjob run heeds of the signals of its terminal."""

import contextlib
import signal
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from ddpjob_operator.cli import run

HEEDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    handlers = {number: signal.getsignal(number) for number in HEEDED}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


def stopped_by_hangup() -> bool:
    """Whether a run stops when its terminal is closed."""
    stops: list[str] = []

    def train() -> Any:
        signal.raise_signal(signal.SIGHUP)
        return SimpleNamespace(finished=True)

    runner: Any = SimpleNamespace(run=train, stop=lambda: stops.append("stop"), interrupt=None, interrupted=False)
    display: Any = SimpleNamespace(following=lambda *_: contextlib.nullcontext())
    run._carry_on(runner, display)
    return bool(stops)


def test_a_run_stops_when_its_terminal_is_closed() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    assert stopped_by_hangup()


def test_a_run_under_nohup_goes_on_without_its_terminal() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert not stopped_by_hangup()
