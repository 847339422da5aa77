"""The ranks of this node in one attempt: starts, signals and ends them together, and records how each has ended."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ddpjob_rank.console import warn
from ddpjob_rank.environment import Env
from ddpjob_rank.exit_codes import SIGNAL_BASE, ExitCode
from ddpjob_rank.failure.failure_report import known_failure, last_line, read_report
from ddpjob_rank.machine import memory
from ddpjob_rank.machine.cores import cores_of_each, threads_of_each, threads_within
from ddpjob_rank.running.program import Program
from msgspec.structs import replace

from ddpjob_supervisor.gpu.nccl_words import CAUSES, Ending, NcclWords
from ddpjob_supervisor.gpu.signs import Counter, Fact, Meaning
from ddpjob_supervisor.node.ranks import Launch, Rank
from ddpjob_supervisor.node.starters import Starter
from ddpjob_supervisor.watch import nvidia_driver
from ddpjob_supervisor.watch.crash_words import CrashWords
from ddpjob_supervisor.watch.last_words import LastWords

from .device_failures import DEVICE_FAILED, is_open, judged
from .judging import INTERRUPTED, PEER_LOST
from .messages import End
from .settings import GRACE_SECONDS

APPLICATION = "Application"

NCCL, GLOO = "a collective of NCCL", "a collective of gloo"

ABORTED = SIGNAL_BASE + signal.SIGABRT
CRASHES = frozenset(
    {ABORTED, *(SIGNAL_BASE + number for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL))}
)
"""Exit codes of processes that crashed. In a rank, faulthandler prints the stack of such a crash."""

HEEDING_SECONDS = 3.0
"""How long ranks that were told to stop a second time may take to end before they are killed."""

LAST_SECONDS = 2.0
"""How long before the end of its grace period a rank that has not reacted to SIGINT gets SIGTERM. Some programs react
only to SIGTERM."""

DEVICE_SECONDS = 3.0
"""How long the driver may take to answer while ranks run or hang. Less than the coordinator's EXAMINING_SECONDS."""


@dataclass(frozen=True, slots=True)
class RankSpec:
    """A rank's number and environment."""

    rank: int
    """The value of the rank's RANK."""
    env: Mapping[str, str]
    report: Path
    """The file to which the rank writes its failure report."""


class LocalRanks:
    """Runs the ranks of one attempt until all have ended."""

    def __init__(self, starter: Starter, on_failure: Callable[[End], None], grace: float = GRACE_SECONDS) -> None:
        """`on_failure` is called with the end of each rank that fails and was not killed by this supervisor.

        `grace` is how many seconds ranks have to end after they are told to stop; after that the whole node is
        killed.
        """
        self._starter = starter
        self._on_failure = on_failure
        self._grace = grace
        self._ranks: Sequence[Rank] = ()
        self._specs: Sequence[RankSpec] = ()
        self._ends: dict[int, End] = {}
        self._heard: Sequence[LastWords] = ()
        self._requests: list[signal.Signals] = []
        self._sent: dict[int, list[signal.Signals]] = {}
        """The signals sent to each rank while it ran, by local rank."""
        self._stopped = False
        self.unwanted = asyncio.Event()
        """Set as soon as ranks that have not been started yet must not be started."""

    @property
    def pids(self) -> dict[int, int]:
        """The process ID of each rank that runs, by local rank."""
        return {local: rank.pid for local, rank in enumerate(self._ranks) if not rank.ended.done()}

    @property
    def ended(self) -> dict[int, End | None]:
        """How each rank that no longer runs has ended, by local rank; None while this is still being determined."""
        return {local: self._ends.get(local) for local, rank in enumerate(self._ranks) if rank.ended.done()}

    @property
    def ras_address(self) -> str | None:
        """The address where RAS, a service of NCCL, listens in the first rank; None if it is unknown."""
        return self._heard[0].ras_address if self._heard else None

    def transports(self) -> dict[int, str | None]:
        """How NCCL transfers data, for each rank that was started, by local rank; None if it is unknown."""
        return {local: heard.transport() for local, heard in enumerate(self._heard)}

    @property
    def told_to_stop(self) -> bool:
        """Whether the ranks were told to stop, and may clean up within the grace period."""
        return bool(self._requests)

    async def run(
        self, program: Program, specs: Sequence[RankSpec], directory: Path | None = None
    ) -> tuple[End, ...]:
        """Starts one rank for each spec and waits until all have ended. Returns the ends in the order of the specs.

        `directory` is the working directory of the ranks; None if it is the supervisor's.
        If ranks are told to stop before they can be started, none is started, and this returns immediately.

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
        self._ranks, self._specs = await self._started(program, specs, directory), specs
        if self._stopped:
            self._kill()
        for nth, number in enumerate(self._requests):
            self._send_all(number, gently=nth == 0)
        return tuple(
            await asyncio.gather(*(self._end_of(local, spec, killed_before) for local, spec in enumerate(specs)))
        )

    async def _await_starter(self) -> None:
        """Waits until ranks can be started, or must not be started any more."""
        waits = [asyncio.ensure_future(task) for task in (self._starter.ready(), self.unwanted.wait())]
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in waits:
                task.cancel()

    async def _started(
        self, program: Program, specs: Sequence[RankSpec], directory: Path | None = None
    ) -> list[Rank]:
        """Starts one rank for each spec. If one cannot be started, the others are killed, and the error is raised."""
        cores = cores_of_each(len(specs), near=await nvidia_driver.begin(specs[0].env, len(specs)))
        threads = threads_within(cores) if cores else [threads_of_each(len(specs))] * len(specs)
        logged: set[str] = set()
        self._heard = [LastWords(spec.env, logged) for spec in specs]
        launches = [
            # Because OMP_NUM_THREADS is set, ddpjob-train does not divide the cores among the ranks again.
            Launch(
                program,
                {"OMP_NUM_THREADS": str(threads[local]), **spec.env, **heard.env},
                cores[local] if cores else None,
                directory,
            )
            for local, (spec, heard) in enumerate(zip(specs, self._heard, strict=True))
        ]
        started = await asyncio.gather(*(self._starter.start(launch) for launch in launches), return_exceptions=True)
        ranks = [result for result in started if isinstance(result, Rank)]
        errors = [result for result in started if isinstance(result, BaseException)]
        if errors:
            for rank in ranks:
                rank.kill()
            await asyncio.gather(*(rank.ended for rank in ranks), *(heard.finish() for heard in self._heard))
            raise errors[0]
        return ranks

    def send_signal(self, number: signal.Signals) -> None:
        """Tells all ranks to stop, even those that are still being started. A rank that hangs may not react.

        At the first request, a rank that the signal would end without any cleanup is interrupted instead, as by
        Ctrl-C.
        """
        again = bool(self._requests)
        if self._ranks:
            later, act = (HEEDING_SECONDS, self.stop) if again else (self._last_moment, self._name_unheeding)
            asyncio.get_running_loop().call_later(later, act)
        self._requests.append(number)
        self.unwanted.set()
        self._send_all(number, gently=not again)

    def stop(self) -> None:
        """Kills all ranks, because they have nothing to save."""
        self._stopped = True
        self.unwanted.set()
        self._kill()

    def _send_all(self, number: signal.Signals, *, gently: bool) -> None:
        for local, rank in enumerate(self._ranks):
            if gently and rank.only_interruptible:
                self._interrupt(local, rank)
            else:
                self._send(local, rank, number)
            rank.send_signal(signal.SIGCONT)  # A suspended process would not react.

    def _interrupt(self, local: int, rank: Rank) -> None:
        """Sends SIGINT to a rank. Sends SIGTERM before the grace period is over, in case the rank does not react.

        A rank that waits for others in a collective does not react to SIGINT.
        """
        self._note(local, rank, signal.SIGINT)
        rank.interrupt()
        asyncio.get_running_loop().call_later(self._last_moment, self._send, local, rank, signal.SIGTERM)

    @property
    def _last_moment(self) -> float:
        """Seconds from the first stop request until ranks that still run get SIGTERM, and are named in the log."""
        return max(self._grace - LAST_SECONDS, self._grace / 2)

    def _name_unheeding(self) -> None:
        """Logs which ranks still run although they were told to stop: nothing else explains why it takes so long."""
        ranks = ", ".join(str(self._specs[local].rank) for local in self.pids)
        if ranks and not self._stopped:
            left = self._grace - self._last_moment
            warn(
                f"rank {ranks}: still running {self._last_moment:.0f} s after the request to stop, and is killed in"
                f" {left:.0f} s: a handler of SIGTERM has to save and end the program"
            )

    def _send(self, local: int, rank: Rank, number: signal.Signals) -> None:
        self._note(local, rank, number)
        rank.send_signal(number)

    def _note(self, local: int, rank: Rank, number: signal.Signals) -> None:
        if rank.runs:
            self._sent.setdefault(local, []).append(number)

    def _kill(self) -> None:
        for rank in self._ranks:
            rank.kill()

    async def _end_of(self, local: int, spec: RankSpec, killed_before: int) -> End:
        code = await self._ranks[local].ended
        heard = self._heard[local]
        words = await heard.finish(crashed=code in CRASHES)
        end = _end(
            code, spec, asked=self._sent.get(local, ()), stopped=self._stopped, starved=memory.kills() > killed_before
        )
        end = self._ends[local] = _explained(end, words, heard.crash)
        if end.cause and not self._stopped:
            if is_open(end):
                facts = await nvidia_driver.facts(spec.env, len(self._ranks))
                end = self._ends[local] = judged(end, facts[local])
            self._on_failure(end)
        return end

    async def broken_device(self) -> End | None:
        """The end to record for a running rank whose GPU is broken; None if there is no such rank.

        With a broken GPU a rank may hang.
        """
        pids = self.pids
        for local, facts in enumerate(await self._facts()):
            if facts and facts[0].meaning is Meaning.BROKEN and local in pids:
                message = f"it hangs, and {facts[0].message}"
                return End(self._specs[local].rank, ExitCode.STALLED, time.time(), DEVICE_FAILED, message)
        return None

    async def slowed(self) -> dict[int, str]:
        """Why GPUs are slowed down, by the local ranks that use them."""
        each = enumerate(await self._facts())
        why = {local: [fact.message for fact in facts if fact.sign is Counter.SLOWED] for local, facts in each}
        return {local: "; ".join(messages) for local, messages in why.items() if messages}

    async def _facts(self) -> list[list[Fact]]:
        """The events of this attempt on the GPUs of each rank that was started."""
        return await nvidia_driver.facts(self._specs[0].env, len(self._specs), DEVICE_SECONDS) if self._specs else []


def _end(code: int, spec: RankSpec, *, asked: Sequence[signal.Signals], stopped: bool, starved: bool) -> End:
    now = time.time()
    if (well := _well(code, asked)) is not None:
        return End(spec.rank, well, now)
    killed = stopped and code == SIGNAL_BASE + signal.SIGKILL
    as_asked = code - SIGNAL_BASE in asked
    reported = _reported(spec, now)
    if reported is not None:  # The rank reported a failure of its own, even if it was also killed or signalled.
        return reported if killed or as_asked else replace(reported, exit_code=code)
    if killed or as_asked:
        return End(spec.rank, code, now)
    if code <= SIGNAL_BASE:
        return End(spec.rank, code, now, APPLICATION, f"ended with exit code {code}")
    message = f"killed by {_signal_name(code - SIGNAL_BASE)}"
    if starved and code == SIGNAL_BASE + signal.SIGKILL:
        return End(spec.rank, code, now, memory.CAUSE, f"{message}: the memory limit was reached")
    return End(spec.rank, code, now, APPLICATION, message)


def _well(code: int, asked: Sequence[signal.Signals]) -> int | None:
    """The exit code to record for a rank that has not failed; None: it has failed.

    `asked` are the signals by which the rank was told to stop. After any of them, exit code 0 does not mean that the
    rank is done.
    """
    if signal.SIGINT in asked and code in {ExitCode.DONE, INTERRUPTED}:
        return INTERRUPTED
    if code == ExitCode.DONE and asked:
        return ExitCode.SAVED_AND_STOPPED
    return code if code in {ExitCode.DONE, ExitCode.SAVED_AND_STOPPED} else None


def _explained(end: End, words: NcclWords, crash: CrashWords) -> End:
    """Adds what the rank's stderr shows to an end, and corrects the cause if NCCL or a C++ exception is the reason.

    NCCL's report counts if the rank was aborted without an exception. A timeout that NCCL reports also counts if the
    rank reports a lost peer, because a timeout raises that exception.
    """
    end = replace(end, begun=dict(words.begun))
    unexplained = end.cause == APPLICATION and end.exception is None
    if not end.cause or words.ending is None:
        return _crashed(end, crash) if unexplained and end.exit_code in CRASHES else end
    aborted = end.exception is None and end.exit_code == ABORTED
    if aborted or (end.cause == PEER_LOST and words.ending is Ending.TIMEOUT):
        waited = (words.waited or NCCL) if words.ending is Ending.TIMEOUT else ""
        return replace(end, cause=CAUSES[words.ending], message=words.said, exception=None, waited=waited)
    return end


def _crashed(end: End, crash: CrashWords) -> End:
    """Adds to the end of a crashed rank what it printed before, and where in the code it crashed."""
    how = f"{end.message} in {crash.where}" if crash.where else end.message
    if not crash.said:
        return replace(end, message=how)
    error = RuntimeError(crash.said)
    if known := known_failure(error):
        return replace(end, cause=known.cause, message=str(known))
    return replace(end, message=f"{last_line(error)} ({how})", exception=crash.kind)


def _reported(spec: RankSpec, now: float) -> End | None:
    """The failure that the rank itself has reported; None if it has left no valid report."""
    report = read_report(spec.report) or {}
    with contextlib.suppress(KeyError):
        exception, step = report["exception"], report["step"]
        waited = GLOO if report.get("waited") else ""
        known = (report["exitCode"], now, report["cause"], report["message"], exception, step)
        return End(spec.rank, *known, waited=waited, line=str(report.get("line") or ""))
    return None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def rank_specs(env: Mapping[str, str], first: int, count: int, directory: Path) -> list[RankSpec]:
    """The specs of a node's `count` ranks, numbered from `first`. Their failure reports are put into `directory`."""
    # Programs expect NODE_RANK to agree with RANK, so it is not the pod's number where ranks follow placement.
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
