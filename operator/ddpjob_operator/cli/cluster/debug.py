"""`ddpjob debug NAME`: a shell, or another program, in the container of one rank of a job."""

import os
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import SimpleQueue

from ddpjob_operator.api import BadInputError
from ddpjob_operator.api.contract import TRAINER_CONTAINER
from ddpjob_operator.cli.phrases import check_node, check_rank, say
from ddpjob_operator.client import ClusterError, JobPod, Jobs, TerminalSession, as_job, present

SHELL = ("/bin/sh", "-c", "command -v bash >/dev/null && exec bash; exec sh")
"""Bash, if the image has it."""

STDIN, STDOUT, STDERR = range(3)
CHUNK = 1 << 12
TERMINATED = 128 + signal.SIGTERM


def debug(jobs: Jobs, name: str, rank: int | None, command: Sequence[str] | None, *, node: int | None = None) -> int:
    """Runs a command (None: a shell) beside a rank or on a node (neither: rank 0), and returns its exit code.

    If input and output of ddpjob are a terminal, the command has one too; otherwise it has no input.

    Raises:
        BadInputError: there is no such job, rank or node, its pod does not run, or a shell would have no terminal.
        ClusterError: the cluster cannot be reached, or does not fulfil a request; or the user is not allowed to run
            programs in pods.
    """
    place = f"rank {rank or 0}" if node is None else f"node {node}"
    terminal = os.isatty(STDIN) and os.isatty(STDOUT)
    if not command and not terminal:
        raise BadInputError(
            "a shell needs a terminal, and the input or the output of ddpjob is none; for a single command:"
            f" ddpjob debug {name} --{place} -- COMMAND"
        )
    pod = _pod_of(jobs, name, rank or 0, node)
    say(f"{place} runs in pod {pod.name}, container {TRAINER_CONTAINER}")
    with jobs.cluster.attach_to_pod(pod.name, TRAINER_CONTAINER, command or SHELL, terminal=terminal) as session:
        if terminal:
            with _own_terminal(session):
                _copy_output(session)
        else:
            _copy_output(session)
    if session.is_missing:
        missing = (command or SHELL)[0]
        raise BadInputError(f"there is no program {missing} in the image of {place}; name another one after --")
    if session.exit_code is None:
        raise ClusterError(f"pod {pod.name}: {session.problem or 'the connection was closed'}")
    return session.exit_code


def _pod_of(jobs: Jobs, name: str, rank: int, node: int | None) -> JobPod:
    """The running pod of a node or, if `node` is None, of a rank.

    Raises:
        BadInputError: there is none.
    """
    document = jobs.get(name)
    status = as_job(document).status
    if status.finished:
        raise BadInputError(f"{name} has ended, and nothing runs in its pods: {status.message}")
    if not status.nodes or not status.procs_per_node:
        raise BadInputError(f"{name} has no ranks yet: {status.message}")
    pods = jobs.pods(document)
    if node is None:
        check_rank("--rank", rank, name, status.nodes * status.procs_per_node)
        node = jobs.node_of_rank(document, pods, rank)
        whose = f"--rank {rank}: the pod of its node {node}"
    else:
        check_node(name, node, status.nodes)
        whose = f"--node {node}: its pod"
    pod = next((pod for pod in present(pods, status) if pod.node == node and pod.runs), None)
    if pod is None:
        raise BadInputError(f"{whose} does not run: {status.message}")
    return pod


@contextmanager
def _own_terminal(session: TerminalSession) -> Iterator[None]:
    """Passes on the user's keys, Ctrl-C among them, and the terminal's size, while the context is open."""
    settings = termios.tcgetattr(STDIN)
    resized = SimpleQueue[bool]()  # The only queue that a signal handler may use, whatever it interrupts.
    resized.put(True)

    def send_sizes() -> None:
        with suppress(ClusterError, OSError):  # The session ends by itself.
            while resized.get():
                size = os.get_terminal_size(STDOUT)
                session.resize(size.columns, size.lines)

    def copy_input() -> None:
        with suppress(ClusterError, OSError):
            while typed := os.read(STDIN, CHUNK):
                session.send(typed)

    handlers = {signal.SIGWINCH: lambda *_: resized.put(True), signal.SIGTERM: lambda *_: sys.exit(TERMINATED)}
    former = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        tty.setraw(STDIN, termios.TCSADRAIN)
        for copy in (send_sizes, copy_input):
            threading.Thread(target=copy, daemon=True).start()
        yield
    finally:
        resized.put(False)
        for number, handler in former.items():
            signal.signal(number, handler)
        termios.tcsetattr(STDIN, termios.TCSADRAIN, settings)


def _copy_output(session: TerminalSession) -> None:
    for stream, data in session.output():
        while data:
            data = data[os.write(stream, data) :]  # noqa: PLW2901
