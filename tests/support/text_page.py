"""A page of plain text, as Prometheus reads them."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def a_text_page() -> Iterator[tuple[str, Callable[[str], None]]]:
    """Yields the address of an empty page, and a function that changes its text."""
    told = [""]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = told[-1].encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}", told.append
        server.shutdown()
