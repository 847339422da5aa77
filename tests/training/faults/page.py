"""`python -m tests.training.faults.page DIRECTORY`: writes what a whole run has recorded into the page."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.pages import REFERENCE, read, write
from tests.training.faults.table import ROWS, STAGES, Program, Result, When, Who, expected

PAGE = REFERENCE / "faults.md"
PARTS = {
    Program.TRAINER: "faults",
    Program.TRAINING: "faults of a script",
    Program.CHECKPOINTS: "faults of a script with Checkpoints",
}

SHOWN_SECONDS = 0.1

Seconds = Mapping[tuple[Program, Who, When], float | None]
"""Of each cell, where training went on."""


def columns(program: Program) -> list[When]:
    """The columns of a program's table."""
    return [when for when in When if when in STAGES[program] or program is Program.TRAINER]


def recorded(directory: Path) -> Seconds:
    """What a run has recorded.

    Raises:
        SystemExit: A cell is missing.
    """
    cells = [cell for file in sorted(directory.glob("*.json")) for cell in json.loads(file.read_text())]
    seconds = {(Program[cell["program"]], Who[cell["who"]], When[cell["when"]]): cell["seconds"] for cell in cells}
    for program in Program:
        for who in ROWS[program]:
            for when in columns(program):
                if expected(who, when, program).result is not Result.NOTHING and (program, who, when) not in seconds:
                    sys.exit(f"the run has no record of: {program}: {who}, {when}")
    return seconds


def table(program: Program, seconds: Seconds) -> list[str]:
    """The lines of a program's table."""
    stages = columns(program)
    lines = ["| Who | " + " | ".join(stages) + " |", "| --- |" + " --- |" * len(stages)]
    for who in ROWS[program]:
        cells = (_cell(program, who, when, seconds) for when in stages)
        lines.append(f"| {who} | " + " | ".join(cells) + " |")
    return lines


def _cell(program: Program, who: Who, when: When, seconds: Seconds) -> str:
    result, took = expected(who, when, program).result, seconds.get((program, who, when))
    return f"{result} {took:.1f}" if took and took >= SHOWN_SECONDS else result


def rows(program: Program) -> dict[str, dict[str, str]]:
    """The program's table that stands in the page: by row and column."""
    lines = [
        line.strip("| ").split(" | ") for line in read(PAGE, PARTS[program]).splitlines() if line.startswith("| ")
    ]
    head, _, *body = lines
    return {line[0]: dict(zip(head[1:], line[1:], strict=True)) for line in body}


def main() -> None:
    """Writes it."""
    seconds = recorded(Path(sys.argv[1]))
    for program, part in PARTS.items():
        write(PAGE, part, ["", *table(program, seconds), ""])
    sys.stdout.write(f"written: {PAGE}\n")


if __name__ == "__main__":
    main()
