"""A running `ddpjob dashboard`, and what a page of it is told."""

import json
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from tests.support.waiting import patience

DDPJOB = Path(sys.executable).parent / "ddpjob"


class Reader:
    """A page of the dashboard: what it was told last, and when."""

    def __init__(self, board: "Dashboard", **query: str) -> None:
        self.state: dict[str, Any] = {}
        self._answer = board.open(f"/api/watch?{urlencode(query)}")
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        with suppress(OSError, ValueError, AttributeError):  # It ends with the dashboard.
            for line in self._answer:
                if line.startswith(b"data: "):
                    event = json.loads(line.removeprefix(b"data: "))
                    gone = {*event["gone"]}
                    self.state = {name: value for name, value in self.state.items() if name not in gone} | event[
                        "put"
                    ]

    def rows(self) -> dict[str, dict[str, Any]]:
        """The rows of jobs, by name."""
        return {row["name"]: row for row in [*self.state.values()] if isinstance(row, dict) and "origin" in row}

    def problem(self) -> str:
        return "; ".join(self.state.get("problems", []))


class Dashboard:
    """A running `ddpjob dashboard`."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._place, self._token = urlsplit(address), address.partition("token=")[2]

    def open(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self._token}"}
        request = urllib.request.Request(f"http://{self._place.netloc}{path}", data, headers)
        return urllib.request.urlopen(request, timeout=patience(60))

    def ask(self, path: str, body: Any = None) -> Any:
        """The JSON of an answer, also of one that says what the problem is."""
        try:
            with self.open(path, body) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            return json.load(error)

    def act(self, row: dict[str, Any], name: str, given: str = "") -> tuple[bool, str]:
        said = self.ask("/api/act", {"id": row["id"], "act": name, "given": given})
        return said["succeeded"], said["said"]


@contextmanager
def dashboard(kubeconfig: Path, *flags: str) -> Iterator[Dashboard]:
    words = (DDPJOB, "dashboard", "--no-open", "--cluster", "--kubeconfig", kubeconfig, *flags)
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("Dashboard: "), process.stderr and process.stderr.read()
            yield Dashboard(line.split()[1])
        finally:
            process.kill()
