"""Parses faulthandler's stacks: where is the main thread, and does it wait for other ranks? Pure."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from pathlib import PurePosixPath

from ddpjob_rank.failure.whose import is_of_a_library, is_ours, starts_programs

THREAD = re.compile(r"^(Current thread|Thread) 0x", re.MULTILINE)
FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$', re.MULTILINE)

ANSWERING = "/ddpjob_rank/running/answering.py"
WRITING = re.compile(r'/ddpjob_rank/console\.py", line \d+ in _write_partial_lines')
"""Two threads of DDPJob in each rank: the one that answers the supervisor, and the one that writes partial lines."""

COMMUNICATION = "/torch/distributed/"
"""A thread waits for other ranks if it is in a function from this directory that has not called back into the
program."""

WAITS = {
    ("/torch/nn/parallel/distributed.py", "_distributed_broadcast_coalesced"),
    ("/torch/autograd/graph.py", "_engine_run_backward"),
    ("/torch/cuda/__init__.py", "synchronize"),
}
"""The innermost frame (file and function) of a thread that waits in a collective that native code has begun."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame of a stack."""

    file: str
    line: int
    function: str

    @property
    def of_a_library(self) -> bool:
        """Whether the file belongs to a library, and so neither to the program nor to DDPJob."""
        return is_of_a_library(self.file)

    def __str__(self) -> str:
        position = f"{PurePosixPath(self.file).name}:{self.line}"
        return position if self.function == "<module>" else f"{self.function} ({position})"


def main_thread(stacks: str) -> tuple[Frame, ...]:
    """The frames of the main thread, the innermost first; empty if the stacks do not contain this thread."""
    thread = _main(_threads(stacks))
    return tuple(Frame(match["file"], int(match["line"]), match["function"]) for match in FRAME.finditer(thread))


def main_first(stacks: str) -> str:
    """The stacks, beginning with the main thread's, because readers look for that one."""
    return "\n\n".join(thread.rstrip() for thread in _main_first(stacks))


def _main_first(stacks: str) -> list[str]:
    threads = _threads(stacks)
    main = _main(threads)
    return [main, *(thread for thread in threads if thread is not main)]


def without_ours(stacks: str) -> str:
    """The stacks without DDPJob's own threads, and without the calls that started the program."""
    foreign = (one for one in _main_first(stacks) if ANSWERING not in one and not WRITING.search(one))
    threads = map(_without_start, foreign)
    return "\n\n".join(thread for thread in threads if FRAME.search(thread)) or main_first(stacks)


def without_start(stack: Sequence[Frame]) -> tuple[Frame, ...]:
    """The frames without the calls that started the program."""
    return tuple(frame for frame in stack if not _starts_it(frame.file))


def _without_start(thread: str) -> str:
    lines = thread.rstrip().splitlines()
    return "\n".join(line for line in lines if not ((match := FRAME.match(line)) and _starts_it(match["file"])))


def _starts_it(file: str) -> bool:
    return file == "<frozen runpy>" or starts_programs(file)


def _threads(stacks: str) -> list[str]:
    edges = [*(match.start() for match in THREAD.finditer(stacks)), len(stacks)]
    return [stacks[start:end] for start, end in pairwise(edges)]


def _main(threads: Sequence[str]) -> str:
    """The stack of the main thread.

    Usually it is marked as current, because the kernel lets the main thread handle the signal. If the main thread
    cannot handle the signal, DDPJob's own thread writes the stacks, and the main thread comes last because it is the
    oldest.
    """
    current = (thread for thread in threads if thread.startswith("Current") and ANSWERING not in thread)
    return next(current, threads[-1] if threads else "")


def communicates(frames: Sequence[Frame]) -> bool:
    """Whether a thread with these frames waits for other ranks, as far as its Python frames show this."""
    if any(frames[0].file.endswith(file) and frames[0].function == function for file, function in WAITS if frames):
        return True
    return any(COMMUNICATION in frame.file for frame in takewhile(lambda frame: frame.of_a_library, frames))


def location(frames: Sequence[Frame]) -> str | None:
    """Where a thread is: the program's innermost frame and the innermost of all; None if there are no frames."""
    if not frames:
        return None
    own = next(_own(frames), frames[0])
    return str(own) if own == frames[0] else f"{own}, in {frames[0]}"


def _own(frames: Sequence[Frame]) -> Iterator[Frame]:
    """The program's frames, then DDPJob's, because the program may be `ddpjob-train` or an example of ours."""
    yield from (frame for frame in frames if not frame.of_a_library and not is_ours(frame.file))
    yield from (frame for frame in frames if is_ours(frame.file) and not starts_programs(frame.file))
