"""What the kernel says about a process: proc(5). Without /proc nothing is known."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Process:
    """A process, as it was a moment ago."""

    pid: int
    name: str
    state: str
    """One letter; X if it is gone."""
    waits_in: str
    """The kernel function in which its main thread waits; empty if it does not wait, or the kernel does not say."""

    @classmethod
    def of(cls, pid: int) -> "Process":
        """The process with this number."""
        stat, wchan = _read(pid, "stat"), _read(pid, "wchan")
        # The name is in parentheses, and may contain some.
        head, _, rest = stat.rpartition(")")
        return cls(pid, head.partition("(")[2], rest.split()[0] if rest else "X", "" if wchan == "0" else wchan)


def handles(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal: without one, the signal may end it."""
    return _in_mask(pid, number, "SigCgt")


def is_handling(pid: int, number: int) -> bool:
    """Whether a signal that was sent has not arrived yet, or its handler, which blocks its kind, still runs."""
    return _in_mask(pid, number, "SigPnd", "ShdPnd", "SigBlk")


def children(pid: int) -> Iterator[int]:
    """The children of a process, whichever of its threads started them."""
    for task in sorted((PROC / str(pid) / "task").glob("*/children")):
        with contextlib.suppress(OSError):
            yield from map(int, task.read_text(encoding="ascii").split())


def descendants(pid: int) -> Iterator[int]:
    """The descendants of a process."""
    for child in children(pid):
        yield child
        yield from descendants(child)


def proportional_set_size(pid: int, proc: Path = PROC) -> int | None:
    """Bytes of a process, counting each page by its share among those that hold it; None: it cannot be read.

    For processes forked from one another this is what adds up. The kernel walks all pages of the process for it, tens
    of milliseconds with PyTorch in it: ask only once in a while, from a thread.
    (https://docs.kernel.org/filesystems/proc.html, smaps_rollup)
    """
    try:
        lines = (proc / str(pid) / "smaps_rollup").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return None


def _in_mask(pid: int, number: int, *names: str) -> bool:
    fields = dict(line.split(":", 1) for line in _read(pid, "status").splitlines() if ":" in line)
    return any(int(fields.get(name, "0"), 16) >> (number - 1) & 1 for name in names)


def _read(pid: int, name: str) -> str:
    try:
        return (PROC / str(pid) / name).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
