"""What `ddpjob run --attach` does with the terminals of its user and of a rank."""

import contextlib
import fcntl
import os
import re
import signal
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ddpjob_operator.api import BadInputError, DDPJob
from ddpjob_operator.cli import attached
from ddpjob_operator.cli.attached import Attached, check_attach
from ddpjob_operator.cli.run import _check_not_left_behind, _undone_if_it_fails
from ddpjob_operator.engine import Event
from ddpjob_operator.local import Lock, RunDirectory

from tests.support.terminals import Seen
from tests.support.waiting import wait_for

STILL_SECONDS = 0.3
"""If a terminal accepts nothing for so long, it is full."""
SUPERVISED = ["ddpjob-supervise", "train.py"]


@dataclass
class Scene:
    """A user at a terminal that a rank has."""

    user: Seen
    """What the user sees, and where the user types."""
    rank: Seen
    """What the rank reads, and where it prints."""
    terminal: Attached
    log: Path
    lost: list[bool] = field(default_factory=list)
    stopped: bool = False
    greeting: list[str] = field(default_factory=list)
    stack: ExitStack = field(default_factory=ExitStack)
    process: subprocess.Popen[bytes] | None = None
    """The rank's process, after it has the terminal."""

    def take(self) -> None:
        """Starts the rank, which takes the terminal."""
        descriptor = self.rank.descriptor
        self.process = subprocess.Popen(
            ["sleep", "1000"],
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(descriptor, termios.TIOCSCTTY, 0),  # noqa: PLW1509  (a call of the system)
        )
        wait_for("the terminal", lambda: self.terminal._taken)

    def end(self) -> None:
        """Ends the run."""
        self.stack.close()


@pytest.fixture
def empty_scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """A scene before the rank has taken its terminal."""
    master, slave = os.openpty()
    termios.tcsetwinsize(slave, (24, 80))
    settings = termios.tcgetattr(slave)
    settings[6][termios.VERASE] = b"\x08"
    termios.tcsetattr(slave, termios.TCSANOW, settings)
    monkeypatch.setattr(attached, "STDIN", slave)
    monkeypatch.setattr(attached, "STDOUT", slave)
    monkeypatch.setattr(attached, "END_SECONDS", 0.0)
    monkeypatch.setattr(attached, "REFRESH_SECONDS", 0.01)
    terminal = Attached(0)
    log = tmp_path / "node-0.log"
    played = Scene(Seen(master), Seen(terminal.open_terminal(log)), terminal, log)
    with played.stack:
        lost, stopped = lambda: played.lost.append(True), lambda: played.stopped
        played.stack.enter_context(terminal.following(lost, stopped, played.greeting))
        yield played
    if played.process:
        played.process.kill()
        played.process.wait()


@pytest.fixture
def scene(empty_scene: Scene) -> Scene:
    empty_scene.take()
    return empty_scene


def test_what_is_typed_before_the_rank_has_its_terminal_is_nowhere(empty_scene: Scene) -> None:
    empty_scene.greeting.append("rank 0 has this terminal")
    empty_scene.user.type("hunter2\r")
    time.sleep(0.1)
    empty_scene.take()
    empty_scene.user.until("ddpjob: rank 0 has this terminal\r\n")
    empty_scene.user.type("c\r")
    empty_scene.rank.until("c\n")
    empty_scene.end()
    assert "hunter2" not in empty_scene.user.text + empty_scene.rank.text + empty_scene.log.read_text()


def test_what_is_typed_is_the_ranks_and_what_it_prints_is_the_users(scene: Scene) -> None:
    scene.user.type("p x\r")
    scene.rank.until("p x\n")
    scene.user.until("p x\r\n")  # The rank's terminal echoes it.
    scene.rank.type("41\n(Pdb) ")
    scene.user.until("41\r\n(Pdb) ")
    scene.end()
    assert scene.log.read_text() == "p x\n41\n(Pdb) \n"


def test_keys_that_send_signals_stay_with_the_command_and_all_others_reach_the_rank(scene: Scene) -> None:
    settings = termios.tcgetattr(scene.rank.descriptor)
    settings[3] &= ~(termios.ICANON | termios.ECHO | termios.ISIG | termios.IEXTEN)
    settings[0] &= ~(termios.IXON | termios.ICRNL)
    termios.tcsetattr(scene.rank.descriptor, termios.TCSANOW, settings)
    others = [chr(code) for code in range(1, 128) if code not in {3, 26, 28}]  # Ctrl-C, Ctrl-Z and Ctrl-\.
    scene.user.type("".join(others))
    scene.rank.until("\x7f")
    assert scene.rank.text == "".join(others)
    scene.user.type("a\x03\x1a\x1cb")
    scene.rank.until("b")
    assert not {"\x03", "\x1a", "\x1c"} & {*scene.rank.text}


def test_the_terminal_gets_its_settings_back(scene: Scene) -> None:
    before = scene.terminal._settings
    assert termios.tcgetattr(attached.STDIN) != before
    scene.end()
    assert termios.tcgetattr(attached.STDIN) == before
    assert signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL


@pytest.mark.parametrize("changed", [signal.SIGWINCH, signal.SIGCONT], ids=["at once", "after a pause"])
def test_the_rank_has_the_users_settings_and_size_from_the_beginning_and_follows_its_size(
    scene: Scene, changed: signal.Signals
) -> None:
    assert termios.tcgetattr(scene.rank.descriptor) == scene.terminal._settings
    assert termios.tcgetwinsize(scene.rank.descriptor) == (24, 80)
    termios.tcsetwinsize(attached.STDIN, (30, 100))
    signal.raise_signal(changed)
    assert termios.tcgetwinsize(scene.rank.descriptor) == (30, 100)


@pytest.mark.parametrize(
    ("printed", "shown"),
    [("(Pdb) ", "(Pdb) \r\n"), ("done\n", "done\r\n")],
    ids=["behind a prompt", "below a line"],
)
def test_an_event_has_a_line_of_its_own(printed: str, shown: str, scene: Scene) -> None:
    scene.rank.type(printed)
    scene.user.until(printed.strip("\n"))
    scene.terminal.tell(Event(warning=False, reason="Notice", message="stop\x1b[2Jping"))
    scene.user.until("ping\r\n")
    assert scene.user.text == f"{shown}ddpjob: stop\\x1b[2Jping\r\n"


def test_a_log_has_whole_lines_without_the_modes_of_a_terminal(scene: Scene) -> None:
    scene.rank.type("\x1b[?2004h(Pdb) ")
    scene.user.until("(Pdb) ")
    assert scene.log.read_text() == ""
    scene.rank.type("c\x1b[?2004l\n\x1b[31mred\x1b[0m\r5%\n")
    scene.user.until("5%")
    wait_for("the log", lambda: scene.log.read_text().endswith("5%\n"))
    assert scene.log.read_bytes() == b"(Pdb) c\n\x1b[31mred\x1b[0m\r5%\n"


def test_a_rank_that_is_to_stop_gets_the_end_of_its_input_again_and_again(scene: Scene) -> None:
    scene.user.type("half a line")
    scene.user.until("half a line")  # The echo: the rank has it.
    scene.stopped = True
    for expected in (b"half a line", b"", b""):
        assert os.read(scene.rank.descriptor, 100) == expected


def test_a_paste_that_the_rank_does_not_read_yet_neither_blocks_its_output_nor_is_lost(scene: Scene) -> None:
    settings = termios.tcgetattr(scene.rank.descriptor)
    settings[3] &= ~(termios.ICANON | termios.ECHO)
    termios.tcsetattr(scene.rank.descriptor, termios.TCSANOW, settings)
    pasted = "".join(f"{number:07} " for number in range(1 << 16))
    os.set_blocking(scene.user.descriptor, False)
    left, moved = pasted, time.monotonic()
    while time.monotonic() < moved + STILL_SECONDS:
        with contextlib.suppress(BlockingIOError):
            left = left[os.write(scene.user.descriptor, left.encode()) :]
            moved = time.monotonic()
        time.sleep(0.01)
    assert left, "what the rank does not accept waits where it was typed"
    scene.rank.type("still here\n")
    scene.user.until("still here")
    os.set_blocking(scene.user.descriptor, True)
    taken = pasted[: len(pasted) - len(left)]
    wait_for("all of it", lambda: scene.rank.read(0.1) and len(scene.rank.text) >= len(taken))
    assert scene.rank.text == taken


def test_the_run_is_told_when_the_terminal_is_closed(scene: Scene) -> None:
    os.close(scene.user.descriptor)
    scene.rank.type("hello\n")
    wait_for("the loss", lambda: scene.lost)


@pytest.mark.parametrize(("stream", "name"), [("STDIN", "input"), ("STDOUT", "output")])
def test_without_a_terminal_there_is_none_to_give(stream: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, slave = os.openpty()
    for each in ("STDIN", "STDOUT"):
        monkeypatch.setattr(attached, each, slave)
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr(attached, stream, nothing.fileno())
        with pytest.raises(BadInputError, match=f"--attach 3 .* the {name} of ddpjob is not a terminal"):
            Attached(3)


def test_ranks_that_were_left_behind_cannot_get_a_terminal(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "digits")
    run.create()
    lock = run.lock
    lock.acquire()
    _check_not_left_behind(run)
    (run.pods / "digits-0-x").mkdir()
    pods = Lock(run.pods / "digits-0-x" / "lock")
    pods.acquire()
    refused = r"^digits is still running, without a terminal, .* ddpjob stop digits$"
    with pytest.raises(BadInputError, match=refused), _undone_if_it_fails(run, lock):
        _check_not_left_behind(run)
    pods.release()
    assert run.lock.holder() is None


def a_job(nodes: int, procs: int, command: list[str]) -> DDPJob:
    trainer: dict[str, Any] = {"name": "trainer", "image": "any", "command": command}
    spec = {"nodes": nodes, "procsPerNode": procs, "template": {"spec": {"containers": [trainer]}}}
    return DDPJob.from_dict(
        {"apiVersion": "ddpjob.dev/v1alpha2", "kind": "DDPJob", "metadata": {"name": "digits"}, "spec": spec}
    )


@pytest.mark.parametrize(
    ("size", "rank", "command", "said"),
    [
        ((1, 1), 1, SUPERVISED, "--attach 1: digits has 1 rank: rank 0"),
        ((2, 2), 4, SUPERVISED, "--attach 4: digits has 4 ranks: ranks 0 to 3"),
        ((2, 2), -1, SUPERVISED, "--attach -1: digits has 4 ranks: ranks 0 to 3"),
        ((1, 1), 0, ["python", "train.py"], "--attach 0 is for scripts and modules: "),
    ],
)
def test_a_rank_that_cannot_have_a_terminal_is_refused(
    size: tuple[int, int], rank: int, command: list[str], said: str
) -> None:
    with pytest.raises(BadInputError, match=f"^{re.escape(said)}"):
        check_attach(rank, a_job(*size, command))


@pytest.mark.parametrize("rank", [0, 3])
@pytest.mark.parametrize("command", [SUPERVISED, ["ddpjob-train"]], ids=lambda words: words[0])
def test_any_rank_of_a_script_and_of_our_trainer_can_have_one(rank: int, command: list[str]) -> None:
    check_attach(rank, a_job(2, 2, command))


def test_ctrl_z_gives_the_terminal_back_before_it_stops_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []
    monkeypatch.setattr(os, "kill", lambda *what: done.append(what))
    Attached._pause(SimpleNamespace(_give_back=lambda: done.append("given back")), signal.SIGTSTP)  # type: ignore[arg-type]
    assert done == ["given back", (os.getpid(), signal.SIGSTOP)]
