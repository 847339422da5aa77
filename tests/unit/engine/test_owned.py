"""The table of what a job owns: who else names a kind."""

import tokenize
from functools import cache
from pathlib import Path

import ddpjob_operator
import pytest
from ddpjob_operator.engine import owned
from ddpjob_operator.engine.owned import OWNED, OwnedKind

ROOM = Path(ddpjob_operator.__file__).parent
MOST_FILES = 8
ROWS = {name: kind for name, kind in vars(owned).items() if isinstance(kind, OwnedKind)}


def test_each_row_is_in_the_table() -> None:
    assert sorted(map(str, ROWS.values())) == sorted(map(str, OWNED))


@cache
def names_in(file: Path) -> frozenset[str]:
    """The names in a file's code: not the words in its texts, such as the SECRET of `--env-from SECRET`."""
    with file.open("rb") as lines:
        return frozenset(token.string for token in tokenize.tokenize(lines.readline) if token.type == tokenize.NAME)


@pytest.mark.parametrize("row", ROWS)
def test_few_files_know_a_kind_apart_from_the_others(row: str) -> None:
    """Whatever is done to all kinds reads the table: `OWNED`, or what is kept by kind."""
    files = [file for file in ROOM.rglob("*.py") if row in names_in(file)]
    assert len(files) <= MOST_FILES, files


def test_a_kind_that_can_be_missing_is_one_that_is_looked_for() -> None:
    """A round begins with what is there: of what nobody may read it is not known."""
    assert [kind for kind in OWNED if kind.feature and not kind.named] == []
    assert [kind for kind in OWNED if bool(kind.named) != ("watch" in kind.verbs)] == []
