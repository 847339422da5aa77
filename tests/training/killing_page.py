"""`python -m tests.training.killing_page DIRECTORY`: writes what the 200 kills have recorded into a page."""

import json
import sys
from pathlib import Path
from typing import Any

from tests.pages import REFERENCE, write

PAGE, PART = REFERENCE / "faults.md", "kills"
CELLS = 8
LINES = ("script", "library", "framework")


def table(cells: list[dict[str, Any]]) -> list[str]:
    """The lines of the table: a row for each record, and the sums."""
    rows = [
        [
            "generated" if cell["own"] else "of others",
            str(cell["size"]),
            cell["place"],
            *(str(cell["kills"].get(line, 0)) for line in LINES),
            str(sum(cell["kills"].values())),
            f"`{cell['seed']}`",
        ]
        for cell in sorted(cells, key=lambda cell: (not cell["own"], cell["size"], cell["place"]))
    ]
    sums = [str(sum(cell["kills"].get(line, 0) for cell in cells)) for line in LINES]
    total = str(sum(sum(cell["kills"].values()) for cell in cells))
    heads = ["Scripts", "Ranks", "Checkpoints in", *(f"Lines of the {line}" for line in LINES), "Kills", "TEST_SEED"]
    lines = [heads, ["---"] * len(heads), *rows, ["all", "", "", *sums, total, ""]]
    return [f"| {' | '.join(line)} |" for line in lines]


def main() -> None:
    """Writes it.

    Raises:
        SystemExit: A test has recorded nothing: it failed, or was not run.
    """
    cells = [json.loads(file.read_text()) for file in Path(sys.argv[1]).glob("*.json")]
    if len(cells) != CELLS:
        sys.exit(f"{len(cells)} of {CELLS} tests have recorded their kills")
    write(PAGE, PART, ["", *table(cells), ""])
    sys.stdout.write(f"written: {PAGE}\n")


if __name__ == "__main__":
    main()
