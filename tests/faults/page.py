"""`python -m tests.faults.page DIRECTORY`: writes the results of a whole run into the page."""

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from bench.table import machine
from tests.pages import REFERENCE, write

from .ever_failed import EVER_FAILED
from .plan import Plan
from .plans import PLANS

if TYPE_CHECKING:
    from .conductor import Outcome

PAGE = REFERENCE / "fault-matrix.md"
PART = "faults"

BEGAN = "began"
"""The file whose age is the age of the run."""

NAMED = 3
"""How many of several similar plans are named."""

Group = tuple[str, str]
"""A family and a place."""


def begin(directory: Path) -> None:
    """Marks the beginning of a run."""
    (directory / BEGAN).touch()


def record(directory: Path, outcome: "Outcome", usual: Mapping[str, float]) -> None:
    """Records what was wrong or, if nothing was, by how much the slowest stage exceeded its undisturbed time."""
    wrong, seconds = (directory / f"{outcome.plan.name}.{kind}" for kind in ("txt", "json"))
    for file in (wrong, seconds):
        file.unlink(missing_ok=True)
    longer = max((seconds - usual[stage] for stage, seconds in outcome.seconds.items()), default=0.0)
    if outcome.wrong:
        told = "\n".join([*outcome.wrong, "", outcome.story])
        wrong.write_text(told)
    else:
        seconds.write_text(json.dumps(max(0.0, longer)))


def recorded(directory: Path) -> dict[str, float]:
    """The seconds of each plan that a run has recorded.

    Raises:
        SystemExit: A plan is missing.
    """
    seconds = {file.stem: float(json.loads(file.read_text())) for file in directory.glob("*.json")}
    missing = [plan.name for plan in PLANS if plan.name not in seconds]
    if missing:
        sys.exit(f"the run has no record of: {', '.join(missing)}")
    return seconds


def groups() -> dict[Group, list[Plan]]:
    """The plans of each row."""
    rows: defaultdict[Group, list[Plan]] = defaultdict(list)
    for plan in PLANS:
        rows[plan.family, plan.place].append(plan)
    return dict(rows)


def circumstances(directory: Path) -> str:
    """How many plans a run has tried, when, on which machine, and how long this took."""
    end = max(file.stat().st_mtime for file in directory.glob("*.json"))
    minutes = (end - (directory / BEGAN).stat().st_mtime) / 60
    until = datetime.fromtimestamp(end, UTC)
    return f"{len(PLANS)} plans, tried until {until:%Y-%m-%d %H:%M} UTC, in {minutes:.0f} minutes, on {machine()}."


def told(seconds: Mapping[str, float], circumstances: str) -> list[str]:
    """The table, the allowed differences, and the faults that were found and fixed."""
    lines = [
        circumstances,
        "",
        "| Family | Place | Plans | What goes wrong | Longest delay |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row, plans in groups().items():
        slowest = max(seconds[plan.name] for plan in plans)
        lines.append(f"| {' | '.join(cells(row, plans))} | {slowest:.0f} s |")
    reasons = dict.fromkeys(plan.differs.why for plan in PLANS if plan.differs.why)
    differing = [f"- {_names(plan.name for plan in PLANS if plan.differs.why == why)}: {why}." for why in reasons]
    found = [
        f"- {fault} ({_names(name for name, one in EVER_FAILED.items() if one == fault)})"
        for fault in dict.fromkeys(EVER_FAILED.values())
    ]
    lines += ["", "## What may differ", "", *(differing or ["Nothing."])]
    return [*lines, "", "## What was found by it, and mended", "", *(found or ["Nothing."])]


def cells(row: Group, plans: Sequence[Plan]) -> tuple[str, ...]:
    """A row of the table, without the time that it took."""
    family, place = row
    return str(family), place, str(len(plans)), "; ".join(dict.fromkeys(plan.injected for plan in plans))


def _names(plans: Iterable[str]) -> str:
    """Only a few of the plans are named."""
    names = [f"`{name}`" for name in plans]
    more = [f"{len(names) - NAMED} more"] if len(names) > NAMED else []
    return ", ".join([*names[:NAMED], *more])


def main() -> None:
    """Writes the page."""
    directory = Path(sys.argv[1])
    write(PAGE, PART, ["", *told(recorded(directory), circumstances(directory)), ""])
    sys.stdout.write(f"written: {PAGE}\n")


if __name__ == "__main__":
    main()
