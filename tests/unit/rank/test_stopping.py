"""What a request to stop does, at each stage of a run."""

import os
import queue
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from ddpjob_rank import stopping
from ddpjob_rank.stopping import StopRequest

from tests.support.waiting import patience


class Left(BaseException):
    """The process has ended."""


@pytest.fixture(autouse=True)
def exits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The codes with which the process would have ended."""
    codes: list[int] = []

    def leave(code: int) -> None:
        codes.append(code)
        raise Left

    monkeypatch.setattr(os, "_exit", leave)
    return codes


@pytest.fixture
def handlers() -> Iterator[None]:
    """The signals' handlers, which are as before afterwards."""
    before = {number: signal.getsignal(number) for number in stopping.SIGNALS}
    wakeup = signal.set_wakeup_fd(-1)
    yield
    signal.set_wakeup_fd(wakeup)
    for number, handler in before.items():
        signal.signal(number, handler)


def test_before_the_loop_there_is_nothing_to_save(exits: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Left):
        StopRequest()._act(signal.SIGTERM)
    assert (exits, capsys.readouterr().out) == ([205], "stopped before the first step\n")


@pytest.mark.parametrize(("number", "name", "code"), [(15, "SIGTERM", 143), (2, "SIGINT", 130)])
def test_the_loop_is_asked_first_and_ended_then(
    exits: list[int], capsys: pytest.CaptureFixture[str], number: int, name: str, code: int
) -> None:
    stop, asked = StopRequest(), []
    stop.loop_begins(lambda: asked.append(stop.made))
    assert not stop.made
    stop._act(number)
    assert (asked, exits) == ([True], [])
    with pytest.raises(Left):
        stop._act(number)
    assert (asked, exits) == ([True], [code])
    assert capsys.readouterr().out.splitlines() == [
        f"told to stop ({name}): finishing the step; a second signal ends the process at once",
        f"stopped at once by a second signal ({name})",
    ]


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("number", stopping.SIGNALS)
def test_a_signal_is_acted_on_in_a_thread_whatever_the_main_thread_does(number: signal.Signals) -> None:
    stop, asked = StopRequest(), queue.SimpleQueue[Any]()
    stop.listen()
    stop.loop_begins(lambda: asked.put(threading.current_thread().name))
    signal.raise_signal(signal.SIGCHLD)
    signal.raise_signal(number)
    assert asked.get(timeout=patience(10)) == "signals"


@pytest.mark.usefixtures("handlers")
def test_a_child_of_a_fork_does_not_tell_its_parent_of_its_own_signals() -> None:
    StopRequest().listen()
    stopping._forget_wakeup()
    assert signal.set_wakeup_fd(-1) == -1


@pytest.mark.usefixtures("handlers")
def test_while_it_imports_a_process_leaves_at_once_even_if_sigterm_was_blocked(exits: list[int]) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    stopping.leave_on_request()
    with pytest.raises(Left):
        signal.raise_signal(signal.SIGTERM)
    assert exits == [205]


def test_an_end_at_once_flushes_what_was_said_though_nobody_listens(
    monkeypatch: pytest.MonkeyPatch, exits: list[int]
) -> None:
    class Gone:
        flushed = 0

        def flush(self) -> None:
            self.flushed += 1
            raise BrokenPipeError

    out, err = Gone(), Gone()
    monkeypatch.setattr(stopping.sys, "stdout", out)
    monkeypatch.setattr(stopping.sys, "stderr", err)
    with pytest.raises(Left):
        stopping.leave_at_once(7)
    assert (exits, out.flushed, err.flushed) == ([7], 1, 1)
