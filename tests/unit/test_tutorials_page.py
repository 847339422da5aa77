"""docs/reference/tutorials.md names only tests and flags that there are."""

import re

import pytest
from ddpjob_operator.cli import arguments
from ddpjob_trainer.config import train_parser
from ddpjob_trainer.inference import commands

from tests.support.named import ROOT, mistakes

PAGE = ROOT / "docs" / "reference" / "tutorials.md"
ROWS = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if re.match(r"\| [^|]*[^-| ]", line)]
LESSONS = [row for row in ROWS if not row.startswith("| What it teaches")]
CODE = re.compile(r"`([^`]+)`")
FLAG = re.compile(r"(?<![\w-])--?[a-zA-Z][\w-]*")

TRAINER = {
    name
    for parser in (train_parser(), commands.export_parser(), commands.predict_parser())
    for name in parser._option_string_actions
}
OURS = ("ddpjob-train", "ddpjob_trainer")
"""After these words of a code span come flags of ours; so they do in one that begins with a flag."""


def test_each_of_the_five_tutorials_has_its_table() -> None:
    headings = len(ROWS) - len(LESSONS)
    assert headings == 5
    assert len(LESSONS) >= 5 * 4


@pytest.mark.parametrize("row", LESSONS, ids=lambda row: row.split("|")[1].strip()[:40])
def test_what_a_tutorial_teaches_is_shown_by_tests_that_exist(row: str) -> None:
    teaches, how, shown = (cell.strip() for cell in row.strip("|").split(" | "))
    assert teaches
    assert how
    assert [*mistakes(shown)] == []


@pytest.mark.parametrize("row", LESSONS, ids=lambda row: row.split("|")[1].strip()[:40])
def test_what_does_it_here_has_only_flags_that_exist(row: str) -> None:
    for span in CODE.findall(row.strip("|").split(" | ")[1]):
        if span.startswith("ddpjob "):
            assert span.split()[1] in _ddpjob(), span
            continue
        command = next((word for word in OURS if word in span), None)
        flags = span.partition(command)[2] if command else span if span.startswith("-") else ""
        assert set(FLAG.findall(flags)) <= TRAINER, span


def _ddpjob() -> set[str]:
    parser = arguments.parser()
    return set(next(action for action in parser._actions if action.choices).choices or ())
