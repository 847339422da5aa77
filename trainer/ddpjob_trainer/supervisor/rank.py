"""Becoming a rank: what a process does with the program that it was started, or forked, to run."""

import ctypes
import os
import signal
import sys
from pathlib import Path
from types import TracebackType

from ddpjob_trainer.console import complain
from ddpjob_trainer.environment import Env
from ddpjob_trainer.errors import PeerLostError
from ddpjob_trainer.failure import is_peer_lost, last_line, leave, report_of, report_path

from .program import Program, program_of

PR_SET_PDEATHSIG = 1
HERE = str(Path(__file__).parent)


def main() -> None:
    """`python -m ddpjob_trainer.supervisor.rank SUPERVISOR'S_PID PROGRAM`, the way to start a rank cold."""
    die_with(int(sys.argv[1]))
    become(program_of(sys.argv[2:]))


def die_with(parent: int) -> None:
    """Has the kernel end this process when its parent ends, and ends it if that has happened."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def become(program: Program) -> None:
    """Runs a program in this process. If an exception ends it, the failure report tells of that."""
    sys.excepthook = _report
    program.run()


def _report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Says what Python says, without the frames that are ours, and leaves the report."""
    ours_left_out = _without_ours(trace)
    sys.__excepthook__(kind, error.with_traceback(ours_left_out), ours_left_out)
    if not isinstance(error, Exception):
        return
    if is_peer_lost(error):
        error = PeerLostError(f"lost a peer: {last_line(error)}")
        complain(str(error))
    rank = os.environ.get(Env.RANK, "0")
    leave(report_of(error, int(rank) if rank.isdecimal() else 0, None), report_path(os.environ))


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from where the program itself begins."""
    while trace is not None and trace.tb_next is not None and _is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace


def _is_ours(file: str) -> bool:
    return file.startswith((HERE, "<frozen"))


if __name__ == "__main__":
    main()
