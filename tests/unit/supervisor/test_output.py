"""What a supervisor prints waits for no reader, and arrives in order: real pipes."""

import io
import os
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

import pytest
from ddpjob_rank.console import complain
from ddpjob_supervisor import output
from ddpjob_supervisor.output import Unwaited

from tests.support.waiting import patience, wait_for


@dataclass
class Pipe:
    """One that is read only when a test wants it to be."""

    reader: int
    stream: IO[str]
    out: Unwaited

    def fill(self) -> int:
        """Leaves no room in it; as many bytes fit in."""
        os.set_blocking(self.out.fileno(), False)
        filled = 0
        try:
            while True:
                filled += os.write(self.out.fileno(), b"." * 4096)
        except BlockingIOError:
            os.set_blocking(self.out.fileno(), True)
            return filled

    def read(self, size: int) -> str:
        """The next characters."""
        parts = []
        while size:
            parts.append(os.read(self.reader, size))
            assert parts[-1], "the other end is closed"
            size -= len(parts[-1])
        return b"".join(parts).decode()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    reader, writer = os.pipe()
    stream = os.fdopen(writer, "w", encoding="utf-8")
    yield Pipe(reader, stream, Unwaited(stream))
    os.close(reader)


def test_each_line_is_printed_before_its_writer_goes_on(pipe: Pipe) -> None:
    os.set_blocking(pipe.reader, False)
    for number in range(100):
        print(number, "ä", file=pipe.out, flush=True)
        assert os.read(pipe.reader, 100).decode() == f"{number} ä\n"


@pytest.mark.parametrize("blocking", [True, False])
def test_a_pipe_that_nobody_reads_holds_up_nobody_and_what_is_missing_is_said(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch, *, blocking: bool
) -> None:
    monkeypatch.setattr(output, "MOST", 3)
    filled = pipe.fill()
    os.set_blocking(pipe.out.fileno(), blocking)
    begun = time.monotonic()
    for number in range(50):
        pipe.out.write(f"line {number}\n")
        pipe.out.flush()
    assert time.monotonic() - begun < patience(2.0)
    pipe.read(filled)
    expected = "line 0\nline 1\nline 2\nwarning: 47 lines missing here: this log was not read in time\n"
    assert pipe.read(len(expected)) == expected
    wait_for("all to be printed", lambda: not pipe.out._lines)
    os.set_blocking(pipe.reader, False)
    for _ in range(100):
        print("again", file=pipe.out, flush=True)
        assert os.read(pipe.reader, 100) == b"again\n"


def test_the_last_lines_get_a_moment_and_not_more(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "LAST_SECONDS", 0.2)
    monkeypatch.setattr("sys.stdout", pipe.stream)
    monkeypatch.setattr("sys.stderr", pipe.stream)
    output.print_in_threads()
    pipe.fill()
    print("stuck", flush=True)
    begun = time.monotonic()
    output.finish()
    assert 0.2 <= time.monotonic() - begun < patience(2.0)


def test_what_is_printed_after_that_gets_the_same_moment(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "LAST_SECONDS", patience(5.0))
    monkeypatch.setattr("sys.stdout", pipe.stream)
    monkeypatch.setattr("sys.stderr", pipe.stream)
    output.print_in_threads()
    output.finish()
    filled = pipe.fill()
    reading = threading.Timer(3 * output.PATIENCE_SECONDS, pipe.read, [filled])
    reading.start()
    complain("why it ends")
    assert isinstance(sys.stderr, Unwaited)
    assert not sys.stderr._lines
    reading.join()
    assert pipe.read(19) == "error: why it ends\n"


def test_lines_that_nobody_can_read_any_more_are_dropped(pipe: Pipe) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, pipe.reader)
    os.close(null)
    for _ in range(3):
        print("nobody", file=pipe.out, flush=True)
    pipe.out.drain(patience(5.0))
    assert not pipe.out._lines


def test_a_stream_without_a_descriptor_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = io.StringIO()
    monkeypatch.setattr("sys.stdout", memory)
    monkeypatch.setattr("sys.stderr", None)
    output.print_in_threads()
    print("here")
    assert memory.getvalue() == "here\n"
