"""What the program in a reader's pod answers; tests/unit/cli/test_claim_place.py reads histories through it."""

import base64
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from http.server import HTTPServer
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from urllib.request import urlopen

import pytest
from ddpjob_operator.client import serve_files

Ask = Callable[[str], Any]


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ask]:
    """Asks the program, which runs in a thread and shows the directory `root`."""
    servers = SimpleQueue[HTTPServer]()

    class Server(HTTPServer):
        def serve_forever(self, poll_interval: float = 0.01) -> None:
            servers.put(self)
            super().serve_forever(poll_interval)

    (tmp_path / "root" / "folder").mkdir(parents=True)
    (tmp_path / "root" / "folder" / "file").write_bytes(b"0123456789")
    (tmp_path / "root" / "link").symlink_to("folder")
    os.mkfifo(tmp_path / "root" / "pipe")
    monkeypatch.setattr(serve_files, "HTTPServer", Server)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    serving = threading.Thread(target=serve_files.main, args=(tmp_path / "root", 0))
    serving.start()
    server = servers.get(timeout=60)

    def asked(what: str) -> Any:
        with urlopen(f"http://127.0.0.1:{server.server_port}{what}", timeout=60) as answer:
            body = answer.read()
        assert int(answer.headers["Content-Length"]) == len(body)
        return json.loads(body)

    yield asked
    server.shutdown()
    serving.join()


def content(text: str) -> dict[str, str]:
    return {"content": base64.b64encode(text.encode()).decode()}


MISSING = {"missing": True}


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("/read?path=folder/file&limit=4", content("0123")),
        ("/read?path=folder/file&limit=99", content("0123456789")),
        ("/read?path=folder/file&limit=-1", content("")),
        ("/read?path=folder/file", content("")),
        ("/read?path=folder/file&limit=x", {"error": "ValueError"}),
        ("/read?path=folder/none&limit=4", MISSING),
        ("/read?path=folder&limit=4", MISSING),
        ("/read?path=pipe&limit=4", MISSING),
        ("/read?path=link/file&limit=4", MISSING),
        ("/read?limit=4", MISSING),
        ("/read?path=folder/..&limit=4", MISSING),
        ("/names", {"folders": ["folder"], "files": []}),
        ("/names?path=folder", {"folders": [], "files": ["file"]}),
        ("/names?path=link", MISSING),
        ("/names?path=../root", MISSING),
        ("/names?path=pipe", MISSING),
    ],
)
def test_it_shows_what_is_in_its_directory_and_nothing_else(ask: Ask, question: str, answer: Any) -> None:
    assert ask(question) == answer


def test_of_much_it_shows_a_part(ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "root" / "large").write_bytes(bytes(2 << 20))
    assert len(base64.b64decode(ask(f"/read?path=large&limit={2 << 20}")["content"])) == 1 << 20
    monkeypatch.setattr(serve_files, "MOST_NAMES", 2)
    assert sum(map(len, ask("/names").values())) <= 2


def test_what_the_machine_refuses_is_an_error(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(serve_files, "_answer", refused)
    assert ask("/names") == {"error": "Permission denied"}
