"""How the program that an exec starts finds the supervisor of a held gang."""

import json
import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from ddpjob_supervisor.hold import speak
from ddpjob_supervisor.hold.speak import find
from ddpjob_supervisor.hold.words import NotRun, socket_of, to_line

from tests.support.waiting import patience


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


@pytest.fixture
def exec_(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, int]]:
    """What an exec sends, and what it reads."""
    (theirs_in, ours_in), (ours_out, theirs_out) = os.pipe(), os.pipe()
    monkeypatch.setattr(speak, "INPUT", theirs_in)
    monkeypatch.setattr(speak, "OUTPUT", theirs_out)
    monkeypatch.setattr(os, "environ", {"DDPJOB_SUPERVISOR": json.dumps({"DDPJOB_UID": "u"})})
    yield ours_in, ours_out
    for file in (theirs_in, ours_out, theirs_out):
        os.close(file)


def test_both_sides_hear_each_other_to_the_end(
    parent: Path, exec_: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speak, "PIECE", 5)
    question, answer = os.urandom(5_000), os.urandom(5_000)
    ours_in, ours_out = exec_
    with listening(a_place(parent, "a")) as server:
        speaks = threading.Thread(target=speak.main)
        speaks.start()
        server.settimeout(patience(20))
        os.write(ours_in, question)
        os.close(ours_in)
        with server.accept()[0] as supervisor:
            with supervisor.makefile("rb") as heard:
                assert heard.read() == question, "to the end, which is passed on"
            supervisor.sendall(answer)
        speaks.join()
    assert os.read(ours_out, 10_000) == answer


def test_the_answer_of_a_supervisor_that_hears_no_more_arrives(parent: Path, exec_: tuple[int, int]) -> None:
    """As if its disk is full while code still arrives."""
    ours_in, ours_out = exec_
    with listening(a_place(parent, "a")) as server:
        speaks = threading.Thread(target=speak.main)
        speaks.start()
        server.settimeout(patience(20))
        os.write(ours_in, b"code")
        with server.accept()[0] as supervisor:
            os.write(ours_in, b"more code" * 1000)
            supervisor.sendall(b"no space")
        os.write(ours_in, b"even more code")
        speaks.join()
        os.close(ours_in)
    assert os.read(ours_out, 10_000) == b"no space"


def test_without_a_supervisor_the_command_is_told_to_come_again(
    parent: Path,  # noqa: ARG001
    exec_: tuple[int, int],
) -> None:
    speak.main()
    os.close(exec_[0])
    assert os.read(exec_[1], 10_000) == to_line(NotRun("rank 0's supervisor accepts no programs yet", later=True))
