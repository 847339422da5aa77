"""A package index as pip uses it (PEP 503), whose packages are made here so that no image contains them already."""

import base64
import hashlib
import io
import threading
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Package:
    """A package with one module, which has the package's name and contains the package's version as VERSION."""

    name: str
    version: str
    requires: Sequence[str] = ()

    @property
    def file(self) -> str:
        return f"{self.name}-{self.version}-py3-none-any.whl"

    @property
    def wheel(self) -> bytes:
        """The package as a wheel, whose bytes are always the same."""
        about = f"{self.name}-{self.version}.dist-info"
        needs = "".join(f"Requires-Dist: {one}\n" for one in self.requires)
        files = {
            f"{self.name}.py": f"VERSION = {self.version!r}\n",
            f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {self.name}\nVersion: {self.version}\n{needs}",
            f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        files[f"{about}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{about}/RECORD"])
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as wheel:
            for name, text in files.items():
                wheel.writestr(zipfile.ZipInfo(name), text)
        return buffer.getvalue()

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.wheel).hexdigest()


@dataclass
class Index:
    """A running index."""

    packages: Sequence[Package]
    url: str = ""
    asked: list[str] = field(default_factory=list)
    """The paths of all requests."""
    users: set[str] = field(default_factory=set)
    """The names and passwords that came with requests, as `name:password`."""

    def page(self, path: str) -> bytes | None:
        """The content at a path; None if the path does not exist."""
        *_, folder, name = path.split("/") if not path.endswith("/") else path[:-1].split("/")
        if folder == "files":
            return next((one.wheel for one in self.packages if one.file == name), None)
        found = [one for one in self.packages if one.name == name]
        links = "".join(f'<a href="/files/{one.file}">{one.file}</a>\n' for one in found)
        return f"<!DOCTYPE html><html><body>\n{links}</body></html>".encode() if found else None


@contextmanager
def start_index(*packages: Package, host: str = "127.0.0.1") -> Iterator[Index]:
    """Serves the packages at an address of this machine until the block ends."""
    index = Index(packages)
    server = ThreadingHTTPServer((host, 0), _handler(index))
    index.url = f"http://{host}:{server.server_port}/simple/"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield index
    finally:
        server.shutdown()
        server.server_close()


def _handler(index: Index) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            index.asked.append(self.path)
            if basic := self.headers.get("Authorization"):
                index.users.add(base64.b64decode(basic.removeprefix("Basic ")).decode())
            page = index.page(self.path)
            self.send_response(404 if page is None else 200)
            self.send_header("Content-Type", "application/zip" if self.path.endswith(".whl") else "text/html")
            self.send_header("Content-Length", str(len(page or b"")))
            self.end_headers()
            self.wfile.write(page or b"")

        def log_message(self, *_: object) -> None:
            """Logs nothing, because `asked` contains all requests."""

    return Handler
