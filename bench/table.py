"""Prints the figures of a bench as rows of a table, and writes them into a page of the documents."""

import os
import platform
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import psutil

from tests.pages import HOW_TO, REFERENCE, write

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Page:
    """A page with parts that a bench writes."""

    path: Path
    parts: tuple[str, ...]
    """The names of these parts, which are also parts of the bench, in the order in which they are measured."""


RECOVERY = Page(
    REFERENCE / "recovery.md",
    ("kills", "pods", "flood", "watching", "saves", "read-back", "resume", "goodput", "mixed"),
)
PERFORMANCE = Page(
    REFERENCE / "performance.md",
    ("start", "again", "fairness", "memory", "churn", "targets", "contestants", "shares"),
)
TRAINING = Page(REFERENCE / "training-speed.md", ("loop", "divergence", "library", "launch", "scaling", "input"))
SHARING = Page(HOW_TO / "share-a-cluster.md", ("gangs",))


@dataclass(frozen=True, slots=True)
class Row:
    """One figure and its target."""

    what: str
    found: str
    target: str = ""
    met: bool | None = None
    """Whether the target is met; None if there is no target, or nothing was measured."""

    @property
    def verdict(self) -> str:
        """A word for the last column."""
        return {True: "yes", False: "**no**", None: ""}[self.met]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a bench."""

    how: str
    """How the part is measured, in a few words."""
    measure: Callable[[], list[Row]]


def measure_all(page: Page, parts: Mapping[str, Part], *, keep: bool) -> None:
    """Measures the parts one after the other, prints their rows and, with `keep`, writes them into the page.

    Then ends the process, with 1 if a target is missed.
    """
    missed: list[Row] = []
    for name, part in parts.items():
        print(f"{name}: {part.how}", flush=True)
        load, began = os.getloadavg()[0], time.monotonic()
        rows = part.measure()
        show(rows)
        print(f"  ({time.monotonic() - began:.0f} s)", flush=True)
        if keep:
            section(page.path, name, rows, circumstances(load, part.how))
        missed += [row for row in rows if row.met is False]
    sys.exit(f"missed: {'; '.join(row.what for row in missed)}" if missed else 0)


def show(rows: Sequence[Row]) -> None:
    for row in rows:
        print(
            f"  {row.what}: {row.found}" + (f" (target {row.target}: {row.verdict})" if row.target else ""),
            flush=True,
        )


def section(page: Path, name: str, rows: Sequence[Row], circumstances: str) -> None:
    """Replaces the rows of one part of a page."""
    lines = ["| | measured | target | met |", "| --- | --- | --- | --- |"]
    lines += [f"| {row.what} | {row.found} | {row.target} | {row.verdict} |" for row in rows]
    write(page, name, [circumstances, "", *lines])


def circumstances(load_before: float, how: str) -> str:
    """A sentence that says when, how, on which machine and under which load the figures were measured."""
    load = f"{load_before:.1f} before and {os.getloadavg()[0]:.1f} after"
    return f"Measured {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {how}, on {machine()}; load average {load}."


def machine() -> str:
    """A description of the machine in a few words."""
    models = re.findall(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    memory = round(psutil.virtual_memory().total / GIB)
    return (
        f"{len(os.sched_getaffinity(0))} cores ({models[0] if models else platform.machine()}), {memory} GiB,"
        f" Linux {platform.release()}, Python {platform.python_version()}, PyTorch {version('torch')}"
    )
