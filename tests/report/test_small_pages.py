"""The comparison of runs and a supervisor's first page, in a real browser."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ddpjob_operator.report import compare, find
from ddpjob_supervisor.gang.states import Stall
from ddpjob_supervisor.page.document import document
from ddpjob_supervisor.page.first_page import HEADERS, as_html

from tests.support.browser import barriers, tab
from tests.unit.report.lines import ZERO, line, write
from tests.unit.supervisor.page.gangs import AT, GANG

NARROW = {"width": 390, "height": 900}
HOSTILE = '</title></style><script>document.title = "taken"</script><img src="http://elsewhere.test/">'
COLOURS = {"light": "rgb(255, 255, 255)", "dark": "rgb(15, 19, 24)"}


class Looked:
    """What happened in a browser's tab while a page was looked at."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with tab() as page:
        yield page


@pytest.fixture
def looked(browser: Any) -> Looked:
    return Looked(browser)


def background(page: Any) -> dict[str, str]:
    """The colour of the page in both schemes."""
    found = {}
    for scheme in COLOURS:
        page.emulate_media(color_scheme=scheme)
        found[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return found


def test_a_comparison_is_readable_on_a_telephone_and_asks_for_nothing(looked: Looked, tmp_path: Path) -> None:
    lines = [line("progress", 1, step, at=step, loss=1 / step) for step in range(1, 50)]
    for name in ("first", "a-second-run-with-quite-a-long-name-that-somebody-chose"):
        started = line("started", 1, 0, options={"note": HOSTILE, "lr": name})
        write(tmp_path / name / "progress.jsonl", started, *lines)
    (file := tmp_path / "comparison.html").write_text(
        compare([find(run) for run in sorted(tmp_path.iterdir()) if run.is_dir()], ZERO)
    )
    looked.page.set_viewport_size(NARROW)
    looked.page.goto(file.as_uri())
    assert looked.page.evaluate("document.documentElement.scrollWidth") == NARROW["width"]
    assert background(looked.page) == COLOURS
    assert barriers(looked.page) == []
    assert "taken" not in looked.page.title()
    assert looked.page.locator("figure svg").count() == 1
    looked.page.locator("figure .place rect").last.hover(force=True)
    assert looked.page.locator(".tip:visible").count() == 1
    assert (looked.complaints, looked.requests) == ([], [file.as_uri()])


def test_a_supervisors_page_has_its_style_and_runs_nothing(looked: Looked) -> None:
    address = "http://supervisor.test/"
    text = as_html(document(dataclasses.replace(GANG, stall=Stall(AT, 1, 1, HOSTILE))), f"{HOSTILE} on {'node' * 80}")
    looked.page.route(address, lambda route: route.fulfill(body=text, headers=HEADERS, content_type="text/html"))
    looked.page.set_viewport_size(NARROW)
    looked.page.goto(address)
    assert looked.page.evaluate("document.documentElement.scrollWidth") == NARROW["width"]
    assert background(looked.page) == COLOURS, "its policy has to allow its own style"
    assert barriers(looked.page) == []
    assert looked.page.title().endswith("Running, attempt 3")
    assert "<script>" in looked.page.inner_text("dl")
    assert (looked.complaints, looked.requests) == ([], [address])
