"""Histories that a test writes and reads: the supervisor's side and the command's, held together by their files."""

import os
import random
import secrets
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ddpjob_operator.history import JobHistory, find_history, open_place
from ddpjob_supervisor.history.journal import Journal
from ddpjob_supervisor.history.secret_values import SecretValues
from ddpjob_supervisor.history.segments import HistoryWriter
from ddpjob_supervisor.history.targets import DirectoryTarget, Target

Begin = Callable[..., Journal]
Read = Callable[..., JobHistory]

LONG_SECONDS = 30.0
USER, GROUP = random.randint(20_000, 30_000), random.randint(20_000, 30_000)


@pytest.fixture
def uid() -> str:
    return secrets.token_hex(8)


@pytest.fixture
def begin(tmp_path: Path, uid: str) -> Iterator[Begin]:
    """Begins the journal of a node, whose end is waited for."""
    begun = []

    def begin(
        *,
        node: int = 0,
        incarnation: int = 1,
        attempt: int = 1,
        ranks: int = 1,
        disk: Target | None = None,
        is_early: Callable[[], bool] = lambda: False,
        name: str = "digits",
        **env: str,
    ) -> Journal:
        writer = HistoryWriter("team", name, uid, node, incarnation, ranks)
        target = disk or DirectoryTarget(tmp_path, writer)
        begun.append(Journal(str(tmp_path), writer, SecretValues(env), attempt, lambda: target, is_early=is_early))
        return begun[-1]

    yield begin
    for journal in begun:
        journal.close(LONG_SECONDS)


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Reads the history that is there."""
    return lambda name="digits", uid=None: find_history(open_place(str(tmp_path)), "team", name, uid)


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that other users can reach."""
    with tempfile.TemporaryDirectory() as name:
        os.chown(name, USER, GROUP)
        yield Path(name)


@pytest.fixture
def as_user() -> Iterator[Callable[[int], None]]:
    """Goes on as another user, of the group GROUP."""
    groups = os.getgroups()

    def become(user: int) -> None:
        os.seteuid(0)
        os.setgroups([GROUP])
        os.setegid(GROUP)
        os.seteuid(user)

    yield become
    os.seteuid(0)
    os.setegid(0)
    os.setgroups(groups)


def texts(history: JobHistory, node: int = 0, **limits: float) -> list[str]:
    return [line.text for line in history.log(history.segments(node, "log"), **limits)]  # type: ignore[arg-type]
