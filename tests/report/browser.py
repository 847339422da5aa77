"""Chromium without a window, told what to do over its DevTools protocol."""

# ruff: noqa: ASYNC220, ASYNC240  Nothing else happens in the loop meanwhile.

import asyncio
import base64
import contextlib
import itertools
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from tests.plant.needs import leave_out
from tests.plant.real import machine
from tests.support.packages import install
from tests.support.waiting import patience

PACKAGES = {"chromium": "chromium"}
DEADLINE_SECONDS = 60.0

ALONE = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]
"""Without a screen, and without a word to anybody but the test."""


def demand() -> None:
    """Installs the browser where it is missing and a Debian has it; leaves the test out elsewhere."""
    if machine.missing(PACKAGES) and not machine.can_install():
        leave_out("left out: no chromium on PATH, and no apt-get to install it with; run it on a Debian, as root")
    install(PACKAGES)


@dataclass
class Tab:
    """A page as its reader has it before his eyes, and all that it did on the way there."""

    socket: aiohttp.ClientWebSocketResponse
    events: list[dict[str, Any]] = field(default_factory=list)
    _numbers: Any = field(default_factory=lambda: itertools.count(1))

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Calls a method of the protocol."""
        number = next(self._numbers)
        await self.socket.send_json({"id": number, "method": method, "params": parameters})
        while (message := await self._message()).get("id") != number:
            pass
        assert "error" not in message, message
        result: dict[str, Any] = message["result"]
        return result

    async def look(self, width: int, scheme: str) -> None:
        """Has the page shown on a screen of this width, light or dark."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.call("Emulation.setEmulatedMedia", features=features)

    async def open(self, file: Path) -> None:
        """Opens a file, to its end."""
        loader = (await self.call("Page.navigate", url=file.absolute().as_uri()))["loaderId"]
        loaded = {"loaderId": loader, "name": "load"}.items()
        while not any(loaded <= event.items() for event in self.happened("Page.lifecycleEvent")):
            await self._message()

    async def value(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        result = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    async def picture(self, file: Path) -> None:
        """Saves how the whole page looks."""
        taken = await self.call("Page.captureScreenshot", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(taken["data"]))

    def happened(self, method: str) -> list[dict[str, Any]]:
        """The events of a kind so far."""
        return [event["params"] for event in self.events if event["method"] == method]

    async def _message(self) -> dict[str, Any]:
        message: dict[str, Any] = await self.socket.receive_json(timeout=patience(DEADLINE_SECONDS))
        if "method" in message:
            self.events.append(message)
        return message


@contextlib.asynccontextmanager
async def tab(profile: Path) -> AsyncIterator[Tab]:
    """A browser with one empty tab, and nothing of any other."""
    demand()
    command = ["chromium", *ALONE, "--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as browser:
        try:
            assert browser.stderr
            said = (line.decode() for line in browser.stderr)
            address = next(line.split()[-1] for line in said if line.startswith("DevTools listening on"))
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://{address.split('/')[2]}/json/list") as answer:
                    pages = [one for one in await answer.json() if one["type"] == "page"]
                async with session.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                    page = Tab(socket)
                    for domain in ("Page", "Network", "Log", "Runtime"):
                        await page.call(f"{domain}.enable")
                    await page.call("Page.setLifecycleEventsEnabled", enabled=True)
                    yield page
        finally:
            browser.kill()
            browser.stderr.close() if browser.stderr else None


def with_tab(profile: Path, visit: Any) -> Any:
    """What a visit with a tab comes to."""

    async def run() -> Any:
        async with tab(profile) as page:
            return await visit(page)

    return asyncio.run(run())
