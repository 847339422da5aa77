"""What the kernel tells of a process: proc(5). Where there is no /proc, nothing is known."""

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
    """One letter; X where it is gone."""
    waits_in: str
    """The function of the kernel in which its main thread waits; empty where it does not, or may not be known."""

    @classmethod
    def of(cls, pid: int) -> "Process":
        """The process with this number."""
        stat, wchan = _read(pid, "stat"), _read(pid, "wchan")
        # The name stands in parentheses, and may contain some.
        head, _, rest = stat.rpartition(")")
        return cls(pid, head.partition("(")[2], rest.split()[0] if rest else "X", "" if wchan == "0" else wchan)


def handles(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal: without one, a signal may end it."""
    return _in_mask(pid, number, "SigCgt")


def is_handling(pid: int, number: int) -> bool:
    """Whether a signal that was sent has not come yet, or its handler, which keeps others of its kind out, runs."""
    return _in_mask(pid, number, "SigPnd", "ShdPnd", "SigBlk")


def children(pid: int) -> Iterator[int]:
    """The children of a process, whichever of its threads they are of."""
    for task in sorted((PROC / str(pid) / "task").glob("*/children")):
        with contextlib.suppress(OSError):
            yield from map(int, task.read_text(encoding="ascii").split())


def descendants(pid: int) -> Iterator[int]:
    """The children of a process, theirs, and so on."""
    for child in children(pid):
        yield child
        yield from descendants(child)


def _in_mask(pid: int, number: int, *names: str) -> bool:
    fields = dict(line.split(":", 1) for line in _read(pid, "status").splitlines() if ":" in line)
    return any(int(fields.get(name, "0"), 16) >> (number - 1) & 1 for name in names)


def _read(pid: int, name: str) -> str:
    try:
        return (PROC / str(pid) / name).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
