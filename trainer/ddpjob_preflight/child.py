"""Runs one trial in a process of its own, which can be killed if it hangs, and frees its GPU memory when it ends."""

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
"""How long to wait for the end of a process after SIGKILL; usually it ends immediately."""


class Child:
    """A forked process that runs one trial, reports the result, and lives until it is killed.

    The parent must not have run a tensor operation before the fork. (The same holds for the zygote.)
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
        """The result of the trial. If there is none after `seconds`, this is reported as the trial's problem."""
        deadline, answer = time.monotonic() + seconds, b""
        while not answer.endswith(b"\n"):
            ready, _, _ = select.select([self._reader], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                return Outcome(f"{NO_END} {seconds:.0f} s")
            chunk = os.read(self._reader, ANSWER_BYTES)
            if not chunk:
                return Outcome(f"its process ended with exit code {self._reap()}")
            answer += chunk
        return Outcome(**json.loads(answer))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        os.close(self._reader)
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            self._reap_soon()

    def _reap_soon(self) -> None:
        """Waits briefly for the end of the killed child, and reaps it.

        If the child hangs in the kernel, for example in a GPU driver, the supervisor reaps it later.
        """
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
    except Exception as error:  # noqa: BLE001  (any error is the trial's result)
        outcome = Outcome(last_line(error) or type(error).__name__)
    sys.stdout.flush()
    sys.stderr.flush()
    os.write(writer, json.dumps(dataclasses.asdict(outcome)).encode() + b"\n")
    os.close(writer)
    signal.pause()  # Keeps alive what `trial` has made, such as a store that others use.
    os._exit(0)
