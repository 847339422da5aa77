"""A request to stop counts from the first line of a container's first process."""

import os
import signal
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from types import SimpleNamespace

import ddpjob_supervisor.entry
import ddpjob_trainer.entry
import pytest


class LeftError(Exception):
    """Instead of the process's end."""


def leave(code: int) -> None:
    raise LeftError(code)


@pytest.mark.parametrize(
    ("program", "begin", "module"),
    [
        ("ddpjob-train", ddpjob_trainer.entry.train, "ddpjob_trainer.main"),
        ("ddpjob-supervise", ddpjob_supervisor.entry.supervise, "ddpjob_supervisor.main"),
    ],
)
def test_sigterm_ends_a_program_at_once_that_has_nothing_to_save_yet(
    program: str, begin: Callable[[], None], module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setitem(sys.modules, module, SimpleNamespace(main=lambda: signal.raise_signal(signal.SIGTERM)))
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(LeftError, match="205"):
            begin()
    finally:
        signal.signal(signal.SIGTERM, before)
    (script,) = entry_points(group="console_scripts", name=program)
    assert script.load() is begin


def test_a_sigterm_that_came_while_python_started_has_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trainer image starts them with the signal blocked: without a handler the kernel would drop it."""
    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setitem(sys.modules, "ddpjob_trainer.main", SimpleNamespace(main=lambda: None))
    before = signal.getsignal(signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    signal.raise_signal(signal.SIGTERM)
    try:
        with pytest.raises(LeftError, match="205"):
            ddpjob_trainer.entry.train()
    finally:
        signal.sigtimedwait({signal.SIGTERM}, 0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        signal.signal(signal.SIGTERM, before)
