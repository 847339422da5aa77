"""Chromium without a window, by Playwright; the browser itself is Debian's."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

from tests.plant.needs import leave_out
from tests.plant.real import machine
from tests.support.packages import install
from tests.support.waiting import patience

PACKAGES = {"chromium": "chromium"}
DEADLINE_SECONDS = 60.0


def demand() -> None:
    """Installs the browser where it is missing and a Debian has it; leaves the test out elsewhere."""
    if machine.missing(PACKAGES) and not machine.can_install():
        leave_out("left out: no chromium on PATH, and no apt-get to install it with; run it on a Debian, as root")
    install(PACKAGES)


@contextmanager
def opened() -> Iterator[Browser]:
    """A browser without tabs."""
    demand()
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=shutil.which("chromium"), chromium_sandbox=False) as browser,
    ):
        yield browser


@contextmanager
def tab_of(browser: Browser) -> Iterator[Page]:
    """An empty tab that knows nothing of any other."""
    with browser.new_context() as context, context.new_page() as page:
        page.set_default_timeout(patience(DEADLINE_SECONDS) * 1000)
        yield page


@contextmanager
def tab() -> Iterator[Page]:
    """A browser with one empty tab, and nothing of any other."""
    with opened() as browser, tab_of(browser) as page:
        yield page


def barriers(page: Page) -> list[str]:
    """What on a page keeps people out who use a keyboard, a screen reader or large letters, as axe-core finds it."""
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    return [f"{one['impact']}: {one['id']}: {node['html']}" for one in found for node in one["nodes"]]
