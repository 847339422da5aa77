"""The table of strangers' scripts has the rows that are tested."""

from tests.pages import read
from tests.strangers.page import PAGE, PART, table


def test_the_table_of_strangers_is_as_their_tests_are() -> None:
    assert read(PAGE, PART).splitlines() == table(), "bring it up to date with: make generate"
