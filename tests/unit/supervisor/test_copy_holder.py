"""What a supervisor does with messages about a copy that ranks would not send, and when it is out of reach."""

import os
import random
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ddpjob_rank.reporting import copy_handover
from ddpjob_supervisor.node.copy_holder import CopyHolder

from tests.support.copy_holder import holding
from tests.support.waiting import patience, wait_for


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DDPJOB_HEARTBEAT", str(tmp_path / "0"))
    monkeypatch.setenv("DDPJOB_ATTEMPT", "1")
    return tmp_path / "0.copy"


@pytest.fixture
def holder(path: Path) -> Iterator[CopyHolder]:
    with holding(path) as holder:
        yield holder


def in_memory() -> int:
    return os.memfd_create("copy")


def send(path: Path, message: bytes, *files: int) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(str(path))
        socket.send_fds(sender, [message], files)


def open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


@pytest.mark.usefixtures("holder")
def test_messages_without_a_meaning_change_nothing_and_leave_no_file_open(path: Path) -> None:
    copy = in_memory(), in_memory()
    before = open_files()
    assert copy_handover.keep("s3://b/x y/step-1", *copy)
    words = [b"", b"keep", b"keep x y", b"keep  y", b"ask 1", b"ask one y", b"drop 1 ", b"keep -1 y", b"\xff" * 99]
    for _ in range(100):
        word, count = random.choice(words), random.randrange(4)
        if word != b"drop 1 " or count:
            send(path, word, *[copy[0]] * count)
    answer = copy_handover.ask()
    assert answer
    assert answer[0] == "s3://b/x y/step-1"
    assert os.fstat(answer[1]).st_ino == os.fstat(copy[0]).st_ino
    # The thread of the supervisor may not have closed its connection yet.
    wait_for("two are the supervisor's, and two are the answer's", lambda: open_files() == before + 4, 5)


def test_files_that_are_replaced_are_closed(holder: CopyHolder) -> None:
    copy = in_memory(), in_memory()
    before = open_files()
    for _ in range(20):
        assert copy_handover.keep("s3://b/x y/step-1", *copy)
    assert copy_handover.ask()
    assert holder.holds
    # The thread of the supervisor may not have closed its connection yet.
    wait_for("two are the supervisor's, and two are the answer's", lambda: open_files() == before + 4, 5)


def test_a_supervisor_that_does_not_answer_is_not_waited_for_for_long(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_handover, "ANSWER_SECONDS", 0.1)
    copy, until = (in_memory(), in_memory()), time.monotonic() + patience(60)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
        deaf.bind(str(path))
        assert copy_handover.ask() is None
        while copy_handover.keep("s3://b/x y/step-1", *copy):
            assert time.monotonic() < until, "its queue is never full"
    assert not copy_handover.keep("s3://b/x y/step-1", *copy), "it is gone"
    assert copy_handover.ask() is None
