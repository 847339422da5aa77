"""The page about recovery has a part for all that the bench of recovery measures."""

from pathlib import Path

import pytest

from tests.bench import table


@pytest.mark.parametrize("part", table.PARTS)
def test_the_page_has_a_place_for_each_part_of_the_bench(part: str) -> None:
    assert table.PAGE.read_text(encoding="utf-8").count(table.begin(part)) == 1


def test_rows_replace_those_of_their_part_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\n{table.begin('a')}\nold\n{table.END}\n\n{table.begin('b')}\nkept\n{table.END}\n")
    monkeypatch.setattr(table, "PAGE", page)
    table.section("a", [table.Row("x", "1 s", "≤ 2 s", met=True), table.Row("y", "3 s", "≤ 2 s", met=False)], "Now.")
    text = page.read_text()
    assert "old" not in text
    assert "| x | 1 s | ≤ 2 s | yes |\n| y | 3 s | ≤ 2 s | **no** |\n" in text
    assert text.endswith(f"{table.begin('b')}\nkept\n{table.END}\n")


def test_a_page_without_the_part_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n")
    monkeypatch.setattr(table, "PAGE", page)
    with pytest.raises(ValueError, match="measured: a"):
        table.section("a", [], "Now.")
