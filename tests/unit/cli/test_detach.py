"""A process that leaves its terminal, and the one that waits for that."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import patience

PROGRAM = """
import os, signal, sys
from pathlib import Path
from ddpjob_operator.cli.detach import detachable

leave = detachable()
if isinstance(leave, int):
    print("returned")
    sys.exit(leave)
print("on the terminal")
"""
LEAVES = """
before = os.getsid(0)
leave(Path("output.log"))
os.set_blocking(0, False)
print(f"own session: {os.getsid(0) != before}, input: {sys.stdin.read()!r}")
print("an error", file=sys.stderr)
"""


def called(end: str, directory: Path) -> tuple[int, list[str]]:
    """Exit code and output of a program that ends so. The output ends only when nobody holds the terminal."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + end],
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=patience(20.0),
    )
    return done.returncode, done.stdout.splitlines()


@pytest.mark.parametrize(
    ("end", "code"),
    [("sys.exit(2)", 2), ("sys.exit(0)", 0), ("os.kill(os.getpid(), signal.SIGKILL)", 128 + 9)],
)
def test_what_ends_before_it_has_left_gives_its_exit_code(end: str, code: int, tmp_path: Path) -> None:
    returned, output = called(f"sys.stdout.flush()\n{end}", tmp_path)
    assert (returned, output) == (code, ["on the terminal", "returned"])


def test_what_has_left_has_a_session_of_its_own_and_writes_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "output.log").write_text("an earlier run\n")
    assert called(LEAVES + "sys.exit(3)", tmp_path) == (0, ["on the terminal", "returned"])
    said = "an earlier run\nown session: True, input: ''\nan error\n"
    assert sorted((tmp_path / "output.log").read_text().splitlines()) == sorted(said.splitlines())
