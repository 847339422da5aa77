"""What a run hears of its supervisor, whatever listens there."""

import contextlib
import json
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest
from ddpjob_operator.engine import Asked, SupervisorReport, fingerprint
from ddpjob_operator.local import status_listener
from ddpjob_operator.local.status_listener import StatusListener, _Poller

from tests.support.ports import hold_port
from tests.support.waiting import patience

UID = "job-uid"
STATUS = {"job": fingerprint(UID), "attempt": 1, "phase": "Running", "since": "2026-01-01T12:00:00.000Z"}
Answer = tuple[int, bytes | Iterator[bytes], str]


def status(mark: str = "", **what: object) -> Answer:
    return 200, json.dumps(STATUS | what).encode(), mark


@contextmanager
def answering(answer: Callable[[], Answer]) -> Iterator[Asked]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, body, mark = answer()
            self.send_response(code)
            self.send_header("ETag", mark)
            self.end_headers()
            with contextlib.suppress(ConnectionError):
                for part in [body] if isinstance(body, bytes) else body:
                    self.wfile.write(part)

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        yield Asked("digits-0", "127.0.0.1", server.server_address[1])
        server.shutdown()


def hears(answer: Callable[[], Answer], expected: Callable[[SupervisorReport], bool]) -> SupervisorReport:
    """What is heard once it is as expected."""
    changed: queue.SimpleQueue[None] = queue.SimpleQueue()
    listener = StatusListener(lambda: changed.put(None))
    with answering(answer) as asked:
        try:
            while (report := listener.attend(UID, asked)) is None or not expected(report):
                changed.get(timeout=patience(30))
        finally:
            listener.attend(UID, None)
        return report


def test_it_hears_a_supervisor_and_its_news() -> None:
    attempts = iter(range(1, 1000))

    def answer() -> Answer:
        attempt = next(attempts)
        return status(f'"{attempt}"', attempt=attempt)

    assert hears(answer, lambda report: report.attempt >= 3).error == ""


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (status(job="another"), "its answer is not a status of this job"),
        ((404, b"", ""), "it answers with HTTP status 404"),
        ((200, b"<html>", ""), "its answer is not a status of this job"),
        ((200, b"[" * 100_000, ""), "its answer is not a status of this job"),
        ((200, b" " * 10**6, ""), "its answer is larger than 256 KiB"),
    ],
    ids=["another job", "no page", "a page", "too deep", "too large"],
)
def test_what_is_no_answer_is_an_error(answer: Answer, error: str) -> None:
    report = hears(lambda: answer, lambda report: bool(report.error))
    assert error in report.error
    assert report.attempt == 0


def test_an_answer_that_never_ends_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0
    monkeypatch.setattr(status_listener, "time", SimpleNamespace(monotonic=lambda: now))

    def drip() -> Iterator[bytes]:
        nonlocal now
        while True:
            yield b" "
            now += 1

    report = hears(lambda: (200, drip(), ""), lambda report: bool(report.error))
    assert "its answer takes too long" in report.error


def test_where_nothing_listens_that_is_said() -> None:
    changed: queue.SimpleQueue[None] = queue.SimpleQueue()
    listener = StatusListener(lambda: changed.put(None))
    asked = Asked("digits-0", "127.0.0.1", hold_port())
    listener.attend(UID, asked)
    changed.get(timeout=patience(30))
    report = listener.attend(UID, asked)
    assert report is not None
    assert report.error == f"rank 0's supervisor at 127.0.0.1:{asked.port} gives no status: Connection refused"
    listener.attend(UID, None)


def test_a_page_that_does_not_wait_is_not_asked_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_listener, "READ_SECONDS", 0.2)
    monkeypatch.setattr(status_listener, "time", SimpleNamespace(monotonic=lambda: 0))  # An answer takes no time.
    times: list[float] = []

    def answer() -> Answer:
        times.append(time.monotonic())
        return status(attempt=len(times))

    hears(answer, lambda report: report.attempt >= 3)
    assert times[2] - times[0] >= 2 * 0.2


class Ever:
    """Whether it has been told to stop: only once these seconds have all been waited for."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.pauses: list[float] = []

    def is_set(self) -> bool:
        return len(self.pauses) == self.times

    def wait(self, seconds: float) -> None:
        self.pauses.append(seconds)


def test_who_does_not_answer_is_asked_less_and_less_often_and_as_often_as_ever_once_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = iter([*[None] * 7, ("1", 1), None, None, ("2", 2)])

    def answer(_: object, __: str) -> tuple[object, str]:
        if (known := next(answers)) is None:
            raise OSError("nobody listens")
        return STATUS | {"attempt": known[1]}, known[0]

    monkeypatch.setattr(status_listener, "time", SimpleNamespace(monotonic=lambda: 0))
    monkeypatch.setattr(_Poller, "_answer", answer)
    stopped: Any = Ever(times=11)
    _Poller(UID, Asked("digits-0", "127.0.0.1", 1), lambda: None, stopped=stopped).run()
    assert stopped.pauses == [0.2, 0.5, 1.0, 2.0, 5.0, 5.0, 5.0, 0.05, 0.2, 0.5, 0.05]
