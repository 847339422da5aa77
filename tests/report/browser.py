"""Chromium without a window, by Playwright; the browser itself is Debian's."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Page, sync_playwright

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
def tab() -> Iterator[Page]:
    """A browser with one empty tab, and nothing of any other."""
    demand()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), chromium_sandbox=False)
        with browser, browser.new_page() as page:
            page.set_default_timeout(patience(DEADLINE_SECONDS) * 1000)
            yield page
