"""The pages that benches write have a part for all that is measured."""

from pathlib import Path

import pytest

from bench import table
from tests.pages import END, begin


@pytest.mark.parametrize(
    ("page", "part"),
    [
        (page, part)
        for page in (table.PERFORMANCE, table.RECOVERY, table.TRAINING, table.SHARING)
        for part in page.parts
    ],
)
def test_a_page_has_a_place_for_each_part_of_its_bench(page: table.Page, part: str) -> None:
    assert page.path.read_text(encoding="utf-8").count(begin(part)) == 1


def test_rows_replace_those_of_their_part_and_no_others(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\n{begin('a')}\nold\n{END}\n\n{begin('b')}\nkept\n{END}\n")
    rows = [table.Row("x", "1 s", "≤ 2 s", met=True), table.Row("y", "3 s", "≤ 2 s", met=False)]
    table.section(page, "a", rows, "Now.")
    text = page.read_text()
    assert "old" not in text
    assert "| x | 1 s | ≤ 2 s | yes |\n| y | 3 s | ≤ 2 s | **no** |\n" in text
    assert text.endswith(f"{begin('b')}\nkept\n{END}\n")


def test_a_page_without_the_part_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n")
    with pytest.raises(ValueError, match="measured: a"):
        table.section(page, "a", [], "Now.")
