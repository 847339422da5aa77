"""Words for people."""

import io
import sys
import threading

import pytest
from ddpjob_rank import console
from ddpjob_rank.console import counted, write_whole_lines

from tests.support.waiting import wait_for


class Pipe(io.RawIOBase):
    """The pipe of a node's log, which keeps each write."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        self.writes.append(bytes(data))  # type: ignore[call-overload]
        return len(self.writes[-1])


def test_a_line_is_one_write_so_that_the_lines_of_two_ranks_do_not_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    pipes = {name: Pipe() for name in ("stdout", "stderr")}
    for name, pipe in pipes.items():
        # As PYTHONUNBUFFERED opens it.
        monkeypatch.setattr(sys, name, io.TextIOWrapper(pipe, write_through=True))  # type: ignore[type-var]
    write_whole_lines()
    for name, pipe in pipes.items():
        with getattr(sys, name) as stream:
            print("rank", 0, file=stream)
            print("50%", end="\r", file=stream)
            assert pipe.writes == [b"rank 0\n", b"50%\r"]


def test_text_without_a_line_end_appears_soon_unless_the_stream_is_buffered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(console, "PARTIAL_SECONDS", 0.01)
    pipe, buffered = Pipe(), Pipe()
    out = io.TextIOWrapper(pipe, write_through=True)  # type: ignore[type-var]
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(io.BufferedWriter(buffered)))
    write_whole_lines()
    print("compiling", end="", file=sys.stderr)
    print("compiling", end="", file=out)
    wait_for("the text", lambda: pipe.writes == [b"compiling"], 10)
    assert not buffered.writes
    out.close()
    wait_for("the end of the thread", lambda: "console" not in {one.name for one in threading.enumerate()}, 10)


@pytest.mark.parametrize(
    ("number", "noun", "said"),
    [(1, "node", "1 node"), (0, "GPU", "0 GPUs"), (2, "process", "2 processes"), (3, "batch", "3 batches")],
)
def test_a_noun_is_in_the_number_of_its_number(number: int, noun: str, said: str) -> None:
    assert counted(number, noun) == said
