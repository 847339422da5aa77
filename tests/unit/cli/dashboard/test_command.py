"""`ddpjob dashboard` as it is called: with a history, with wrong flags, and with a browser."""

import socket
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from ddpjob_operator.api import BadInputError
from ddpjob_operator.cli import dashboard as command
from ddpjob_operator.cli.arguments import parse
from ddpjob_operator.cli.commands import call
from ddpjob_operator.cli.dashboard import web_server
from ddpjob_operator.cli.dashboard.board import Board
from ddpjob_operator.cli.dashboard.guard import Guard
from ddpjob_operator.cli.top import feeds_of

from tests.unit.cli.test_from_history import INCIDENT, event, keep

ID = "history:a-uid"


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A job whose rank 2 failed once."""
    keep(
        tmp_path,
        0,
        b"loading\n",
        event("started", 1, 0, seen=True),
        event("progress", 1, 12, loss=0.5, total_steps=40),
        event("incident", 1, 12, incident=INCIDENT),
        event("started", 2, 10, seen=True),
        event("progress", 2, 40, loss=0.25, total_steps=40),
        event("finished", 2, 40),
    )
    return tmp_path


@pytest.fixture
def board(kept: Path) -> Iterator[Board]:
    """What is kept of it, as the command shows it."""
    arguments = parse(["dashboard", "--history", str(kept)])
    with feeds_of(arguments) as feeds:
        for feed in feeds:
            feed.fetch()
        yield Board(feeds, arguments)


def test_a_job_of_which_only_its_history_is_left_is_shown_in_full(board: Board) -> None:
    rows = board.jobs()
    assert (rows["problems"], rows[ID]["name"], rows[ID]["namespace"]) == ([], "digits", "team")
    parts = board.details([ID])
    assert parts[f"{ID} curves"]["loss"] == [[40], [0.25]]
    assert [len(part) for part in parts[f"{ID} clock"]] == [1, 1]
    (incident,) = parts[f"{ID} axis"]["incidents"]
    assert (incident["message"], incident["step"], incident["resumed"]) == (r"killed\x1b[2J", 12, 10)
    assert parts[f"{ID} lines"]["Progress"] == "step 40 of 40"
    assert parts[f"{ID} acts"] == []


def test_its_log_is_read_from_there_and_nothing_can_be_done_to_it(board: Board, kept: Path) -> None:
    words = ["logs", "team/digits", "--tail", "2000", "--uid=a-uid", f"--history={kept}"]
    assert board.log_command(ID, "") == words
    assert board.log_command(ID, "2") == [*words, "--attempt=2"]
    assert (parse(words).uid, parse(words).history) == ("a-uid", str(kept))
    with pytest.raises(BadInputError, match="not possible for digits: only its history is left"):
        board.act(ID, "delete", "")
    with pytest.raises(BadInputError, match="only its history"):
        board.text(ID)
    assert board.events(ID) == []


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--history", "/nowhere"], "/nowhere"),
        (["--history", ".", "--local"], "--local does not go with --history"),
    ],
)
def test_flags_that_do_not_fit_are_refused(words: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(parse(["dashboard", "--no-open", *words])) == 2
    assert why in capsys.readouterr().err


def test_a_port_that_is_taken_or_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with command._listening(0) as taken:
        port = str(taken.getsockname()[1])
        assert call(parse(["dashboard", "--no-open", "--local", "--port", port])) == 2
    assert f"--port {port}: Address already in use; without it, any port is used" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        parse(["dashboard", "--port", "65536"])
    assert "65536 is not a port, such as 8000" in capsys.readouterr().err


def test_a_browser_is_led_to_the_address_by_a_file_that_only_this_user_can_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    opened = list[str]()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("webbrowser.open", lambda address: not opened.append(address))
    entry = command._opened("http://127.0.0.1:8000/#token=the-token")
    assert entry is not None
    assert opened == [entry.as_uri()]
    assert entry.stat().st_mode & 0o777 == 0o600
    assert "0;url=http://127.0.0.1:8000/#token=the-token" in entry.read_text()
    monkeypatch.setattr("webbrowser.open", lambda _: False)
    entry.unlink()
    assert command._opened("http://127.0.0.1:8000/") is None
    assert [*tmp_path.iterdir()] == []


@pytest.fixture
def browser(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The addresses that a browser opens, on a machine with a screen and without any job."""
    opened = list[str]()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr("webbrowser.open", lambda address: not opened.append(address))
    return opened


@pytest.mark.parametrize("opens", [True, False])
def test_the_page_is_served_at_the_address_that_is_printed_until_ctrl_c(
    browser: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, opens: bool
) -> None:
    served = list[str]()

    def serve(_: Board, guard: Guard, listening: socket.socket) -> None:
        assert listening.getsockname() == ("127.0.0.1", guard.port)
        served.append(guard.address)
        assert [Path(urlsplit(entry).path).exists() for entry in browser] == [True] * opens
        raise KeyboardInterrupt

    monkeypatch.setattr(web_server, "serve", serve)
    arguments = parse(["dashboard", "--local", *([] if opens else ["--no-open"])])
    with pytest.raises(KeyboardInterrupt):
        command.dashboard(arguments)
    (address,) = served
    assert capsys.readouterr().out == f"Dashboard: {address}\nCtrl-C ends it.\n"
    assert len(address.partition("#token=")[2]) >= 40
    assert [Path(urlsplit(entry).path).exists() for entry in browser] == [False] * opens
    monkeypatch.setattr(web_server, "serve", lambda *_: None)
    assert command.dashboard(arguments) == 0


@pytest.mark.parametrize(
    ("platform", "variables", "screen"),
    [
        ("linux", {}, False),
        ("linux", {"DISPLAY": ""}, False),
        ("linux", {"DISPLAY": ":0"}, True),
        ("linux", {"WAYLAND_DISPLAY": "wayland-0"}, True),
        ("darwin", {}, True),
        ("win32", {}, True),
    ],
)
def test_a_browser_is_only_opened_where_there_is_a_screen(
    platform: str, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch, *, screen: bool
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.platform", platform)
    assert command._has_screen() is screen


def test_a_browser_that_fails_leaves_no_file(
    browser: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fails(_: str) -> bool:
        raise webbrowser.Error

    monkeypatch.setattr("webbrowser.open", fails)
    assert command._opened("http://127.0.0.1:8000/") is None
    assert (browser, [*tmp_path.glob("*.html")]) == ([], [])
