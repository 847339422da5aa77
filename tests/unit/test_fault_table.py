"""docs/reference/faults.md has every cell of the fault table, as the tests expect it."""

import re

import pytest

from tests.training.faults.page import PAGE, columns, rows
from tests.training.faults.table import ROWS, Program, Result, When, Who, expected

CONTENT = PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("program", "who"),
    [pytest.param(program, who, id=f"{program}-{who.name}") for program, whos in ROWS.items() for who in whos],
)
def test_each_cell_of_a_row_says_what_the_tests_expect(program: Program, who: Who) -> None:
    said = {when: re.sub(r" [\d.]+$", "", cell) for when, cell in rows(program)[who].items()}
    wanted = {str(when): str(expected(who, when, program).result) for when in columns(program)}
    assert said == wanted, "make fault-table writes it anew"


@pytest.mark.parametrize("program", Program)
def test_the_table_of_a_program_has_no_other_row(program: Program) -> None:
    assert rows(program).keys() == {str(who) for who in ROWS[program]}


@pytest.mark.parametrize("result", Result)
def test_each_result_is_explained(result: Result) -> None:
    assert f"**{result}**" in CONTENT


@pytest.mark.parametrize("when", When)
def test_each_time_is_explained(when: When) -> None:
    assert f"**{when}**" in CONTENT
