"""docs/reference/faults.md has every cell of the fault table, as the tests expect it."""

import re

import pytest

from tests.training.faults.page import PAGE, rows
from tests.training.faults.table import Result, When, Who, expected

CONTENT = PAGE.read_text(encoding="utf-8")
TABLE = rows()


@pytest.mark.parametrize("who", Who, ids=lambda who: str(who.name))
def test_each_cell_of_a_row_says_what_the_tests_expect(who: Who) -> None:
    said = {when: re.sub(r" [\d.]+$", "", cell) for when, cell in TABLE[who].items()}
    assert said == {str(when): str(expected(who, when).result) for when in When}, "make fault-table writes it anew"


def test_the_table_has_no_other_row() -> None:
    assert TABLE.keys() == {str(who) for who in Who}


@pytest.mark.parametrize("result", Result)
def test_each_result_is_explained(result: Result) -> None:
    assert f"**{result}**" in CONTENT


@pytest.mark.parametrize("when", When)
def test_each_time_is_explained(when: When) -> None:
    assert f"**{when}**" in CONTENT
