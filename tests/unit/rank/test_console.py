"""Words for people."""

import io
import sys

import pytest
from ddpjob_rank.console import counted, write_whole_lines


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
    for name in ("stdout", "stderr"):
        pipe = Pipe()
        # As PYTHONUNBUFFERED opens it.
        unbuffered = io.TextIOWrapper(pipe, write_through=True)  # type: ignore[type-var]
        monkeypatch.setattr(sys, name, unbuffered)
        write_whole_lines()
        print("rank", 0, file=unbuffered)
        print("50%", end="\r", file=unbuffered)
        assert pipe.writes == [b"rank 0\n", b"50%\r"]


@pytest.mark.parametrize(
    ("number", "noun", "said"),
    [(1, "node", "1 node"), (0, "GPU", "0 GPUs"), (2, "process", "2 processes"), (3, "batch", "3 batches")],
)
def test_a_noun_is_in_the_number_of_its_number(number: int, noun: str, said: str) -> None:
    assert counted(number, noun) == said
