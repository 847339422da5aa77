"""How the program that an exec starts finds the supervisor of a held gang."""

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from ddpjob_supervisor.hold import speak
from ddpjob_supervisor.hold.speak import find
from ddpjob_supervisor.hold.words import socket_of


@pytest.fixture
def parent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where supervisors have their directories. The path is short, as it has to be for a socket."""
    with tempfile.TemporaryDirectory(dir="/tmp") as parent:
        monkeypatch.setattr(speak, "PARENTS", (Path(parent),))
        yield Path(parent)


def a_place(parent: Path, name: str) -> Path:
    directory = parent / f"ddpjob-supervisor-{name}"
    directory.mkdir()
    return directory / socket_of("u")


def listening(place: Path, backlog: int = 5) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(place))
    server.listen(backlog)
    server.settimeout(0)
    return server


def test_it_is_connected_with_the_one_that_listens(parent: Path) -> None:
    listening(a_place(parent, "a")).close()  # Its supervisor was killed.
    a_place(parent, "b").symlink_to("nowhere")
    with listening(a_place(parent, "c")) as server:
        found = find("u")
        assert found is not None
        with found, server.accept()[0] as accepted:
            found.sendall(b"line")
            assert accepted.recv(4) == b"line"
            assert found.getblocking()
        assert find("of another job") is None


def test_what_another_user_listens_at_is_not_touched(parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with listening(a_place(parent, "a")) as server:
        monkeypatch.setattr(os, "geteuid", lambda: 4711)
        assert find("u") is None
        with pytest.raises(BlockingIOError):
            server.accept()


def test_one_that_has_stopped_accepting_is_not_waited_for(parent: Path) -> None:
    place = a_place(parent, "a")
    with listening(place, backlog=0), socket.socket(socket.AF_UNIX) as first:
        first.connect(str(place))
        assert find("u") is None
