"""What a Markdown page asks its reader to do, and what it shows as the outcome.

Blocks are fenced. Their info strings, and an HTML comment on the line before them, say what they are:

    ```bash                            commands that the reader types; they must end with 0
    ```text                            what the commands before it print
    ```yaml title=job.yaml             a file that the reader saves under this name, in any language

    ```diff                            lines with + that stand in the files of the operator that lines with # name
    ```mermaid                         a picture that is drawn from the code

    <!-- not run: REASON -->           before bash: only a reader can run this
    <!-- on a cluster -->              before bash: run by tests/e2e, on nodes with the operator and our images
    <!-- with kueue -->              before bash: run by tests/scheduling, on a cluster with Kueue
    <!-- with pod groups -->         before bash: run by tests/scheduling, on a cluster whose scheduler places groups
    <!-- with helm -->             before bash: run by tests/chart, on a cluster whose nodes are simulated
    <!-- on kind -->                 before bash: run by tests/kind, with the cluster that it makes itself
    <!-- in a project -->            before bash: run by tests/wheel, in a project beside a clone
    <!-- with a tracker -->          before bash: run by test_trackers.py, with the tracker of the page installed
    <!-- not valid: REASON -->         before yaml: a DDPJob with mistakes
    <!-- first terminal -->            before bash: goes on while the page's other commands run
    <!-- first terminal -->            before text: awaited there, after what was awaited before
    <!-- first terminal: Ctrl-C -->    before text: Ctrl-C is pressed there first; before bash: it ends with that
    <!-- on a cluster, first terminal -->   before bash or text: both; so too with Ctrl-C, a number and a tracker
    <!-- 4713: as printed -->          before bash: in place of this number the one that was printed there is typed

In shown output `…` stands for anything, also for several lines or none; a number after `=` and one with a decimal
point stand for any number; any spaces for any others.
"""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = {page.relative_to(ROOT).as_posix(): page for page in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])}

BLOCK = re.compile(r"(?:^<!-- ([^\n]*) -->\n)?^```(\S*) ?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NOT_RUN = "not run: "
NOT_VALID = "not valid: "
HERE = "here"
ON_A_CLUSTER = "on a cluster"
IN_A_PROJECT = "in a project"
ON_KIND = "on kind"
WITH_POD_GROUPS = "with pod groups"
WITH_KUEUE = "with kueue"
WITH_HELM = "with helm"
WITH_A_TRACKER = "with a tracker"
PLACES = (ON_A_CLUSTER, ON_KIND, IN_A_PROJECT, WITH_POD_GROUPS, WITH_KUEUE, WITH_HELM, WITH_A_TRACKER)
FIRST_TERMINAL = "first terminal"
CTRL_C = "first terminal: Ctrl-C"
AS_PRINTED = ": as printed"

LOOSE = re.compile(r"(\n…\n|\A…\n|\n…\Z| … |…|(?<==)\d+(?:\.\d+)?|\d+\.\d+)")

LINES = {"\n…\n": r"\n(?:.*?\n)?", "…\n": r"(?:.*?\n)?", "\n…": r"(?:\n.*)?", " … ": " (?:.*? )?", "…": ".*?"}
"""Any lines or none: between others, before them, after them; any words or none; and anything within one."""


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    line: int
    language: str
    title: str
    """Name of the file that the block is; empty if it is none."""
    note: str
    """The comment before it."""
    text: str

    @property
    def where(self) -> str:
        """One of PLACES, or HERE."""
        return next((place for place in PLACES if self.note.startswith(place)), HERE)

    @property
    def terminal(self) -> str:
        """FIRST_TERMINAL, CTRL_C, a number with AS_PRINTED, or none of these."""
        return self.note.removeprefix(f"{self.where}, ")

    def runs(self, where: str) -> bool:
        """Whether these are commands that a test can run there: one of the places above."""
        return self.language == "bash" and not self.note.startswith(NOT_RUN) and self.where == where


def blocks(page: Path) -> list[Block]:
    """The blocks of a page in their order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            line=text.count("\n", 0, match.start(2)) + 1,
            language=match[2],
            title=match[3].removeprefix("title="),
            note=match[1] or "",
            text=match[4],
        )
        for match in BLOCK.finditer(text)
    ]


def pages_that_run(where: str) -> list[str]:
    """Names of the pages with commands that a test can run there."""
    return [name for name, page in PAGES.items() if any(block.runs(where) for block in blocks(page))]


def pattern(shown: str) -> re.Pattern[str]:
    """What `plain` output must look like for a shown one to be true."""
    exact_and_loose = enumerate(LOOSE.split(plain(shown)))
    return re.compile(
        "".join(_loose(part) if index % 2 else re.escape(part) for index, part in exact_and_loose), re.DOTALL
    )


def _loose(part: str) -> str:
    return LINES.get(part, r"[\d.e+-]+")


def plain(output: str) -> str:
    """Output with any spaces as one, and no lines before its first or after its last."""
    return "\n".join(" ".join(line.split()) for line in output.strip().splitlines())
