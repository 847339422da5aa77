"""`ddpjob dashboard` in a real browser: what its pages show, and that nothing of others comes alive on them."""

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from ddpjob_operator.cli.dashboard import board as board_module
from ddpjob_operator.cli.dashboard.guard import Guard
from ddpjob_operator.view_model import collected
from playwright.sync_api import Browser, Page, expect

from tests.support.browser import barriers, opened, tab_of
from tests.support.waiting import patience
from tests.unit.cli.dashboard.served import served
from tests.unit.cli.top.made_up import RUNNING, MadeUp
from tests.unit.view_model.jobs import NOW, condition, job_with, moment

DDPJOB = Path(sys.executable).with_name("ddpjob")
HOSTILE = """<img src=x onerror="alert(1)"><script>alert(2)</script><b>'"&amp;{{7*7}}${7*7}</b>"""
LOOKED_AT_CLOSELY = {("light", 1280), ("dark", 390)}
VIEWS = ("", "/ranks", "/curves", "/yaml", "/events")
FIRST_VIEW_SECONDS = 1.0
LONGEST_TASK_SECONDS = 0.1
RANKS = 512
MOST_ELEMENTS = 2000
"""So many elements at most, however many jobs there are."""
SCROLL = """
async () => {
  const box = document.querySelector(".long"), before = box.scrollTop;
  box.scrollTop += 340;
  await new Promise(requestAnimationFrame);
  await new Promise(requestAnimationFrame);
  return box.scrollTop > before;
}
"""
"""Scrolls by ten lines; whether there were more."""
FEWEST_STEPS = 5
expect.set_options(timeout=60_000)


def longest_task(page: Page) -> float:
    """For how many seconds a page has a processor in the longest step of scrolling through a list.

    Chromium's own list of long tasks goes by the clock, and counts the time in which other programs have the
    processor.
    """
    tools = page.context.new_cdp_session(page)
    tools.send("Performance.enable", {"timeDomain": "threadTicks"})

    def busy() -> float:
        told = tools.send("Performance.getMetrics")["metrics"]
        return float(next(one["value"] for one in told if one["name"] == "TaskDuration"))

    moments = [busy()]
    while page.evaluate(SCROLL):
        moments.append(busy())
    assert len(moments) > FEWEST_STEPS
    return max(after - before for before, after in pairwise(moments))


def job_address(name: str, view: str = "") -> str:
    return f"#/job/{quote(f'cluster:uid-of-{name}', safe='')}{view}"


def records(steps: int) -> Iterator[dict[str, Any]]:
    began = NOW - timedelta(seconds=90)
    yield {"time": began.isoformat(), "event": "started", "attempt": 1, "step": 0}
    for step in range(1, steps):
        when = (began + timedelta(seconds=step / 10)).isoformat()
        values = {"loss": 1 / step, "samples_per_second": 1000.0, "metrics": {HOSTILE: step}}
        yield {"time": when, "event": "progress", "attempt": 1, "step": step, **values}


def hostile() -> MadeUp:
    """A job of many ranks whose name, message, incidents, metrics and ranks are written to do harm."""
    failed = {"time": moment(-60), "attempt": 1, "node": 1, "pod": "x", "cause": "Application", "message": HOSTILE}
    known = {"since": moment(-20), "percent": 30.0}
    status = RUNNING | {
        "message": HOSTILE,
        "incidents": [failed | {"step": 20}],
        "conditions": [condition("Running", seconds=-50)],
        "progress": RUNNING["progress"] | known,
    }
    ranks = [{"rank": n, "node": n // 8, "step": 7, "seconds": {"forward": 1 + (n == 77)}} for n in range(RANKS)]
    page = {"phase": "Running", "since": moment(-30), "ranks": [ranks[0] | {"activity": HOSTILE}, *ranks[1:]]}
    return MadeUp({HOSTILE: job_with(status)}, page, collected(records(100)), HOSTILE)


@contextmanager
def serving(feed: MadeUp) -> Iterator[Guard]:
    """Serves a feed in a thread."""
    begun: Future[tuple[Guard, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        async with served(feed) as server:
            end = asyncio.Event()
            begun.set_result((server.guard, asyncio.get_running_loop(), end))
            await end.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    guard, loop, end = begun.result(patience(30))
    try:
        yield guard
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with opened() as browser:
        yield browser


@contextmanager
def shown(browser: Browser, feed: MadeUp) -> Iterator[tuple[Page, Guard, list[str]]]:
    """A tab with a feed's jobs, and what it complained of or asked others for."""
    complaints: list[str] = []
    with serving(feed) as guard, tab_of(browser) as page:
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        page.on(
            "request", lambda one: one.url.startswith(guard.address.partition("#")[0]) or complaints.append(one.url)
        )
        page.set_viewport_size({"width": 1280, "height": 800})
        page.goto(guard.address)
        expect(page.locator("h1")).to_be_visible()
        yield page, guard, complaints


def test_each_view_is_for_everybody_light_and_dark_wide_and_narrow_and_no_text_comes_alive(browser: Browser) -> None:
    with shown(browser, hostile()) as (page, _, complaints):
        assert "token" not in page.url
        expect(page.get_by_role("link", name=HOSTILE)).to_be_visible()
        assert barriers(page) == []
        backgrounds = set()
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            backgrounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
            for width in (1280, 390):
                page.set_viewport_size({"width": width, "height": 800})
                for view in VIEWS:
                    page.evaluate("to => { location.hash = to; }", job_address(HOSTILE, view))
                    expect(page.locator("h1")).to_have_text(HOSTILE)
                    expect(page.locator("[aria-current=page]")).to_have_count(1)
                    assert page.evaluate("document.documentElement.scrollWidth") <= width, (view, width)
                    if (scheme, width) in LOOKED_AT_CLOSELY:
                        assert barriers(page) == [], (view, scheme)
        assert len(backgrounds) == 2
        assert page.locator("#app img, #app script, #app b:not(.incidents b, .axis b)").count() == 0
    assert complaints == []


def test_a_job_is_shown_by_its_parts(browser: Browser) -> None:
    with shown(browser, hostile()) as (page, _, _complaints):
        page.evaluate("to => { location.hash = to; }", job_address(HOSTILE))
        expect(page.locator(".start li")).to_have_count(4)
        expect(page.locator(".incidents li")).to_contain_text(HOSTILE)
        page.get_by_role("link", name="Ranks").click()
        expect(page.locator(".heat i")).to_have_count(RANKS)
        expect(page.locator(".ranks")).to_contain_text("Slowest: rank 77 on node 9: its own part takes 2 s")
        page.locator(".heat i").nth(77).hover()
        expect(page.locator(".ranks")).to_contain_text("rank 77 on node 9 : 2 s")
        colours = "all => new Set(all.map(one => one.style.background)).size"
        assert page.locator(".heat i").evaluate_all(colours) == 2
        assert longest_task(page) <= LONGEST_TASK_SECONDS
        page.get_by_role("link", name="Curves").click()
        expect(page.get_by_role("img", name=f"loss: {HOSTILE} from 1 to 0.010101, lowest 0.010101")).to_be_visible()
        expect(page.locator("canvas")).to_have_count(3)
        expect(page.locator("main")).to_contain_text(f"Curves are not complete: {HOSTILE}.")
        page.get_by_label("by time").check()
        page.get_by_label("log axis").check()
        page.get_by_label("smoothing").fill("50")
        expect(page.locator("figure").first).to_contain_text("time\u2013")
        expect(page.get_by_role("img", name="lowest 0.010101")).to_have_count(0)
        page.get_by_role("link", name="YAML").click()
        expect(page.locator("pre")).to_contain_text("kind: DDPJob")
        page.get_by_role("link", name="Events").click()
        expect(page.locator("main")).to_contain_text("Created (2 x)")


LEAVE_WHILE_IT_SCROLLS = """
    const box = document.querySelector(".long");
    location.hash = "#/job/none";
    new MutationObserver(() => box.isConnected || box.dispatchEvent(new Event("scroll")))
      .observe(document.body, { childList: true, subtree: true });
"""
"""A browser tells of scrolling a moment later, when the list may be gone."""


def test_a_thousand_jobs_are_scrolled_sorted_and_filtered(browser: Browser) -> None:
    progress = RUNNING["progress"]
    feed = MadeUp(
        {f"job-{n:03}": job_with(RUNNING | {"progress": progress | {"loss": 1 / (n + 1)}}) for n in range(1000)}
    )
    with shown(browser, feed) as (page, _, complaints):
        expect(page.locator("h1")).to_have_text("1000 jobs")
        assert longest_task(page) <= LONGEST_TASK_SECONDS
        expect(page.get_by_role("link", name="job-999")).to_be_visible()
        assert page.evaluate("document.querySelectorAll('*').length") <= MOST_ELEMENTS
        page.get_by_role("button", name="Loss").click()
        page.evaluate("document.querySelector('.long').scrollTop = 0")
        expect(page.locator("tbody a").first).to_have_text("job-999")
        page.keyboard.press("/")
        page.keyboard.type("job-01 team")
        expect(page.locator("tbody a")).to_have_count(10)
        page.get_by_label("compare job-010").check()
        page.get_by_label("compare job-011").check()
        page.get_by_role("link", name="Compare 2").click()
        expect(page.locator(".legend li")).to_have_count(2)
        assert barriers(page) == []
        page.go_back()
        expect(page.get_by_label("Filter jobs")).to_have_value("job-01 team")
        expect(page.get_by_role("link", name="Compare 2")).to_be_visible()
        page.get_by_label("Filter jobs").fill("nothing")
        page.get_by_role("button", name="Show all jobs").click()
        expect(page.locator("tbody a").first).to_have_text("job-999")
        page.evaluate(LEAVE_WHILE_IT_SCROLLS)
        expect(page.locator(".long")).to_have_count(0)
        page.wait_for_timeout(100)
    assert complaints == []


FAILED = RUNNING | {
    "state": "Failed",
    "message": "Rank 3 failed: OutOfMemory: no memory was left",
    "conditions": [condition("Failed")],
    "completionTime": moment(-60),
    "incidents": [
        {
            "attempt": 1,
            "node": 3,
            "pod": "x",
            "time": moment(-60),
            "cause": "OutOfMemory",
            "message": "no memory was left",
        }
    ],
}


def test_what_failed_is_found_at_a_glance_and_its_reason_is_read_first(browser: Browser) -> None:
    feed = MadeUp({"digits": job_with(RUNNING), "words": job_with(FAILED), "other": job_with(RUNNING)})
    with shown(browser, feed) as (page, _, complaints):
        expect(page).to_have_title("1 Failed, 2 Running - DDPJob")
        expect(page.locator(".chip")).to_have_text(["1 to look at", "1 Failed", "2 Running"])
        expect(page.locator(".why .problem")).to_have_text("OutOfMemory: no memory was left; rank 3 failed")
        page.get_by_role("button", name="1 Failed").click()
        expect(page.locator("tbody a")).to_have_text(["words"])
        page.locator("tbody a").press("Enter")
        expect(page.locator("h1")).to_be_focused()
        expect(page).to_have_title("Failed: words - DDPJob")
        expect(page.locator(".lead.bad p").first).to_have_text("Rank 3 failed: OutOfMemory: no memory was left")
        expect(page.get_by_role("link", name="Read its logs")).to_be_visible()
        expect(page.locator(".actions button")).to_have_text(["Delete"])
        page.get_by_role("link", name="All jobs").click()
        expect(page.locator("tbody a")).to_have_text(["words"])
        page.evaluate("location.hash = '#/job/none'")
        expect(page.locator("h1")).to_have_text("No such job")
        assert barriers(page) == []
    assert complaints == []


def test_the_yaml_is_copied(browser: Browser) -> None:
    with shown(browser, MadeUp({"digits": job_with(RUNNING)})) as (page, _, _complaints):
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.evaluate("to => { location.hash = to; }", job_address("digits", "/yaml"))
        page.get_by_role("button", name="Copy").click()
        expect(page.get_by_role("button", name="Copied")).to_be_visible()
        assert "kind: DDPJob" in page.evaluate("navigator.clipboard.readText()")


def test_what_changes_is_shown_at_once_and_the_end_of_the_server_is_told(browser: Browser) -> None:
    feed = hostile()
    with shown(browser, feed) as (page, _, _complaints):
        feed.put("digits", state="Queued", message="waits in team-a")
        expect(page.locator("tbody")).to_contain_text("waits in team-a")
        page.get_by_role("button", name="1 to look at").click()
        expect(page.locator("tbody a")).to_have_text(["digits"])
        del feed.jobs["digits"]
        feed.changed()
        page.get_by_role("button", name="Show all jobs").click()
        expect(page.locator("h1")).to_have_text("1 job")
        expect(page.locator("tbody a")).to_have_count(1)


def test_what_cannot_be_undone_is_asked_twice(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    called = list[tuple[str, ...]]()

    def carried_out(words: Sequence[str]) -> tuple[bool, str]:
        called.append((*words,))
        return True, "digits: done"

    monkeypatch.setattr(board_module, "carried_out", carried_out)
    with shown(browser, MadeUp({"digits": job_with(RUNNING)})) as (page, _, complaints):
        page.evaluate("to => { location.hash = to; }", job_address("digits"))
        dialog = page.get_by_role("dialog")
        page.get_by_role("button", name="Delete").press("Enter")
        expect(dialog.get_by_role("button", name="No")).to_be_focused()
        assert barriers(page) == []
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        expect(page.get_by_role("button", name="Delete")).to_be_focused()
        page.get_by_role("button", name="Delete").click()
        dialog.get_by_role("button", name="Delete").click()
        expect(dialog).to_contain_text("Really?")
        dialog.get_by_role("button", name="No").press("Enter")
        expect(page.get_by_role("button", name="Delete")).to_be_focused()
        assert called == []
        page.get_by_role("button", name="Delete").click()
        dialog.get_by_role("button", name="Delete").dblclick()
        expect(dialog).to_contain_text("Really?")
        assert called == []
        dialog.get_by_role("button", name="Yes, delete it").click()
        expect(page.locator("output")).to_have_text("digits: done")
        page.get_by_role("button", name="Scale").click()
        dialog.get_by_label("How many nodes?").fill("4")
        page.keyboard.press("Enter")
        expect(dialog).to_have_count(0)
        expect(page.locator("output")).to_have_text("digits: done")
    assert complaints == []
    of_cluster = ("-n", "team", "--context", "here")
    assert called == [
        ("delete", "digits", "--wait=false", *of_cluster),
        ("scale", "digits", "--nodes", "4", *of_cluster),
    ]


def test_a_page_without_the_token_shows_nothing_and_says_what_to_do(browser: Browser) -> None:
    with serving(hostile()) as guard, tab_of(browser) as page:
        page.goto(f"http://127.0.0.1:{guard.port}/")
        expect(page.locator("main")).to_contain_text("open the address that ddpjob dashboard has printed")


def test_the_command_serves_the_runs_of_this_machine_with_their_logs_until_ctrl_c(
    browser: Browser, tmp_path: Path
) -> None:
    (tmp_path / "hello.py").write_text("print('loading <b>weights</b>')\nprint('step 1: loss 0.5')\n")
    subprocess.run([DDPJOB, "run", "hello.py"], cwd=tmp_path, check=True, capture_output=True, timeout=patience(120))
    command = [DDPJOB, "dashboard", "--no-open", "--local"]
    with (
        tab_of(browser) as page,
        subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            page.goto(process.stdout.readline().split()[-1])
            expect(page.locator("h1")).to_have_text("1 job")
            began = time.monotonic()
            page.reload()
            expect(page.locator("h1")).to_have_text("1 job")
            assert time.monotonic() - began <= patience(FIRST_VIEW_SECONDS)
            page.get_by_role("link", name="hello").click()
            page.get_by_role("link", name="Logs").click()
            expect(page.locator(".line")).to_have_count(2)
            assert barriers(page) == []
            page.get_by_label("Search the logs").fill("WEIGHTS")
            expect(page.locator(".line")).to_have_text(["[rank 0] loading <b>weights</b>"])
            process.send_signal(signal.SIGINT)
            assert process.wait(patience(30)) == 0
            page.evaluate("location.hash = '#/'")
            expect(page.locator("main")).to_contain_text("Has it ended?")
        finally:
            process.kill()
