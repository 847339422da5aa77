"""Shows the files of a directory to whoever may forward this pod's ports. It changes nothing.

The container gets this file as text (`python -c`), so it must run on every Python from 3.8 on. Its arguments are the
directory and a port of the loopback interface: other pods cannot reach it. Links are not followed, because they could
lead out of the directory. The answers are JSON objects.
"""

from __future__ import annotations

import base64
import errno
import json
import os
import signal
import stat
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

MOST_NAMES = 50_000
MOST_BYTES = 1 << 20
MISSING = (None, errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.EISDIR)
"""Errors of open(2) for a link, a socket and a directory, too."""


def main(root: Path, port: int) -> None:
    """Answers requests until the pod ends."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # Process 1 ignores SIGTERM by default.

    class Handler(BaseHTTPRequestHandler):
        timeout = 30

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            query = dict(parse_qsl(url.query))
            try:
                known = _answer(root, url.path, query.get("path", ""), min(int(query.get("limit", "0")), MOST_BYTES))
            except ValueError as error:
                known = {"error": type(error).__name__}
            except OSError as error:
                known = {"missing": True} if error.errno in MISSING else {"error": error.strerror}
            body = json.dumps(known).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Logs nothing."""

    with HTTPServer(("127.0.0.1", port), Handler) as server:
        server.serve_forever()


def _answer(root: Path, what: str, path: str, limit: int) -> dict[str, Any]:
    above, _, name = path.rpartition("/")
    if what == "/read":
        if name in {"", ".", ".."}:
            raise FileNotFoundError
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(_folder(root, above) / name, flags), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise FileNotFoundError
            return {"content": base64.b64encode(file.read(max(0, limit))).decode()}
    found: dict[str, Any] = {"folders": [], "files": []}
    with os.scandir(_folder(root, path)) as entries:
        for number, entry in enumerate(entries):
            if number == MOST_NAMES:
                break
            if entry.is_dir(follow_symlinks=False):
                found["folders"].append(entry.name)
            elif entry.is_file(follow_symlinks=False):
                found["files"].append(entry.name)
    return found


def _folder(root: Path, path: str) -> Path:
    """The path of a folder on this machine.

    Raises:
        FileNotFoundError: One of the folders on the way is not there, or is a link.
    """
    here = root
    for part in path.split("/") if path else ():
        here /= part
        if part in {"", ".", ".."} or not stat.S_ISDIR(here.lstat().st_mode):
            raise FileNotFoundError
    return here


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
