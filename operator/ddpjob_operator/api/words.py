"""Formats numbers and durations for people."""

from collections.abc import Collection, Iterable
from datetime import datetime
from itertools import islice

MINUTE, HOUR, DAY = 60, 3600, 86400


def counted(number: int, noun: str) -> str:
    """Formats a number with a noun, as in `1 node`, `2 nodes`, `2 processes`."""
    ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number} {noun}{ending}"


def enumerated(items: Iterable[object]) -> str:
    """Formats a list of items, as in `a`, `a and b`, `a, b and c`."""
    *before, last = map(str, items)
    return f"{', '.join(before)} and {last}" if before else last


def listed(items: Collection[object], most: int = 10) -> str:
    """Formats a list of which only the first items count, as in `a, b, c` or, of too many, `a, b and 11 more`.

    Example:
        >>> listed("abc"), listed("abcdef", 2), listed([])
        ('a, b, c', 'a, b and 4 more', 'none')
    """
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return f"{', '.join(map(str, islice(items, most)))}{more}" or "none"


def intervals(numbers: Iterable[int]) -> str:
    """Formats numbers like an Indexed Job's `completedIndexes`, with ranges for three or more in a row: `0,1,3-5`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(f"{run[0]}-{run[-1]}" if run[2:] else ",".join(map(str, run)) for run in runs)


def restarts(number: int, free: int) -> str:
    """Formats how often a gang started again. `free` restarts did not count against its budget."""
    return f"{number}, and {free} not counted" if free else str(number)


def lasted(this_start: float, in_all: float | None) -> str:
    """How many seconds a job took since its last start and, if it was resumed, since its first one.

    Example:
        >>> lasted(600.0, None), lasted(600.0, 7380.0)
        ('10m', '10m since it was resumed; 2h3m in all, pauses included')
    """
    if in_all is None:
        return duration(round(this_start))
    return f"{duration(round(this_start))} since it was resumed; {duration(round(in_all))} in all, pauses included"


def duration(seconds: int) -> str:
    """Formats a duration in its two largest units, as in `56s`, `5m30s`, `1h5m`, `3d4h`."""
    for size, larger, unit, smaller in ((86400, 3600, "d", "h"), (3600, 60, "h", "m"), (60, 1, "m", "s")):
        if seconds >= size:
            whole, rest = divmod(seconds, size)
            return f"{whole}{unit}{rest // larger}{smaller}" if rest >= larger else f"{whole}{unit}"
    return f"{seconds}s"


def age(since: datetime | None, now: datetime) -> str:
    """Formats how long ago `since` was, as kubectl prints it: `45s`, `12m`, `3h`, `2d`.

    A time in the future gives `0s`, because the clocks of two machines differ slightly.
    """
    if since is None:
        return "<none>"
    seconds = max(0, int((now - since).total_seconds()))
    if seconds < 2 * MINUTE:
        return f"{seconds}s"
    if seconds < 2 * HOUR:
        return f"{seconds // MINUTE}m"
    return f"{seconds // HOUR}h" if seconds < 2 * DAY else f"{seconds // DAY}d"


def world(nodes: int, procs_per_node: int) -> str:
    """Formats the size of a job: `2 nodes x 4 processes`."""
    return f"{counted(nodes, 'node')} x {counted(procs_per_node, 'process')}"
