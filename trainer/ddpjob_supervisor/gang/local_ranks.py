"""The ranks of this node in one attempt: started together, signalled, ended together, and reported on."""

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ddpjob_rank.environment import Env
from ddpjob_rank.exit_codes import SIGNAL_BASE, ExitCode
from ddpjob_rank.machine import memory
from ddpjob_rank.machine.cores import cores_of_each, threads_of_each, threads_within
from ddpjob_rank.running.program import Program
from msgspec.structs import replace

from ddpjob_supervisor.gpu.nccl_words import CAUSES, Ending, NcclWords
from ddpjob_supervisor.gpu.signs import Counter, Fact, Meaning
from ddpjob_supervisor.node.ranks import Launch, Rank
from ddpjob_supervisor.node.starters import Starter
from ddpjob_supervisor.watch import nvidia_driver
from ddpjob_supervisor.watch.last_words import LastWords

from .device_failures import DEVICE_FAILED, is_open, judged
from .judging import INTERRUPTED, PEER_LOST
from .messages import End
from .settings import GRACE_SECONDS

APPLICATION = "Application"

NCCL = "a collective of NCCL"

HEEDING_SECONDS = 3.0
"""How long ranks that were told to stop a second time may take to end by themselves."""

LAST_SECONDS = 2.0
"""Before its time is over, a rank that has not answered SIGINT gets SIGTERM: some programs end by that alone."""

DEVICE_SECONDS = 3.0
"""For the driver to answer while ranks run or hang: less than the coordinator's EXAMINING_SECONDS."""


@dataclass(frozen=True, slots=True)
class RankSpec:
    """A rank's place among all, and what it gets there."""

    rank: int
    """Its rank among all processes."""
    env: Mapping[str, str]
    report: Path
    """Where it leaves its failure report."""


class LocalRanks:
    """Runs the ranks of one attempt until all have ended."""

    def __init__(self, starter: Starter, on_failure: Callable[[End], None], grace: float = GRACE_SECONDS) -> None:
        """`grace`: how many seconds they have once they are told to stop; then whoever told that ends this node."""
        self._starter = starter
        self._on_failure = on_failure
        self._grace = grace
        self._ranks: Sequence[Rank] = ()
        self._specs: Sequence[RankSpec] = ()
        self._ends: dict[int, End] = {}
        self._heard: Sequence[LastWords] = ()
        self._requests: list[signal.Signals] = []
        self._sent: dict[int, list[signal.Signals]] = {}
        """What each rank was told by, which ran then."""
        self._stopped = False
        self.unwanted = asyncio.Event()
        """Set if ranks that do not run yet must not start any more."""

    @property
    def pids(self) -> dict[int, int]:
        """The pid of each rank that runs, by local rank."""
        return {local: rank.pid for local, rank in enumerate(self._ranks) if not rank.ended.done()}

    @property
    def ended(self) -> dict[int, End | None]:
        """The local ranks that have run and no longer run, and how each has ended, once that is known."""
        return {local: self._ends.get(local) for local, rank in enumerate(self._ranks) if rank.ended.done()}

    @property
    def ras_address(self) -> str | None:
        """Where the RAS of the first rank's NCCL listens; None: nobody knows."""
        return self._heard[0].ras_address if self._heard else None

    def transports(self) -> dict[int, str | None]:
        """How NCCL passes data of each rank that was started, by local rank; None: unknown."""
        return {local: heard.transport() for local, heard in enumerate(self._heard)}

    @property
    def told_to_stop(self) -> bool:
        """Whether they may still clean up, as long as whoever told them so waits."""
        return bool(self._requests)

    async def run(self, program: Program, specs: Sequence[RankSpec]) -> tuple[End, ...]:
        """Starts one rank for each spec and waits until all have ended; returns the ends in the order of the specs.

        If they are told to stop before they can be started, none is started, and this returns at once.

        Raises:
            ConfigError: No rank can ever be started.
            StartError: A rank could not be started; none is running.
        """
        killed_before = memory.kills()
        for spec in specs:
            spec.report.unlink(missing_ok=True)
        await self._await_starter()
        if self.unwanted.is_set():
            code = SIGNAL_BASE + (signal.SIGKILL if self._stopped else self._requests[0])
            return tuple(End(spec.rank, code, time.time()) for spec in specs)
        self._ranks, self._specs = await self._started(program, specs), specs
        if self._stopped:
            self._kill()
        for nth, number in enumerate(self._requests):
            self._tell(number, gently=nth == 0)
        return tuple(
            await asyncio.gather(*(self._end_of(local, spec, killed_before) for local, spec in enumerate(specs)))
        )

    async def _await_starter(self) -> None:
        """Waits until ranks can be started, or must not start any more."""
        waits = [asyncio.ensure_future(one) for one in (self._starter.ready(), self.unwanted.wait())]
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()
        finally:
            for one in waits:
                one.cancel()

    async def _started(self, program: Program, specs: Sequence[RankSpec]) -> list[Rank]:
        """One rank for each spec, or none."""
        cores = cores_of_each(len(specs), near=await nvidia_driver.begin(specs[0].env, len(specs)))
        threads = threads_within(cores) if cores else [threads_of_each(len(specs))] * len(specs)
        told: set[str] = set()
        self._heard = [LastWords(spec.env, told) for spec in specs]
        launches = [
            # The share is set in the variable, so that nothing divides it again.
            Launch(
                program,
                {"OMP_NUM_THREADS": str(threads[local]), **spec.env, **heard.env},
                cores[local] if cores else None,
            )
            for local, (spec, heard) in enumerate(zip(specs, self._heard, strict=True))
        ]
        started = await asyncio.gather(*(self._starter.start(launch) for launch in launches), return_exceptions=True)
        ranks = [one for one in started if isinstance(one, Rank)]
        errors = [one for one in started if isinstance(one, BaseException)]
        if errors:
            for rank in ranks:
                rank.kill()
            await asyncio.gather(*(rank.ended for rank in ranks), *(heard.finish() for heard in self._heard))
            raise errors[0]
        return ranks

    def tell(self, number: signal.Signals) -> None:
        """Tells them to stop, even ranks that are still being started. A rank that hangs may not react.

        The first time one that would just die of the signal is interrupted instead, as at a terminal: it cleans up.
        """
        again = bool(self._requests)
        if again and self._ranks:
            asyncio.get_running_loop().call_later(HEEDING_SECONDS, self.stop)
        self._requests.append(number)
        self.unwanted.set()
        self._tell(number, gently=not again)

    def stop(self) -> None:
        """Ends all at once: they have nothing to save."""
        self._stopped = True
        self.unwanted.set()
        self._kill()

    def _tell(self, number: signal.Signals, *, gently: bool) -> None:
        for local, rank in enumerate(self._ranks):
            if gently and rank.only_interruptible:
                self._interrupt(local, rank)
            else:
                self._send(local, rank, number)
            rank.tell(signal.SIGCONT)  # A suspended process would not react.

    def _interrupt(self, local: int, rank: Rank) -> None:
        """Has it clean up, and ends it in time if it does not react, as in a collective that waits for others."""
        self._note(local, rank, signal.SIGINT)
        rank.interrupt()
        later = max(self._grace - LAST_SECONDS, self._grace / 2)
        asyncio.get_running_loop().call_later(later, self._send, local, rank, signal.SIGTERM)

    def _send(self, local: int, rank: Rank, number: signal.Signals) -> None:
        self._note(local, rank, number)
        rank.tell(number)

    def _note(self, local: int, rank: Rank, number: signal.Signals) -> None:
        if rank.runs:
            self._sent.setdefault(local, []).append(number)

    def _kill(self) -> None:
        for rank in self._ranks:
            rank.kill()

    async def _end_of(self, local: int, spec: RankSpec, killed_before: int) -> End:
        code = await self._ranks[local].ended
        words = await self._heard[local].finish()
        end = _end(
            code, spec, asked=self._sent.get(local, ()), stopped=self._stopped, starved=memory.kills() > killed_before
        )
        end = self._ends[local] = _explained(end, words)
        if end.cause and not self._stopped:
            if is_open(end):
                facts = await nvidia_driver.facts(spec.env, len(self._ranks))
                end = self._ends[local] = judged(end, facts[local])
            self._on_failure(end)
        return end

    async def broken_device(self) -> End | None:
        """How a rank counts that still runs, on a broken GPU, and may hang for that reason; None: there is none."""
        pids = self.pids
        for local, facts in enumerate(await self._facts()):
            if facts and facts[0].meaning is Meaning.BROKEN and local in pids:
                message = f"it hangs, and {facts[0].message}"
                return End(self._specs[local].rank, ExitCode.STALLED, time.time(), DEVICE_FAILED, message)
        return None

    async def slowed(self) -> dict[int, str]:
        """Whose GPUs are slowed down, by local rank, and why."""
        each = enumerate(await self._facts())
        why = {local: [fact.message for fact in known if fact.sign is Counter.SLOWED] for local, known in each}
        return {local: "; ".join(messages) for local, messages in why.items() if messages}

    async def _facts(self) -> list[list[Fact]]:
        """What has happened to the GPUs of each rank that was started."""
        return await nvidia_driver.facts(self._specs[0].env, len(self._specs), DEVICE_SECONDS) if self._specs else []


def _end(code: int, spec: RankSpec, *, asked: Sequence[signal.Signals], stopped: bool, starved: bool) -> End:
    now = time.time()
    if (well := _well(code, asked)) is not None:
        return End(spec.rank, well, now)
    by_us = stopped and code == SIGNAL_BASE + signal.SIGKILL
    as_asked = code - SIGNAL_BASE in asked
    reported = _reported(spec, now)
    if reported is not None:  # It had failed, though it may have been killed while it was about to end.
        return reported if by_us or as_asked else replace(reported, exit_code=code)
    if by_us or as_asked:
        return End(spec.rank, code, now)
    if code <= SIGNAL_BASE:
        return End(spec.rank, code, now, APPLICATION, f"ended with exit code {code}")
    message = f"killed by {_signal_name(code - SIGNAL_BASE)}"
    if starved and code == SIGNAL_BASE + signal.SIGKILL:
        return End(spec.rank, code, now, memory.CAUSE, f"{message}: the memory limit was reached")
    return End(spec.rank, code, now, APPLICATION, message)


def _well(code: int, asked: Sequence[signal.Signals]) -> int | None:
    """The exit code of a rank that has not failed: who ends well after it was told to stop is not done."""
    if signal.SIGINT in asked and code in {ExitCode.DONE, INTERRUPTED}:
        return INTERRUPTED
    if code == ExitCode.DONE and asked:
        return ExitCode.SAVED_AND_STOPPED
    return code if code in {ExitCode.DONE, ExitCode.SAVED_AND_STOPPED} else None


def _explained(end: End, words: NcclWords) -> End:
    """An end in the light of what the rank has said, where NCCL, and no exception, tells why it failed.

    A rank that has lost a peer because it had waited for too long waited, whoever says so.
    """
    end = replace(end, begun=dict(words.begun))
    if words.ending is None or not end.cause:
        return end
    aborted = end.exception is None and end.exit_code == SIGNAL_BASE + signal.SIGABRT
    if aborted or (end.cause == PEER_LOST and words.ending is Ending.TIMEOUT):
        waited = (words.waited or NCCL) if words.ending is Ending.TIMEOUT else ""
        return replace(end, cause=CAUSES[words.ending], message=words.said, exception=None, waited=waited)
    return end


def _reported(spec: RankSpec, now: float) -> End | None:
    """A failure as the rank itself has reported it."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        report = json.loads(spec.report.read_text(encoding="utf-8"))
        exception, step = report["exception"], report["step"]
        return End(spec.rank, report["exitCode"], now, report["cause"], report["message"], exception, step)
    return None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def rank_specs(env: Mapping[str, str], first: int, count: int, directory: Path) -> list[RankSpec]:
    """The specs of a node whose ranks are numbered from `first`."""
    # To a program this is the node's place among all, whatever the pod's number is: the two have to agree.
    own = {Env.NODE_RANK: str(first // count)} if Env.NODE_RANK in env else {}
    return [
        RankSpec(
            first + local,
            {
                **env,
                **own,
                Env.RANK: str(first + local),
                Env.LOCAL_RANK: str(local),
                Env.LOCAL_WORLD_SIZE: str(count),
                Env.TERMINATION_LOG: str(directory / f"report-{local}.json"),
            },
            directory / f"report-{local}.json",
        )
        for local in range(count)
    ]
