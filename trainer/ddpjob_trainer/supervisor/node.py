"""The ranks of one node: started together, told of requests, ended together, and answered for."""

import asyncio
import signal
from collections.abc import Sequence
from pathlib import Path

from ddpjob_trainer import memory
from ddpjob_trainer.console import complain
from ddpjob_trainer.exit_codes import SIGNAL_BASE, ExitCode
from ddpjob_trainer.failure import Report, leave

from .ranks import Place, Rank, Starter

GRACE_SECONDS = 5.0
"""How long the other ranks may take to end once one has failed; they have nothing to save any more."""

REQUESTS = (signal.SIGTERM, signal.SIGINT)

Ended = dict[int, int]
"""Exit code (128+n for signal n) of each rank that has ended, by local rank, in the order of their ends."""


async def run_ranks(places: Sequence[Place], first_rank: int, starter: Starter, report_file: Path | None) -> int:
    """Runs the ranks of a node, numbered from `first_rank`, to the end of all.

    Returns:
        The exit code of the first that failed; else "saved and stopped" if any says so; else 0.

    Raises:
        StartError: One could not be started.
    """
    requests = _Requests()
    killed_before = memory.kills()
    ranks = await asyncio.gather(*(starter.start(place) for place in places))
    requests.go_to(ranks)
    ended = await _attend(ranks)
    return _verdict(ended, first_rank, report_file, out_of_memory=memory.kills() > killed_before)


class _Requests:
    """SIGTERM and SIGINT are for the ranks, also those that come while they are being started."""

    def __init__(self) -> None:
        self._ranks: Sequence[Rank] = ()
        self._early: list[signal.Signals] = []
        for number in REQUESTS:
            asyncio.get_running_loop().add_signal_handler(number, self._pass_on, number)

    def go_to(self, ranks: Sequence[Rank]) -> None:
        """There they are."""
        self._ranks = ranks
        for number in self._early:
            _tell(ranks, number)

    def _pass_on(self, number: signal.Signals) -> None:
        _tell(self._ranks, number)
        if not self._ranks:
            self._early.append(number)


async def _attend(ranks: Sequence[Rank]) -> Ended:
    """Waits for all, and ends the rest when one fails."""
    loop = asyncio.get_running_loop()
    ended: Ended = {}
    deadline: float | None = None
    while len(ended) < len(ranks):
        waiting = [rank.ended for rank in ranks if not rank.ended.done()]
        timeout = None if deadline is None else max(0.0, deadline - loop.time())
        if waiting:
            await asyncio.wait(waiting, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        _note_ends(ranks, ended)
        if deadline is None and _first_failure(ended) is not None:
            _tell(ranks, signal.SIGTERM)
            deadline = loop.time() + GRACE_SECONDS
        elif deadline is not None and loop.time() >= deadline:
            _tell(ranks, signal.SIGKILL)
            deadline += GRACE_SECONDS
    return ended


def _note_ends(ranks: Sequence[Rank], ended: Ended) -> None:
    """Of those that ended together the killed come first: they made the others fail."""
    together = {
        local: rank.ended.result() for local, rank in enumerate(ranks) if local not in ended and rank.ended.done()
    }
    ended.update(sorted(together.items(), key=lambda end: end[1] <= SIGNAL_BASE))


def _tell(ranks: Sequence[Rank], number: signal.Signals) -> None:
    for rank in ranks:
        rank.tell(number)


def _first_failure(ended: Ended) -> int | None:
    failed = (rank for rank, code in ended.items() if code not in {ExitCode.DONE, ExitCode.SAVED_AND_STOPPED})
    return next(failed, None)


def _verdict(ended: Ended, first_rank: int, report_file: Path | None, *, out_of_memory: bool) -> int:
    local_rank = _first_failure(ended)
    if local_rank is None:
        return max(ended.values())
    code = ended[local_rank]
    rank = first_rank + local_rank
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
