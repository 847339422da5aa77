"""The documents are true: their commands run, print what is shown, and their links lead somewhere."""

import re
from pathlib import Path

import pytest
from ddpjob_operator.api.contract import CONTRACT_VARIABLES
from ddpjob_operator.api.job_file import parse

from tests.docs.pages import (
    AS_PRINTED,
    CTRL_C,
    FIRST_TERMINAL,
    HERE,
    NOT_RUN,
    NOT_VALID,
    PAGES,
    PLACES,
    ROOT,
    blocks,
    pages_that_run,
    pattern,
    plain,
)
from tests.docs.reader import Reader, read

LANGUAGES = {"bash", "text", "yaml", "json", "python", "diff", "mermaid"}
OPERATOR = ROOT / "operator" / "ddpjob_operator"
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
DEAR = {
    "docs/how-to/resume-and-start-over.md": "tests/local/test_starting_over.py and test_life.py; it trains six times",
    "docs/how-to/feed-it-your-data.md": "tests/training/test_imagenet.py, with fewer pictures",
}
"""Pages that take most of the cores for a minute, and what shows the same for less."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "name",
    [pytest.param(page, marks=pytest.mark.full(DEAR[page]) if page in DEAR else ()) for page in pages_that_run(HERE)],
)
def test_the_commands_of_a_page_print_what_it_shows(name: str, tmp_path: Path) -> None:
    read(name, Reader(tmp_path / "ddpjob"))


@pytest.mark.parametrize("name", PAGES)
def test_every_block_is_of_a_kind_that_is_checked(name: str) -> None:
    text = PAGES[name].read_text(encoding="utf-8")
    assert {block.language for block in blocks(PAGES[name])} <= LANGUAGES
    assert text.count("```") == 2 * len(blocks(PAGES[name])), "a fence is not closed, or indented"
    for block in blocks(PAGES[name]):
        assert (
            block.terminal in {"", FIRST_TERMINAL, CTRL_C, *PLACES}
            or block.note.startswith((NOT_RUN, NOT_VALID))
            or block.note.endswith(AS_PRINTED)
        )


@pytest.mark.parametrize("name", PAGES)
def test_every_line_of_a_diff_that_a_page_shows_stands_in_its_file(name: str) -> None:
    for block in blocks(PAGES[name]):
        if block.language == "diff":
            code = ""
            for line in block.text.splitlines():
                code = (OPERATOR / line[3:]).read_text(encoding="utf-8") if line.startswith(" # ") else code
                assert line.startswith(" # ") or f"\n{line[1:]}\n" in code, line


@pytest.mark.parametrize("name", PAGES)
def test_every_job_that_a_page_shows_is_valid(name: str) -> None:
    for block in blocks(PAGES[name]):
        whole = block.language == "yaml" and "kind: DDPJob\nmetadata:" in block.text
        if whole and not block.note.startswith(NOT_VALID):
            parse(block.text, f"{name}, line {block.line}")


def test_every_variable_that_a_script_of_a_page_reads_is_in_the_contract() -> None:
    scripts = "".join(block.text for page in PAGES.values() for block in blocks(page) if block.language == "python")
    read = set(re.findall(r"""environ(?:\.get\(|\[)["'](DDPJOB_\w+)""", scripts))
    assert "DDPJOB_UID" in read
    assert read <= CONTRACT_VARIABLES


@pytest.mark.parametrize("name", PAGES)
def test_every_link_leads_to_a_file_and_a_heading_that_exist(name: str) -> None:
    page = PAGES[name]
    for target in LINK.findall(FENCED.sub("", page.read_text(encoding="utf-8"))):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), f"{target} in {name} leads nowhere"
        assert not anchor or anchor in _anchors(file), f"{target} in {name}: no such heading"


@pytest.mark.parametrize("name", PAGES)
def test_every_upgrade_of_the_chart_finds_the_release_and_keeps_its_values(name: str) -> None:
    for command in re.findall(r"^helm upgrade .*", PAGES[name].read_text(encoding="utf-8"), re.MULTILINE):
        assert "--namespace ddpjob-system --reset-then-reuse-values" in command


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen: set[Path] = set()
    todo = [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page not in seen and page.suffix == ".md":
            seen.add(page)
            targets = (link.partition("#")[0] for link in LINK.findall(page.read_text(encoding="utf-8")))
            todo += [(page.parent / target).resolve() for target in targets if target and "://" not in target]
    assert set(PAGES.values()) - seen == set()


@pytest.mark.parametrize(
    ("shown", "printed", "true"),
    [
        ("saved step=50", "saved  step=100", True),
        ("saved step=50", "saved epoch=50", False),
        ("in 0.9 s", "in 1.0 s", True),
        ("2 nodes", "3 nodes", False),
        ("a\n…\nb", "a\nb", True),
        ("a\n…\nb", "a\nx\ny\nb", True),
        ("a\n…\nb", "a\nx", False),
        ("…\na", "a", True),
        ("…\na", "b\nc\na", True),
        ("…\na", "ba", False),
        ("a\n…", "a", True),
        ("a\n…", "a\nb\nc", True),
        ("a\n…", "ab", False),
        ("rank …: lost", "rank 1: lost", True),
        ("2/2  …  0  …", "2/2 30% 5s 0 9s", True),
        ("2/2  …  0  …", "2/2        0 9s", True),
        ("2/2  …  0  …", "2/20 9s", False),
    ],
)
def test_shown_output_is_compared_loosely_where_it_says_so(shown: str, printed: str, *, true: bool) -> None:
    assert bool(pattern(shown).fullmatch(plain(printed))) is true


def _anchors(page: Path) -> set[str]:
    """Anchors as GitHub makes them of headings."""
    headings = HEADING.findall(FENCED.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
