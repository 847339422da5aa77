"""A job on a cluster, as a command shows it until its end."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from ddpjob_operator.cli.cluster import shown_job
from ddpjob_operator.cli.cluster.shown_job import ShownJob
from ddpjob_operator.client import as_job

from tests.unit.sdk.test_sdk import a_document_with


class Shown:
    """A job that has ended after so many looks, and what its display is told."""

    def __init__(self, looks: int, *, problem: str | None = None, closed_at: int = -1) -> None:
        self.left, self.told, self.events = looks, list[str](), list[str]()
        self._lost: Callable[[], None] = print
        self._closed_at = closed_at
        self.life: Any = SimpleNamespace(over=False, news=self.news, job=as_job(a_document_with()))
        self.life.stop = lambda: self.events.append("life stops")
        names = ("follow", "settle", "stop")
        self.logs: Any = SimpleNamespace(problem=problem, **{name: self._note(f"logs {name}") for name in names})
        self.display: Any = SimpleNamespace(
            following=self.following, tell=lambda event: self.told.append(event.message)
        )

    def _note(self, what: str) -> Callable[[], None]:
        return lambda: self.events.append(what)

    def news(self, seconds: float) -> Iterator[Any]:
        assert seconds == shown_job.POLL_SECONDS
        yield SimpleNamespace(message=f"look {self.left}")
        self.left -= 1
        self.life.over = not self.left
        if self.left == self._closed_at:
            self._lost()

    @contextmanager
    def following(self, lost: Callable[[], None], status: Callable[[], Any]) -> Iterator[None]:
        assert status() is self.life.job.status
        self._lost = lost
        yield
        self.events.append("shown")

    def follow(self, deadline: float = math.inf) -> list[str]:
        ShownJob(self.life, self.logs, self.display).follow(deadline)
        return self.events


STOPPED = ["shown", "logs stop", "life stops"]


def test_events_are_told_until_the_end_and_then_the_last_lines_are_waited_for() -> None:
    shown = Shown(3)
    assert shown.follow() == ["logs follow", "logs settle", *STOPPED]
    assert shown.told == ["look 3", "look 2", "look 1"]


def test_that_there_are_no_logs_is_said_once() -> None:
    shown = Shown(3, problem="forbidden")
    shown.follow()
    assert shown.told == ["look 3", "no logs: forbidden", "look 2", "look 1"]


@pytest.mark.parametrize("end", ["the deadline", "the output is closed"])
def test_before_the_end_nothing_is_waited_for(end: str) -> None:
    closed = end == "the output is closed"
    shown = Shown(9, closed_at=7 if closed else -1)
    assert shown.follow(math.inf if closed else time.monotonic() - 1) == ["logs follow", *STOPPED]
    assert len(shown.told) == (2 if closed else 0)


@pytest.mark.parametrize(("nodes", "words"), [(64, []), (65, ["showing the logs of ranks 0 to 63 of 65"])])
def test_of_a_large_job_only_the_first_nodes_are_shown(
    nodes: int, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logs, screen, said = Mock(), Mock(quiet=False), list[str]()
    screen.print = said.append
    monkeypatch.setattr(shown_job, "PodLogs", logs)
    monkeypatch.setattr(shown_job, "Display", Mock())
    jobs = Mock()
    document = a_document_with(spec={"nodes": nodes})
    monkeypatch.setattr(shown_job, "Life", lambda *_: SimpleNamespace(job=as_job(document)))
    ShownJob.on(screen, jobs, document)
    assert said == words
    logs.assert_called_once_with(jobs, document, range(64), "rank")
