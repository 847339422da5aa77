"""Which rank takes the terminal of `ddpjob run --attach`, and what the others have instead."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.terminals import Seen

TAKES = """\
import os, sys
from ddpjob_rank.running.attaching import attach
print(attach(), [os.isatty(descriptor) for descriptor in range(3)])
"""
ASKS = f"{TAKES}sys.stdin.readline()\nprint('got', input('name? '), os.ttyname(os.open('/dev/tty', os.O_RDONLY)))\n"
STOPS = f"{TAKES}import pdb\nbreakpoint()\npdb.set_trace()\nprint('end', repr(sys.stdin.read()))\n"
WAITS = """\
import sys, types
torch = types.SimpleNamespace(default_pg_timeout=1, default_pg_nccl_timeout=None)
sys.modules["torch.distributed.distributed_c10d"] = torch
from ddpjob_rank.running.attaching import attach
attach()
both = torch.default_pg_timeout, torch.default_pg_nccl_timeout
print([getattr(timeout, "total_seconds", lambda: timeout)() for timeout in both])
"""


@pytest.fixture
def terminal() -> Iterator[tuple[int, Seen]]:
    """A terminal, and who reads what is printed on it."""
    master, slave = os.openpty()
    yield slave, Seen(master)
    for descriptor in (master, slave):
        os.close(descriptor)


def rank(code: str, stdin: int, number: int, attached: int | None) -> subprocess.Popen[str]:
    """A process that runs a few lines as this rank."""
    chosen = {} if attached is None else {"DDPJOB_ATTACH": str(attached)}
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "RANK": str(number), "PYTHONBREAKPOINT": "os.abort", "PYTHONUNBUFFERED": "", **chosen},
        start_new_session=True,
        text=True,
    )


def test_the_rank_that_is_named_has_the_terminal_as_any_program_that_a_shell_starts(
    terminal: tuple[int, Seen],
) -> None:
    descriptor, seen = terminal
    process = rank(ASKS, descriptor, 1, 1)
    seen.until("True [True, True, True]\r\n")  # It is printed before anything flushes it.
    seen.type("\n")
    seen.until("name? ")
    seen.type("Ada\n")
    seen.until("got Ada /dev/tty")
    assert process.communicate() == ("", None)
    assert process.returncode == 0


def test_another_rank_reads_nothing_and_passes_breakpoints(terminal: tuple[int, Seen]) -> None:
    output, _ = rank(STOPS, terminal[0], 0, 1).communicate()
    assert output == "False [False, False, False]\nend ''\n"


@pytest.mark.parametrize("attached", [None, 0])
def test_without_a_terminal_all_is_as_it_was(attached: int | None) -> None:
    output, _ = rank(TAKES, subprocess.DEVNULL, 0, attached).communicate()
    assert output == "False [False, False, False]\n"


def test_a_rank_of_a_run_without_attach_keeps_its_input(terminal: tuple[int, Seen]) -> None:
    output, _ = rank(TAKES, terminal[0], 0, None).communicate()
    assert output == "False [True, False, False]\n"


@pytest.mark.parametrize(("attached", "seconds"), [(None, [1, None]), (1, [7 * 86400.0] * 2)])
def test_while_a_person_thinks_the_others_do_not_give_up(attached: int | None, seconds: list[float | None]) -> None:
    output, _ = rank(WAITS, subprocess.DEVNULL, 0, attached).communicate()
    assert output == f"{seconds}\n"
