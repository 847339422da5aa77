"""`python -m tests.training.faults.page DIRECTORY`: writes what a whole run has recorded into the page."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.pages import REFERENCE, read, write
from tests.training.faults.table import Result, When, Who, expected

PAGE = REFERENCE / "faults.md"
PART = "faults"

SHOWN_SECONDS = 0.1

Seconds = Mapping[tuple[Who, When], float | None]
"""Of each cell, where training went on."""


def recorded(directory: Path) -> Seconds:
    """What a run has recorded.

    Raises:
        SystemExit: A cell is missing.
    """
    cells = [cell for file in sorted(directory.glob("*.json")) for cell in json.loads(file.read_text())]
    seconds = {(Who[cell["who"]], When[cell["when"]]): cell["seconds"] for cell in cells}
    for who in Who:
        for when in When:
            if expected(who, when).result is not Result.NOTHING and (who, when) not in seconds:
                sys.exit(f"the run has no record of: {who}, {when}")
    return seconds


def table(seconds: Seconds) -> list[str]:
    """The lines of the table."""
    lines = ["| Who | " + " | ".join(When) + " |", "| --- |" + " --- |" * len(When)]
    lines += [f"| {who} | " + " | ".join(_cell(who, when, seconds) for when in When) + " |" for who in Who]
    return lines


def _cell(who: Who, when: When, seconds: Seconds) -> str:
    result, took = expected(who, when).result, seconds.get((who, when))
    return f"{result} {took:.1f}" if took and took >= SHOWN_SECONDS else result


def rows() -> dict[str, dict[str, str]]:
    """The table that stands in the page: by row and column."""
    lines = [line.strip("| ").split(" | ") for line in read(PAGE, PART).splitlines() if line.startswith("| ")]
    head, _, *body = lines
    return {line[0]: dict(zip(head[1:], line[1:], strict=True)) for line in body}


def main() -> None:
    """Writes it."""
    write(PAGE, PART, ["", *table(recorded(Path(sys.argv[1]))), ""])
    sys.stdout.write(f"written: {PAGE}\n")


if __name__ == "__main__":
    main()
