"""How a program learns that it is asked to save: through a real pipe, as its supervisor writes into it."""

import os
import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ddpjob_rank.reporting.save_request import ASKED, PIPE, on_save_request
from ddpjob_supervisor.watch.asking import write_to

from tests.support.waiting import patience, wait_for

DEADLINE_SECONDS = 20.0


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[], bool]]:
    """Asks this process to save, as its supervisor; returns whether anybody listens."""
    monkeypatch.setenv("DDPJOB_HEARTBEAT", str(tmp_path / "0"))
    yield lambda: write_to(tmp_path / f"0{PIPE}", ASKED)
    on_save_request(None)


@pytest.fixture
def heard() -> queue.SimpleQueue[str]:
    return queue.SimpleQueue()


def next_of(heard: queue.SimpleQueue[str]) -> str:
    return heard.get(timeout=patience(DEADLINE_SECONDS))


def test_a_program_is_called_at_each_request(ask: Callable[[], bool], heard: queue.SimpleQueue[str]) -> None:
    on_save_request(lambda: heard.put("save"))
    for _ in range(3):
        assert ask()
        assert next_of(heard) == "save"
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "save requests"), (
        "a program ends whether anybody asks or not"
    )


def test_nobody_listens_in_a_program_that_does_not_say_that_it_saves(ask: Callable[[], bool]) -> None:
    assert not ask()


def test_the_last_function_counts(ask: Callable[[], bool], heard: queue.SimpleQueue[str]) -> None:
    on_save_request(lambda: heard.put("former"))
    on_save_request(lambda: heard.put("last"))
    assert ask()
    assert next_of(heard) == "last"
    assert heard.empty()


def test_a_program_that_saves_no_more_says_so_and_may_begin_again(
    ask: Callable[[], bool], heard: queue.SimpleQueue[str]
) -> None:
    for word in ("first", "second"):
        on_save_request(lambda word=word: heard.put(word))  # type: ignore[misc]
        assert ask()
        assert next_of(heard) == word
        on_save_request(None)
        assert not ask()
    wait_for(
        "the end of both threads", lambda: "save requests" not in {thread.name for thread in threading.enumerate()}
    )


def test_an_error_ends_neither_the_program_nor_the_next_request(
    ask: Callable[[], bool], heard: queue.SimpleQueue[str], capfd: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        heard.put("asked")
        raise ValueError("no room")

    on_save_request(fail)
    for _ in range(2):
        assert ask()
        assert next_of(heard) == "asked"
    on_save_request(lambda: heard.put("goes on"))
    assert ask()
    assert next_of(heard) == "goes on"
    assert "cannot save on request: ValueError: no room" in capfd.readouterr().err


def test_a_forked_child_that_outlives_the_program_does_not_count_as_a_listener(ask: Callable[[], bool]) -> None:
    listening, listens = os.pipe()
    waiting, over = os.pipe()
    program = os.fork()
    if program == 0:
        on_save_request(lambda: None)
        os.close(over)
        if os.fork() == 0:
            os.read(waiting, 1)  # Until the test closes its end.
        os.write(listens, b"!")
        os._exit(0)
    try:
        os.read(listening, 1)
        os.waitpid(program, 0)
        assert not ask()
    finally:
        for end in (listening, listens, waiting, over):
            os.close(end)


def test_without_a_supervisor_nothing_happens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DDPJOB_HEARTBEAT", raising=False)
    on_save_request(lambda: None)
    on_save_request(None)
    assert not [*tmp_path.iterdir()]
