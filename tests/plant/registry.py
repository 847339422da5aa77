"""A registry without images. Nodes that request an image from it get an answer that the test has chosen."""

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from .machines import Machines


@dataclass(frozen=True)
class Answer:
    """The answer of a registry to anyone who requests an image.

    code  the error code of the distribution specification; empty if something other than a registry answers
    """

    status: HTTPStatus
    code: str = ""

    @property
    def body(self) -> bytes:
        """The body of the answer, from which a client takes the error that it shows."""
        errors = [{"code": self.code, "message": self.code.lower().replace("_", " ")}] if self.code else []
        return json.dumps({"errors": errors}).encode()


@contextmanager
def start_registry(plant: Machines, name: str, answer: Answer) -> Iterator[None]:
    """Runs a registry until the block ends.

    All nodes find it under this name, which need not exist anywhere else.
    """
    server = ThreadingHTTPServer((plant.address, 0), _handler(answer))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    folders = [node.registries / name for node in plant.nodes.values()]
    try:
        for folder in folders:
            folder.mkdir(parents=True)
            (folder / "hosts.toml").write_text(f'server = "http://{plant.address}:{server.server_port}"\n')
        yield
    finally:
        for folder in folders:
            shutil.rmtree(folder)
        server.shutdown()
        server.server_close()


def _handler(answer: Answer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(answer.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(answer.body)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Logs nothing, because the test has chosen the answer."""

    return Handler
