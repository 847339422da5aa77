"""Starts the processes of one node and answers for them: what the pod's exit code and report say, they said.

Signals are taken as data, not by handlers: they stay blocked, and one loop waits for a child's end or for a request.
"""

import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from . import memory
from .console import complain, say
from .exit_codes import SIGNAL_BASE, ExitCode
from .failure import Report, leave
from .world import Node

GRACE_SECONDS = 5.0
"""How long the other processes may take to end once one has failed; they have nothing to save any more."""

REQUESTS = frozenset({signal.SIGTERM, signal.SIGINT})
FROM_TERMINAL = 0x80
"""SI_KERNEL of sigaction(2): Ctrl-C reaches the whole process group, the children have it already."""

Ended = dict[int, int]
"""Exit code (128+n for signal n) of each process that has ended, by local rank, in the order of their ends."""


def run_node(node: Node, command: Sequence[str], env: Mapping[str, str], report_file: Path | None) -> int:
    """Runs a command once for each process of a node, to the end of all.

    Returns:
        The exit code of the first that failed; else "saved and stopped" if any says so; else 0.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {*REQUESTS, signal.SIGCHLD})
    killed_before = memory.kills()
    children = {_start(command, {**env, **node.process_env(local)}): local for local in range(node.processes)}
    say(f"node {node.node_rank}: started {node.processes} processes")
    ended = _attend(children)
    return _verdict(ended, node, report_file, out_of_memory=memory.kills() > killed_before)


def _start(command: Sequence[str], env: Mapping[str, str]) -> int:
    return os.posix_spawn(command[0], list(command), env, setsigmask=())


def _attend(children: dict[int, int]) -> Ended:
    """Waits for all, passes requests on, and ends the rest when one fails."""
    ended: Ended = {}
    deadline: float | None = None
    while True:
        _reap(children, ended)
        if not children:
            return ended
        if deadline is None and _first_failure(ended) is not None:
            _tell(children, signal.SIGTERM)
            deadline = time.monotonic() + GRACE_SECONDS
        elif deadline is not None and time.monotonic() >= deadline:
            _tell(children, signal.SIGKILL)
            deadline += GRACE_SECONDS
        _pass_on_requests(children, deadline)


def _reap(children: dict[int, int], ended: Ended) -> None:
    """Moves those that have ended. Of those that ended together the killed come first: they made the others fail."""
    together: Ended = {}
    for pid, local_rank in list(children.items()):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            del children[pid]
            code = os.waitstatus_to_exitcode(status)
            together[local_rank] = code if code >= 0 else SIGNAL_BASE - code
    ended.update(sorted(together.items(), key=lambda end: end[1] <= SIGNAL_BASE))


def _pass_on_requests(children: Mapping[int, int], deadline: float | None) -> None:
    """Sleeps until something happens, at the latest until the deadline."""
    awaited = {*REQUESTS, signal.SIGCHLD}
    if deadline is None:
        received: signal.struct_siginfo | None = signal.sigwaitinfo(awaited)
    else:
        received = signal.sigtimedwait(awaited, max(0.0, deadline - time.monotonic()))
    if received and received.si_signo in REQUESTS and received.si_code != FROM_TERMINAL:
        _tell(children, received.si_signo)


def _tell(children: Mapping[int, int], number: int) -> None:
    for pid in children:
        os.kill(pid, number)


def _first_failure(ended: Ended) -> int | None:
    failed = (rank for rank, code in ended.items() if code not in {ExitCode.DONE, ExitCode.SAVED_AND_STOPPED})
    return next(failed, None)


def _verdict(ended: Ended, node: Node, report_file: Path | None, *, out_of_memory: bool) -> int:
    local_rank = _first_failure(ended)
    if local_rank is None:
        return max(ended.values())
    code = ended[local_rank]
    rank = node.node_rank * node.processes + local_rank
    if code > SIGNAL_BASE:
        # Only such an end leaves no report of its own.
        cause, message = "Application", f"killed by {_signal_name(code - SIGNAL_BASE)}"
        if out_of_memory and code == SIGNAL_BASE + signal.SIGKILL:
            cause, message = memory.CAUSE, f"{message}: the memory limit was reached"
        complain(f"rank {rank} was {message}")
        leave(Report(rank, code, cause, None, message, None), report_file)
    return code


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
