"""This process as a rank: what it tells by its heartbeat, as its supervisor reads it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ddpjob_rank.reporting import report as reporting
from ddpjob_rank.reporting import teller
from ddpjob_supervisor.watch.beat import Beat
from ddpjob_supervisor.watch.heartbeats import Heartbeats


@contextmanager
def a_rank(monkeypatch: pytest.MonkeyPatch, directory: Path, **env: str) -> Iterator[Heartbeats]:
    """As long as the block runs, this process has a heartbeat, and these variables."""
    monkeypatch.setattr(teller, "_warned", set())
    heartbeats = Heartbeats(directory, 1)
    monkeypatch.setenv("DDPJOB_HEARTBEAT", str(heartbeats.path(0)))
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    reporting._forget()
    yield heartbeats
    reporting._forget()
    heartbeats.close()


def told_at() -> float:
    """When this process has last told what it does."""
    assert reporting._current
    return reporting._current.record.activity_at


def beat_of(heartbeats: Heartbeats) -> Beat:
    """What it has told last."""
    beat = heartbeats.read()[0]
    assert beat, "nothing was told"
    return beat
