import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from .prometheus import of_debian, start_prometheus

RULES = {"groups": [{"name": "rules", "rules": [{"alert": "Hot", "expr": "sum by (room) (temperature) > 20"}]}]}


class _Page(http.server.BaseHTTPRequestHandler):
    text = ""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        self.wfile.write(self.text.encode())

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@contextmanager
def a_page() -> Iterator[tuple[str, type[_Page]]]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}", _Page
        server.shutdown()


def test_an_alert_fires_in_alertmanager_and_is_resolved() -> None:
    with start_prometheus(of_debian(), RULES) as monitoring, a_page() as (address, page):
        page.text = 'temperature{room="attic"} 30\n'
        monitoring.scrape("operator", {address: {"room": "cellar", "pod": "a"}})
        (alert,) = monitoring.wait("the alert", lambda: monitoring.firing("Hot"))
        assert alert["room"] == "attic", "the page's own labels win"
        page.text = 'temperature{room="attic"} 20\n'
        monitoring.wait("its end", lambda: not monitoring.alerts())
        ((labels, value),) = monitoring.query("temperature")
        assert (labels["pod"], value) == ("a", 20)
