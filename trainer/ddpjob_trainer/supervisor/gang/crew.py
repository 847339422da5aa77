"""The ranks of this node in one attempt: started together, told of requests, ended together, and answered for."""

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ddpjob_trainer import memory
from ddpjob_trainer.environment import Env
from ddpjob_trainer.exit_codes import SIGNAL_BASE, ExitCode
from ddpjob_trainer.supervisor.starting.cores import cores_of_each, threads_of_each
from ddpjob_trainer.supervisor.starting.program import Program
from ddpjob_trainer.supervisor.starting.ranks import Place, Rank, Starter
from ddpjob_trainer.supervisor.watching.procfs import children

from .messages import End

APPLICATION = "Application"


@dataclass(frozen=True, slots=True)
class Seat:
    """What is the same for a rank in every attempt."""

    process: int
    """Its rank among all processes."""
    env: Mapping[str, str]
    report: Path
    """Where it leaves its failure report."""


class Crew:
    """Runs the ranks of one attempt to the end of all."""

    def __init__(self, starter: Starter, on_failure: Callable[[], None]) -> None:
        self._starter = starter
        self._on_failure = on_failure
        self._ranks: Sequence[Rank] = ()
        self._requests: list[signal.Signals] = []
        self._stopped = False

    @property
    def pids(self) -> dict[int, int]:
        """The process number of each rank that runs, by local rank."""
        return {local: rank.pid for local, rank in enumerate(self._ranks) if not rank.ended.done()}

    async def run(self, program: Program, seats: Sequence[Seat]) -> tuple[End, ...]:
        """Starts one rank for each seat and waits until all have ended; in the order of the seats.

        Raises:
            StartError: One could not be started.
        """
        killed_before = memory.kills()
        for seat in seats:
            seat.report.unlink(missing_ok=True)
        threads = None if "OMP_NUM_THREADS" in os.environ else threads_of_each(len(seats))
        cores = cores_of_each(len(seats))
        places = [
            Place(program, seat.env, threads, cores[local] if cores else None) for local, seat in enumerate(seats)
        ]
        self._ranks = await asyncio.gather(*(self._starter.start(place) for place in places))
        if self._stopped:
            self._kill()
        for number in self._requests:
            self._tell(number)
        return tuple(
            await asyncio.gather(
                *(self._end_of(rank, seat, killed_before) for rank, seat in zip(self._ranks, seats, strict=True))
            )
        )

    def tell(self, number: signal.Signals) -> None:
        """Passes a signal on, also to ranks that are being started."""
        self._requests.append(number)
        self._tell(number)

    def stop(self) -> None:
        """Ends all at once: they have nothing to save."""
        self._stopped = True
        self._kill()

    def _tell(self, number: signal.Signals) -> None:
        for rank in self._ranks:
            rank.tell(number)
            rank.tell(signal.SIGCONT)  # One that is stopped would not hear it.

    def _kill(self) -> None:
        for rank in self._ranks:
            rank.kill()

    async def _end_of(self, rank: Rank, seat: Seat, killed_before: int) -> End:
        code = await rank.ended
        end = _end(code, seat, asked=self._requests, stopped=self._stopped, starved=memory.kills() > killed_before)
        if end.cause and not self._stopped:
            self._on_failure()
        return end


def _end(code: int, seat: Seat, *, asked: Sequence[signal.Signals], stopped: bool, starved: bool) -> End:
    now = time.time()
    by_us = stopped and code == SIGNAL_BASE + signal.SIGKILL
    as_asked = code - SIGNAL_BASE in asked
    if code in {ExitCode.DONE, ExitCode.SAVED_AND_STOPPED} or by_us or as_asked:
        return End(seat.process, code, now)
    report = _report(seat.report)
    if report is not None:
        return End(seat.process, code, now, *report)
    if code <= SIGNAL_BASE:
        return End(seat.process, code, now, APPLICATION, f"ended with exit code {code}")
    message = f"killed by {_signal_name(code - SIGNAL_BASE)}"
    if starved and code == SIGNAL_BASE + signal.SIGKILL:
        return End(seat.process, code, now, memory.CAUSE, f"{message}: the memory limit was reached")
    return End(seat.process, code, now, APPLICATION, message)


def _report(path: Path) -> tuple[str, str, str | None, int | None] | None:
    """Cause, message, exception and step, as the rank itself has left them."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        report = json.loads(path.read_text(encoding="utf-8"))
        return report["cause"], report["message"], report["exception"], report["step"]
    return None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def seats_of(env: Mapping[str, str], first: int, count: int, directory: Path) -> list[Seat]:
    """The seats of a node whose ranks are numbered from `first`."""
    return [
        Seat(
            first + local,
            {
                **env,
                Env.RANK: str(first + local),
                Env.LOCAL_RANK: str(local),
                Env.LOCAL_WORLD_SIZE: str(count),
                Env.TERMINATION_LOG: str(directory / f"report-{local}.json"),
            },
            directory / f"report-{local}.json",
        )
        for local in range(count)
    ]


def end_strays(known: set[int]) -> None:
    """Ends and reaps every process that came of the ranks and outlived them: this process is their parent by now."""
    for pid in set(children(os.getpid())) - known:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def reap_strays(known: set[int]) -> None:
    """Reaps what has ended among them."""
    for pid in set(children(os.getpid())) - known:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
