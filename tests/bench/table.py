"""What a bench has found, as rows of a table: printed, and written into the page about recovery."""

import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import psutil

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "recovery.md"
PARTS = ("kills", "pods", "watching", "saves", "goodput", "mixed")
"""Of the bench and of the page, in the order in which they are measured."""
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Row:
    """One figure beside its target."""

    what: str
    found: str
    target: str = ""
    met: bool | None = None
    """None: there is nothing to be met, or nothing was measured."""

    @property
    def verdict(self) -> str:
        """A word for the last column."""
        return {True: "yes", False: "**no**", None: ""}[self.met]


def show(rows: Sequence[Row]) -> None:
    """Prints rows as they are found."""
    for row in rows:
        print(
            f"  {row.what}: {row.found}" + (f" (target {row.target}: {row.verdict})" if row.target else ""),
            flush=True,
        )


def section(name: str, rows: Sequence[Row], circumstances: str) -> None:
    """Puts rows between the marks of a part of the page, in place of those that were there."""
    text = PAGE.read_text(encoding="utf-8")
    lines = ["| | measured | target | met |", "| --- | --- | --- | --- |"]
    lines += [f"| {row.what} | {row.found} | {row.target} | {row.verdict} |" for row in rows]
    fresh = "\n".join([begin(name), circumstances, "", *lines, END])
    new, times = re.subn(f"{re.escape(begin(name))}\n.*?{re.escape(END)}", lambda _: fresh, text, flags=re.DOTALL)
    if times != 1:
        raise ValueError(f"{PAGE} must have one part between {begin(name)} and {END}, and has {times}")
    PAGE.write_text(new, encoding="utf-8")


def begin(name: str) -> str:
    """The line before a measured part of the page."""
    return f"<!-- measured: {name} -->"


END = "<!-- end of measured -->"


def circumstances(load_before: float, how: str) -> str:
    """When and where it was measured, and what else the machine did meanwhile."""
    load = f"{load_before:.1f} before and {os.getloadavg()[0]:.1f} after"
    return f"Measured {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {how}, on {machine()}; load average {load}."


def machine() -> str:
    """The machine in a few words."""
    models = re.findall(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    memory = round(psutil.virtual_memory().total / GIB)
    return (
        f"{len(os.sched_getaffinity(0))} cores ({models[0] if models else platform.machine()}), {memory} GiB,"
        f" Linux {platform.release()}, Python {platform.python_version()}, PyTorch {version('torch')}"
    )
