"""`ddpjob dashboard` beside real pods: start, ranks, logs and curves of a training, and its buttons."""

import json
import random
import re
import threading
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.plant import Plant
from tests.support.browser import tab
from tests.support.jobs import Team
from tests.support.live_page import Dashboard, Reader, dashboard
from tests.support.seed import SEED
from tests.support.waiting import wait_for

from .work import LONG, a_training, an_engineer

PRESSED = 6
"""How many buttons are pressed before the job is cancelled and deleted."""
ARGUMENTS = ["--workload", "mlp", "--epochs", "10000", "--global-batch-size=12"]


class Log:
    """The log of a job as its page shows it."""

    def __init__(self, board: Dashboard, job_id: str) -> None:
        self.lines = list[str]()
        self._answer = board.open(f"/api/logs?{urlencode({'id': job_id})}")
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        with suppress(OSError, ValueError, AttributeError):  # It ends with the dashboard.
            for line in self._answer:
                if line.startswith(b"data: "):
                    self.lines += json.loads(line.removeprefix(b"data: ")).get("lines", [])

    def of(self, rank: int) -> list[str]:
        return [line for line in self.lines if line.startswith(f"[rank {rank}]")]


@pytest.mark.full("tests/cluster/test_live_page.py shows the rest; only real nodes forward ports to a supervisor")
def test_a_training_is_followed_on_the_page(team: Team, real: Plant) -> None:
    team.apply(a_training("digits", {"args": ARGUMENTS}))
    with dashboard(real.kubeconfig, "-n", team.namespace) as board:
        page = Reader(board)
        wait_for("the job", lambda: page.rows().get("digits"), LONG)
        job_id = page.rows()["digits"]["id"]
        job = Reader(board, id=job_id)

        def part(name: str) -> Any:
            return job.state.get(f"{job_id} {name}")

        def losses() -> list[float]:
            return list((part("curves") or {}).get("loss", [[], []])[1])

        def steps() -> list[int]:
            return [rank["step"] for rank in part("ranks") or () if rank["step"]]

        wait_for("the start as a tree", lambda: "first step" in [one["step"] for one in part("start") or ()], LONG)
        wait_for("steps of both ranks", lambda: len(steps()) == 2, LONG)
        wait_for("a curve", lambda: len(losses()) > 1, LONG)
        before = len(losses())
        wait_for("its next points", lambda: len(losses()) > before + 1, LONG)
        assert (losses()[-1] < losses()[0], part("noCurves")) == (True, "")
        log = Log(board, job_id)
        wait_for("the logs of both ranks", lambda: log.of(0) and log.of(1), LONG)

        with dashboard(an_engineer(real, team.namespace), "-n", team.namespace) as editors:
            theirs = Reader(editors)
            wait_for("the editor's page", lambda: theirs.rows().get("digits"), LONG)
            other, why = Reader(editors, id=job_id), f"{job_id} noCurves"
            wait_for("the refusal", lambda: 'resource "pods/portforward"' in str(other.state.get(why)))
            assert "Ask for the ClusterRole ddpjob-debug" in other.state[why]

        with tab() as browser:
            browser.goto(board.address)
            browser.get_by_role("link", name="digits").click()
            press_what_is_offered(browser, random.Random(int(SEED)))
            if button(browser, "Resume").is_visible():
                press(browser, "Resume")
            wait_for("it to run again", lambda: page.rows()["digits"]["state"] == "Running" and steps(), LONG)
            reached = steps()
            wait_for("training to go on", lambda: steps() and steps() != reached, LONG)

            refuse(browser, "Cancel")
            assert (team.job("digits") or {})["spec"].get("cancel") is not True
            press(browser, "Cancel")
            expect(browser.locator(".tools .state")).to_have_text("Failed", timeout=1000 * LONG)
            refuse(browser, "Delete")
            press(browser, "Delete")
            expect(browser.locator("[role=alert]")).to_have_text("The job is gone.", timeout=1000 * LONG)
        wait_for("all to be gone", team.empty, LONG)


def button(page: Page, label: str) -> Locator:
    return page.locator(".actions").get_by_role("button", name=label, exact=True)


def press_what_is_offered(page: Page, chance: random.Random) -> None:
    """Presses buttons that undo each other, and waits only until the page offers the opposite."""
    opposite = {"Suspend": "Resume", "Resume": "Suspend"}
    expect(button(page, "Scale")).to_be_visible()  # The job has been read.
    for _ in range(PRESSED):
        offered = [label for label in (*opposite, "Scale") if button(page, label).is_visible()]
        pressed = chance.choice(offered)
        press(page, pressed, str(chance.choice((1, 2))))
        if pressed in opposite:
            expect(button(page, opposite[pressed])).to_be_visible()


def press(page: Page, label: str, number: str = "") -> None:
    """Presses a button and answers its questions; the command succeeds."""
    button(page, label).click()
    question = page.get_by_role("dialog")
    if label == "Scale":
        question.get_by_role("textbox").fill(number)
    question.get_by_role("button", name=label, exact=True).click()
    if label in {"Cancel", "Delete"}:
        question.get_by_role("button", name=f"Yes, {label.lower()} it").click()
    if label == "Delete":
        return  # With the job its buttons go, and what they have said.
    said = page.locator(".actions output")
    expect(said).not_to_have_text(re.compile("…$"), timeout=60_000)
    assert "problem" not in (said.get_attribute("class") or ""), said.text_content()


def refuse(page: Page, label: str) -> None:
    """Says yes to the first question, and no to the second."""
    button(page, label).click()
    question = page.get_by_role("dialog")
    question.get_by_role("button", name=label, exact=True).click()
    question.get_by_role("button", name="No").click()
    expect(question).not_to_be_visible()
