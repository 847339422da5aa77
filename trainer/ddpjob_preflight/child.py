"""One trial in a process of its own: it may hang where nothing interrupts it, and its GPU memory ends with it."""

import dataclasses
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import NoReturn, Self

from ddpjob_rank.failure.failure_report import last_line
from ddpjob_rank.machine.parent_death import die_with
from ddpjob_supervisor.node.ranks import exit_code

from .plan import NO_END, Outcome

Trial = Callable[[], Outcome]

ANSWER_BYTES = 1 << 16

REAPING_SECONDS = 2.0
"""How long a process may take to be gone after SIGKILL; usually it is gone at once."""


class Child:
    """A forked process that does one thing, reports the result, and stays until it is ended.

    What forks must not have run a tensor operation: see the zygote.
    """

    def __init__(self, trial: Trial) -> None:
        parent = os.getpid()
        self._reader, writer = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            os.close(self._reader)
            die_with(parent)
            _answer(trial, writer)
        os.close(writer)

    def outcome(self, seconds: float) -> Outcome:
        """Its result, within this many seconds."""
        deadline, answer = time.monotonic() + seconds, b""
        while not answer.endswith(b"\n"):
            ready, _, _ = select.select([self._reader], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                return Outcome(f"{NO_END} {seconds:.0f} s")
            got = os.read(self._reader, ANSWER_BYTES)
            if not got:
                return Outcome(f"its process ended with exit code {self._reap()}")
            answer += got
        return Outcome(**json.loads(answer))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        os.close(self._reader)
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            self._reap_soon()

    def _reap_soon(self) -> None:
        """Leaves one that the kernel holds, as in a GPU's driver, to the supervisor: nothing should wait for it."""
        deadline = time.monotonic() + REAPING_SECONDS
        while os.waitpid(self._pid, os.WNOHANG) == (0, 0) and time.monotonic() < deadline:
            time.sleep(0.005)

    def _reap(self) -> int:
        _, status = os.waitpid(self._pid, 0)
        self._pid = 0
        return exit_code(os.waitstatus_to_exitcode(status))


def _answer(trial: Trial, writer: int) -> NoReturn:
    try:
        outcome = trial()
    except Exception as error:  # noqa: BLE001  (whatever it is, it is what came of it)
        outcome = Outcome(last_line(error) or type(error).__name__)
    sys.stdout.flush()
    sys.stderr.flush()
    os.write(writer, json.dumps(dataclasses.asdict(outcome)).encode() + b"\n")
    os.close(writer)
    signal.pause()  # What `trial` has made lives on.
    os._exit(0)
