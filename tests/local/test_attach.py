"""`ddpjob run --attach`: a user at a terminal debugs one rank."""

import fcntl
import os
import signal
import subprocess
import termios
from collections.abc import Iterator

import psutil
import pytest

from tests.local.here import Here
from tests.support.terminals import Seen
from tests.support.waiting import patience, wait_for

DEBUGGED = """\
import os
rank = int(os.environ["RANK"])
total = 40
breakpoint()
name = input("name? ") if rank == 1 else "nobody"
print("hello", name, total, rank)
"""
TIMEOUT = "import torch.distributed.distributed_c10d as dist; dist._get_default_timeout('gloo').days"


class Shell:
    """Calls `ddpjob` on a terminal."""

    def __init__(self, here: Here) -> None:
        self._here = here
        master, self.terminal = os.openpty()
        termios.tcsetwinsize(self.terminal, (24, 80))
        self.before = termios.tcgetattr(self.terminal)
        self.seen = Seen(master, here.evidence)
        self.process: subprocess.Popen[str] = None  # type: ignore[assignment]

    def call(self, *arguments: str) -> None:
        """Calls `ddpjob` with these arguments."""
        self.process = subprocess.Popen(
            [self._here.bin / "ddpjob", *arguments],
            cwd=self._here.directory,
            env={**os.environ, **self._here.state, "TERM": "xterm"},
            stdin=self.terminal,
            stdout=self.terminal,
            stderr=self.terminal,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509  (it only calls the system)
            text=True,
        )
        self._here.started.append(self.process)

    def end(self) -> int:
        """Waits for the end, and returns the exit code."""
        wait_for("the end", lambda: self.seen.read(0.1) and self.process.poll() is not None)
        return self.process.returncode


@pytest.fixture
def shell(here: Here) -> Iterator[Shell]:
    shell = Shell(here)
    yield shell
    for descriptor in (shell.seen.descriptor, shell.terminal):
        os.close(descriptor)


def test_a_rank_is_debugged_and_all_train_on_to_the_end(here: Here, shell: Shell) -> None:
    (here.directory / "train.py").write_text(DEBUGGED)
    shell.call("run", "train.py", "--procs-per-node", "2", "--attach", "1")
    shell.seen.until("rank 1 has this terminal")
    shell.seen.until("train.py(5)<module>()\r\n")
    shell.seen.until("(Pdb) ")
    shell.seen.type("\x1a")
    wait_for("Ctrl-Z", lambda: psutil.Process(shell.process.pid).status() == psutil.STATUS_STOPPED)
    assert termios.tcgetattr(shell.terminal) == shell.before
    shell.process.send_signal(signal.SIGCONT)
    wait_for("the terminal", lambda: termios.tcgetattr(shell.terminal) != shell.before)
    shell.seen.type(f"{TIMEOUT}\r")
    shell.seen.until("\r\n7\r\n")
    shell.seen.type("total = 41\r")
    shell.seen.until("(Pdb) ")
    shell.seen.type("c\r")
    shell.seen.until("name? ")
    shell.seen.type("Ada\r")
    shell.seen.until("hello Ada 41 1\r\n")
    shell.seen.until("train: Succeeded. 1 node finished\r\n")
    assert shell.end() == 0
    assert termios.tcgetattr(shell.terminal) == shell.before
    assert "hello nobody" not in shell.seen.text
    assert {"hello nobody 40 0", "hello Ada 41 1"} < {*here.log("train", 0).splitlines()}


def test_ctrl_c_stops_all_ranks_although_a_debugger_survives_it(here: Here, shell: Shell) -> None:
    (here.directory / "train.py").write_text(f"{DEBUGGED}\nimport time\ntime.sleep(1000)\n")
    shell.call("run", "train.py", "--nodes", "2", "--attach", "1", "--start-method", "cold")
    shell.seen.until("(Pdb) ")
    wait_for("the other rank", lambda: "nobody" in here.log("train", 0), story=here.evidence)
    shell.seen.type("\x03")
    shell.seen.until("ddpjob: stopping; interrupt again to stop immediately\r\n")
    shell.seen.until("train: Suspended. ", seconds=patience(20))
    shell.seen.until(" --attach 1\r\n")
    assert shell.end() == 130
    assert termios.tcgetattr(shell.terminal) == shell.before
    assert here.processes("train") == []
