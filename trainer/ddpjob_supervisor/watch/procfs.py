"""Reads the kernel's data about a process from /proc: see proc(5). On systems without /proc, nothing is known."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
GONE = "X"


@dataclass(frozen=True, slots=True)
class Process:
    """The state of a process at the time of the call."""

    pid: int
    name: str
    state: str
    """A letter, as in proc(5); X if the process is gone."""
    waits_in: str
    """The kernel function in which the main thread waits; empty if it does not wait, or if the function is
    unknown."""

    @classmethod
    def of(cls, pid: int) -> "Process":
        """The process with this process ID."""
        stat, wchan = _read(pid, "stat"), _read(pid, "wchan")
        name = stat.rpartition(")")[0].partition("(")[2]
        return cls(pid, name, _after_name(stat)[:1] or GONE, "" if wchan == "0" else wchan)


def state_of(pid: int) -> str:
    """The state of a process: a letter as in proc(5); X if the process is gone."""
    return _after_name(_read(pid, "stat"))[:1] or GONE


def handles(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal. Without a handler, the signal may end the process."""
    return _in_mask(pid, number, "SigCgt")


def is_handling(pid: int, number: int) -> bool:
    """Whether a signal is still pending, or its handler is still running, which blocks the signal."""
    return _in_mask(pid, number, "SigPnd", "ShdPnd", "SigBlk")


def has_variable(pid: int, name: str) -> bool:
    """Whether the environment of a process contained a variable when its program started."""
    return any(variable.startswith(f"{name}=") for variable in _read(pid, "environ").split("\0"))


def command_line(pid: int) -> list[str]:
    """The words of a process's command line. A forked process has its parent's command line."""
    return _read(pid, "cmdline").split("\0")


def children(pid: int) -> Iterator[int]:
    """The child processes of a process. Any of its threads may have started them."""
    for task in sorted((PROC / str(pid) / "task").glob("*/children")):
        with contextlib.suppress(OSError):
            yield from map(int, task.read_text(encoding="ascii").split())


def descendants(pid: int) -> Iterator[int]:
    """The children of a process, their children, and so on."""
    for child in children(pid):
        yield child
        yield from descendants(child)


def proportional_set_size(pid: int, proc: Path = PROC) -> int | None:
    """The proportional set size of a process in bytes: shared pages are divided among the processes that share them.

    This is the size to add up for forked processes. To compute it, the kernel walks all pages of the process, which
    takes tens of milliseconds if the process has imported PyTorch. So call this rarely, and in a thread. None if the
    size cannot be read. (https://docs.kernel.org/filesystems/proc.html, smaps_rollup)
    """
    try:
        lines = (proc / str(pid) / "smaps_rollup").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return None


def _after_name(stat: str) -> str:
    """The fields of /proc/PID/stat after the name, which is in parentheses and may itself contain parentheses."""
    return stat.rpartition(")")[2].lstrip()


def _in_mask(pid: int, number: int, *names: str) -> bool:
    fields = dict(line.split(":", 1) for line in _read(pid, "status").splitlines() if ":" in line)
    return any(int(fields.get(name, "0"), 16) >> (number - 1) & 1 for name in names)


def _read(pid: int, name: str) -> str:
    try:
        return (PROC / str(pid) / name).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
