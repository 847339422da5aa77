"""Who follows jobs on `ddpjob top` and on the dashboard's page: what each shows of a trouble, and when."""

import argparse
import asyncio
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ddpjob_operator.cli.top.app import JobScreen, JobsScreen, TopApp
from ddpjob_operator.cli.top.feeds import JobsThere
from ddpjob_operator.client import Jobs, connect
from textual.pilot import Pilot

from tests.support.live_page import Reader, dashboard
from tests.support.waiting import patience

SIZE = (200, 50)
LOOK_SECONDS = 0.2
CAUSE_SECONDS = 30.0


@dataclass(frozen=True)
class Trouble:
    """What an onlooker looks for.

    sign   the first sign of it in the job's line, as a pattern of the words that are not there before
    cause  what the job in full says of it
    """

    sign: str
    cause: str


@dataclass
class Noted:
    """What was seen of a trouble.

    shown  the words that were seen
    at     when, in seconds since the epoch
    keys   the keys that led to the cause
    """

    shown: str
    at: float
    keys: list[str] = field(default_factory=list)


@dataclass
class Onlookers:
    """What two people see of jobs, by name: `top` on a screen, `page` in a browser."""

    troubles: Mapping[str, Trouble]
    top: dict[str, Noted] = field(default_factory=dict)
    page: dict[str, Noted] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def following(self, kubeconfig: Path) -> Iterator[None]:
        """They look until the block ends."""
        with dashboard(kubeconfig, "--all-namespaces") as board:
            reader = Reader(board)
            looking = [
                threading.Thread(target=self._look_at_page, args=(reader,)),
                threading.Thread(target=self._look_at_top, args=(kubeconfig,)),
            ]
            for thread in looking:
                thread.start()
            try:
                yield
            finally:
                self._over.set()
                for thread in looking:
                    thread.join()

    def _look_at_page(self, reader: Reader) -> None:
        while not self._over.wait(LOOK_SECONDS):
            for name, row in reader.rows().items():
                self._note(self.page, name, _words(row))

    def _note(self, seen: dict[str, Noted], name: str, words: str) -> None:
        trouble = self.troubles.get(name)
        if trouble and name not in seen and (found := re.search(trouble.sign, words)):
            seen[name] = Noted(found[0], time.time())

    def _look_at_top(self, kubeconfig: Path) -> None:
        try:
            asyncio.run(self._on_screen(kubeconfig))
        except Exception as error:  # noqa: BLE001  It is told when the night is over.
            self.failures.append(f"{type(error).__name__}: {error}")

    async def _on_screen(self, kubeconfig: Path) -> None:
        feed = JobsThere(Jobs(connect(kubeconfig)), everywhere=True)
        app = TopApp([feed], argparse.Namespace(kubeconfig=kubeconfig, context=None))
        async with app.run_test(size=SIZE) as pilot:
            while not self._over.is_set():
                await pilot.pause(LOOK_SECONDS)
                rows = [*app.screen._rows.values()] if isinstance(app.screen, JobsScreen) else []
                for row in rows:
                    if row.name not in self.top:
                        self._note(self.top, row.name, _words(asdict(row)))
                        if row.name in self.top:
                            await self._find_cause(app, pilot, row.name)
                            break  # What has been drawn is old by now.

    async def _find_cause(self, app: TopApp, pilot: Pilot[None], name: str) -> None:
        """Presses keys until the screen says what has happened to the job, and goes back."""
        noted = self.top[name]
        for key in ("w",) * 4:
            await self._press(pilot, key, noted)
            if isinstance(app.screen, JobsScreen) and (chosen := app.screen.chosen()) and chosen.name == name:
                break
        await self._press(pilot, "enter", noted)
        until = time.monotonic() + patience(CAUSE_SECONDS)
        while not re.search(self.troubles[name].cause, "\n".join(_lines(app))):
            if time.monotonic() > until:
                self.failures.append(f"{name}: {_lines(app)}")
                break
            await pilot.pause(LOOK_SECONDS)
        if isinstance(app.screen, JobScreen):
            await pilot.press("escape")

    @staticmethod
    async def _press(pilot: Pilot[None], key: str, noted: Noted) -> None:
        await pilot.press(key)
        await pilot.pause()
        noted.keys.append(key)


def _words(row: Mapping[str, Any]) -> str:
    """What a row shows, as a line."""
    return " ".join(str(row[part]) for part in ("state", "ready", "loss", "why")) + f" restarts {row['restarts']}"


def _lines(app: TopApp) -> list[str]:
    """The lines of a screen."""
    return ["".join(one.text for one in strip).rstrip() for strip in app.screen._compositor.render_strips()]
