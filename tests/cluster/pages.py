"""Stands in for the supervisor of a rank 0 that only says that it runs: a status page on this machine."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.jobs import FOR_LONG, a_job, steered

ADDRESS = "127.0.0.1"
NOON = "2026-01-01T12:00:00.000Z"


class Page:
    """What the supervisors of a gang would say."""

    def __init__(self) -> None:
        self.server: ThreadingHTTPServer | None = None
        self.port = 0
        self.questions = 0
        self._changed = threading.Condition()
        self._document: dict[str, Any] = {"version": 2, "mark": "0", "attempt": 1, "phase": "Running", "since": NOON}
        self.open()

    def says(self, **what: Any) -> None:
        """News: these fields, and another mark."""
        self.shows(mark=str(int(self._document["mark"]) + 1), **what)

    def shows(self, **what: Any) -> None:
        """What is no news: these fields, with the same mark."""
        with self._changed:
            self._document = self._document | what
            self._changed.notify_all()

    def open(self) -> None:
        """It can be reached."""
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                document = page._answer(self.headers.get("If-None-Match"), self.headers.get("Prefer", "wait=0"))
                content = json.dumps(document).encode()
                self.send_response(200)
                self.send_header("ETag", f'"{document["mark"]}"')
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                """Says nothing."""

        self.server = ThreadingHTTPServer((ADDRESS, self.port), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """It cannot be reached any more."""
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()
            self.server = None

    def _answer(self, known: str | None, wait: str) -> dict[str, Any]:
        with self._changed:
            self.questions += 1
            news = lambda: known != f'"{self._document["mark"]}"'  # noqa: E731
            self._changed.wait_for(news, timeout=float(wait.removeprefix("wait=")))
            return self._document


@contextmanager
def a_page() -> Iterator[Page]:
    """A page that is gone at exit."""
    page = Page()
    try:
        yield page
    finally:
        page.close()


def supervised(page: Page, name: str = "digits", **spec: Any) -> dict[str, Any]:
    """A job whose rank 0 is reached at this page."""
    return a_job(name, annotations=FOR_LONG | steered(address=ADDRESS), network={"statusPort": page.port}, **spec)
