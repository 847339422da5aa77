"""A node's part in the gang: starts and ends this node's ranks as the coordinator says, and reports on them.

    NodeIdle --Start--> NodeRunning --all ranks have ended--> NodeIdle
                     |   ^
                     +---+ Start of a later attempt: the ranks of the former one are ended first

What follows then is up to the coordinator, as long as there is one (Membership): another attempt, or an exit code.
"""

import asyncio
import contextlib
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

from ddpjob_rank.console import complain, say, warn
from ddpjob_rank.environment import Env
from ddpjob_rank.errors import PeerLostError
from ddpjob_rank.exit_codes import SIGNAL_BASE, ExitCode
from ddpjob_rank.failure.failure_report import Report, leave, report_path
from ddpjob_rank.running.program import Program
from msgspec import structs

from ddpjob_supervisor.node.ranks import Starter, StartError
from ddpjob_supervisor.node.strays import end_strays
from ddpjob_supervisor.preflight.running import COLLECTIVE
from ddpjob_supervisor.watch.beat import Beat, BeatFields
from ddpjob_supervisor.watch.blame import Observation
from ddpjob_supervisor.watch.heartbeats import Heartbeats
from ddpjob_supervisor.watch.post_server import PostServer
from ddpjob_supervisor.watch.stacks import collect, collect_from_ras

from . import messages
from .judging import INTERRUPTED, KILLED_SECONDS, PEER_LOST, is_well, observation_of
from .link import Link, LinkLostError, answers
from .local_ranks import APPLICATION, LocalRanks, RankSpec, rank_specs
from .messages import (
    Beats,
    End,
    Examine,
    Examined,
    Failed,
    Farewell,
    Finished,
    Hello,
    Incident,
    Leave,
    Leaving,
    Located,
    Message,
    Past,
    Start,
    Stop,
    UnreadableError,
)
from .once import Once
from .rendezvous import RELEASE, Rendezvous
from .ring import Ring, rank_in_words
from .settings import Settings

BEAT_SECONDS, BEAT_SECONDS_AT_MOST = 0.5, 2.0
BEATS_PER_SECOND = 2000
"""Of all ranks together: in a large gang each node reports less often. 4000 cost rank 0's supervisor 10 % of a core
(bench/coordinator.py), on a node whose ranks need all of them."""

DONE_SECONDS = 60.0
"""Rank 0's pod is usually replaced within this time; if it is not, all ranks may be done."""

STORE_SECONDS, STORE_LOOK_SECONDS = 0.25, 0.01
"""Ranks that are forked with all their imports usually reach the store within a tenth of a second."""


GPU_SECONDS = 30.0
"""Between two looks at whether GPUs are slowed down: heat comes and goes in minutes."""

LOCATING_SECONDS, LOCATING_LOOK_SECONDS = 10.0, 0.05
"""How long to wait for the topology domain while no rank could start anyway; usually it is there before."""


class Membership(Enum):
    """What this supervisor does once its ranks have ended."""

    FOLLOWING = "following"
    """What the coordinator says: it may have to start them again."""
    LEAVING = "leaving"
    """It was told to stop, and leaves. If they are done, the coordinator has to know that first."""
    DISMISSED = "dismissed"
    """Nobody leads any more, or this node is done: it leaves with their exit code."""


@dataclass(frozen=True, slots=True)
class NodeIdle:
    """No rank of this node runs."""

    ends: Sequence[End] = ()
    """How those of the last attempt have ended."""
    done: bool = False
    """Whether all have ended with 0, and there is nothing more to run."""


@dataclass(frozen=True, slots=True)
class NodeRunning:
    """The ranks of an attempt run, or are to be started."""

    start: Start
    ranks: LocalRanks
    task: asyncio.Task[None]
    """Ends when they have ended, and the coordinator has been told."""


class Follower:
    """Runs this node's ranks through all attempts, until this supervisor has an exit code."""

    def __init__(
        self,
        settings: Settings,
        program: Program,
        starter: Starter,
        rendezvous: Rendezvous,
        *,
        fit: asyncio.Task[None],
        env: Mapping[str, str],
        directory: Path,
        posts: PostServer | None = None,
    ) -> None:
        self.attempt = settings.attempt
        self.past = Past()
        """What the coordinator has reported about former attempts."""
        self._settings = settings
        self._program = program
        self._starter = starter
        self._rendezvous = rendezvous
        self._fit = fit
        self._posts = posts
        self._report_file = report_path(env)
        self._env = env
        self._directory = directory
        self._assign_ranks(None)
        self._heartbeats = Heartbeats(directory, settings.processes)
        self._link: Link | None = None
        self._state: NodeIdle | NodeRunning = NodeIdle()
        self._membership = Membership.FOLLOWING
        self._slowed: dict[int, str] = {}
        self._once = Once()
        self._examining: asyncio.Task[None] | None = None
        self._exit_code: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def hello(self, port: int) -> Hello:
        """Its first message to the coordinator."""
        settings, domain = self._settings, read_domain(self._settings.domain_file)
        place = (settings.uid, settings.node, settings.incarnation, self.attempt, port, RELEASE)
        return Hello(*place, sent=time.time(), domain=domain)

    async def locate(self) -> None:
        """Waits for the topology domain of this node, if it is to be known, while no rank could start anyway."""
        if read_domain(self._settings.domain_file) != "":
            return
        ready = asyncio.ensure_future(self._starter.ready())
        ready.add_done_callback(lambda one: one.cancelled() or one.exception())  # Who starts ranks meets it, too.
        deadline = time.monotonic() + LOCATING_SECONDS
        while read_domain(self._settings.domain_file) == "" and not ready.done() and time.monotonic() < deadline:
            await asyncio.wait([ready], timeout=LOCATING_LOOK_SECONDS)

    async def follow(self, port: int, local: Link | None = None) -> int:
        """Takes part until all is done or given up; `local` connects to the coordinator if that is in this process.

        `port` is where this supervisor listens.

        Raises:
            ConfigError: The coordinator does not accept this supervisor.
            PeerLostError: Without an operator: the coordinator does not appear, or is gone.
            PreflightError: This node is not fit for training.
        """
        self._fit.add_done_callback(self._fail_with)
        tasks = [asyncio.create_task(one) for one in (self._listen(port, local), self._beat(), self._watch_gpus())]
        waited: list[asyncio.Future[Any]] = [self._exit_code, *tasks]
        try:
            done, _ = await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()
            return await self._exit_code
        finally:
            for task in (self._fit, *tasks):
                task.cancel()
            self._stop()
            await self._ended(KILLED_SECONDS)
            if self._link is not None:
                await self._link.close()
            self._heartbeats.close()

    def request(self, number: signal.Signals) -> None:
        """This node is told to stop: its ranks may save, and then it leaves."""
        if self._membership is Membership.FOLLOWING:
            self._membership = Membership.LEAVING
        self._send(Leaving())
        match self._state:
            case NodeRunning(ranks=ranks) if self._fit.done():
                ranks.tell(number)
            case NodeIdle(ends) if is_well(ends):
                self._finish(ExitCode.SAVED_AND_STOPPED)
            case _:
                self._finish(SIGNAL_BASE + number)

    @property
    def running(self) -> bool:
        """Whether ranks of this node run."""
        return isinstance(self._state, NodeRunning)

    def beats(self) -> tuple[BeatFields, ...]:
        """The last reports of its ranks."""
        ways = self._state.ranks.transports() if isinstance(self._state, NodeRunning) else {}
        return tuple(
            structs.replace(
                beat,
                rank=spec.rank,
                attempt=self.attempt,
                transport=ways.get(local),
                slowed=self._slowed.get(local),
            ).to_dict()
            for local, (spec, beat) in enumerate(zip(self._specs, self._reports(), strict=True))
            if beat is not None
        )

    def _reports(self) -> Sequence[Beat | None]:
        """What each rank reports by its heartbeat, and rank 0's program by its posts."""
        first, *others = self._heartbeats.read()
        return [first if self._posts is None else self._posts.merged(first), *others]

    async def _listen(self, port: int, local: Link | None) -> None:
        """Obeys the coordinator, and looks for it again when it is lost; without it no rank runs."""
        while True:
            link = self._link = local or await self._reach(port)
            try:
                while True:
                    self._handle(await link.receive())
            except (LinkLostError, UnreadableError):
                self._link = None
                await link.close()
            if self._membership is Membership.DISMISSED:
                return await asyncio.shield(asyncio.Future())
            if self._membership is Membership.LEAVING:  # Its ranks are about to end, and may still save.
                await self._ended()
                self._finish(ExitCode.SAVED_AND_STOPPED)  # It is done, but nobody knows.
                continue
            if self._settings.patience is not None:
                self._leave_without_coordinator()
            self._stop()
            await self._ended()

    def _leave_without_coordinator(self) -> None:
        """The coordinator has disappeared, and nothing will bring it back.

        Raises:
            PeerLostError: The ranks of this node had not finished.
        """
        match self._state:
            case NodeIdle(ends) if is_well(ends):
                self._finish(self._verdict(ends))
            case _:
                raise PeerLostError("rank 0's supervisor is gone, and its ranks with it")

    async def _reach(self, port: int) -> Link:
        """A connection to the coordinator; a node that is done gives up on it after a while."""
        await self.locate()
        try:
            done = isinstance(self._state, NodeIdle) and self._state.done
            async with asyncio.timeout(DONE_SECONDS if done else None):
                return await self._rendezvous.reach(self.hello(port))
        except TimeoutError:
            self._finish(ExitCode.DONE)
            return await asyncio.Future()

    async def _beat(self) -> None:
        seconds = beat_seconds(self._settings.nodes * self._settings.processes)
        while True:
            await asyncio.sleep(seconds)
            match self._state:
                case NodeRunning(ranks=ranks):
                    running = tuple(self._specs[local].rank for local in ranks.pids)
                    self._send(Beats(self.attempt, self.beats(), running))
                case NodeIdle():
                    self._send(Beats(self.attempt))

    async def _watch_gpus(self) -> None:
        """Notes which GPUs are slowed down while ranks run: a straggler may be theirs."""
        while True:
            await asyncio.sleep(GPU_SECONDS)
            self._slowed = await self._state.ranks.slowed() if isinstance(self._state, NodeRunning) else {}
            for local, why in self._slowed.items():
                self._once.warn(f"rank {self._specs[local].rank}: {why}")

    def _handle(self, message: Message) -> None:
        """Does what the coordinator says."""
        match message:
            case Start():
                self._start(message)
            case Stop(attempt) if attempt == self.attempt and not self._are_told_to_stop:
                self._stop()
            case Examine(attempt) if attempt == self.attempt and isinstance(self._state, NodeRunning):
                self._examining = asyncio.create_task(self._examine(attempt, self._state.ranks))
                self._examining.add_done_callback(self._fail_with)
            case Leave(incident):
                self._leave(incident)
            case Farewell():
                self._membership = Membership.DISMISSED
                if isinstance(self._state, NodeIdle):
                    self._finish(self._verdict(self._state.ends))
            case _:
                pass  # A ping, or something about a former attempt.

    def _log_restart(self, start: Start) -> None:
        """Logs on every node why its ranks start again."""
        before = start.past.incidents[-1] if start.past.incidents else None
        if before is None or before.attempt != start.attempt - 1:
            return
        end = before.end
        step = "" if end.step is None else f" at step {end.step}"
        say(f"attempt {start.attempt} begins in place: {self._in_words(before)} failed{step}: {end.words}")

    def _start(self, start: Start) -> None:
        self._log_restart(start)
        self._rendezvous.members = start.members
        for local in range(len(self._specs)):  # First: what was told in the last attempt is not this one's.
            self._heartbeats.reset(local)
        if self._posts is not None:
            self._posts.begin(start.attempt, lambda: self._heartbeats.read()[0])
        self._stop()  # As far as the coordinator knows, nothing runs; but two attempts must never meet on one node.
        self._assign_ranks(start.order)
        if not self._ring.is_plain:
            numbers = ", ".join(str(spec.rank) for spec in self._specs)
            say(f"attempt {start.attempt}: node {self._settings.node} has rank {numbers}")
        self.attempt, self.past = start.attempt, start.past
        ranks = LocalRanks(self._starter, lambda end: self._failed(ranks, start.attempt, end), self._settings.grace)
        former = self._state.task if isinstance(self._state, NodeRunning) else None
        self._state = NodeRunning(start, ranks, asyncio.create_task(self._run(ranks, start, former)))
        self._state.task.add_done_callback(self._fail_with)

    def _assign_ranks(self, order: Sequence[int] | None) -> None:
        """Gives this node the ranks of its place among all, which stand in this order, or by number."""
        settings = self._settings
        self._ring = Ring(range(settings.nodes) if order is None else order, settings.processes)
        first = self._ring.first_rank(settings.node)
        self._specs = rank_specs(self._env, first, settings.processes, self._directory)

    def _failed(self, ranks: LocalRanks, attempt: int, end: End) -> None:
        """A rank has failed: the others are ended everywhere, or here if nobody leads any more."""
        if self._membership is not Membership.DISMISSED and self._link is not None:
            self._send(Failed(attempt, end.cause, bool(end.waited)))
        elif not ranks.told_to_stop:
            ranks.stop()

    async def _run(self, ranks: LocalRanks, start: Start, former: asyncio.Task[None] | None) -> None:
        """One attempt of this node's ranks, once the former one is over."""
        if former is not None:
            await asyncio.wait([former])
        unwanted = asyncio.create_task(ranks.unwanted.wait())
        # This node may still be in preflight, while the others gather.
        await asyncio.wait([self._fit, unwanted], return_when=asyncio.FIRST_COMPLETED)
        unwanted.cancel()
        ends: Sequence[End] = ()
        if self._fit.done():
            if self._fit.cancelled() or self._fit.exception() is not None:
                return  # This supervisor ends.
            ends = await self._ends_of(ranks, start)
            await end_strays(self._starter.pids)
        # Otherwise nobody waits for its result.
        if isinstance(self._state, NodeRunning) and self._state.ranks is ranks:
            self._idle(start, ends)

    async def _ends_of(self, ranks: LocalRanks, start: Start) -> Sequence[End]:
        # Our trainer waits for rank 0 itself, once it has loaded its data.
        if not self._settings.leads and not self._program.is_trainer:
            await self._await_store(start.port)
        specs = [self._spec_in(local, spec, start) for local, spec in enumerate(self._specs)]
        try:
            ends: Sequence[End] = await ranks.run(COLLECTIVE if start.check else self._program, specs)
        except StartError as error:
            message, now = str(error), time.time()
            ends = [End(spec.rank, ExitCode.APPLICATION_ERROR, now, APPLICATION, message) for spec in specs]
        return [_with_step(*told) for told in zip(ends, self._reports(), strict=True)]

    async def _await_store(self, port: int) -> None:
        """Gives rank 0 a head start: if the store does not listen yet, a rank tries again only much later."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STORE_SECONDS):
                while not await answers(self._rendezvous.master_addr, port):  # noqa: ASYNC110  (it is on another machine)
                    await asyncio.sleep(STORE_LOOK_SECONDS)

    def _idle(self, start: Start, ends: Sequence[End]) -> None:
        """All ranks of this node have ended. If all are done, the coordinator has to know, and says when to leave."""
        for end in ends:
            if end.cause and end.exception is None and end.exit_code > SIGNAL_BASE:
                was = "was " if end.message.startswith("killed ") else "failed: "
                complain(f"rank {end.rank} {was}{end.message}")
        done = not start.check and {end.exit_code for end in ends} == {ExitCode.DONE}
        self._state = NodeIdle(ends, done)
        if last := self.beats():  # The last steps, and a checkpoint, may be newer than what was reported.
            self._send(Beats(start.attempt, last))
        if start.order is not None and (domain := read_domain(self._settings.domain_file)) is not None:
            self._send(Located(domain))
        progressed = any(beat.get("step") is not None for beat in last)
        self._send(Finished(start.attempt) if done else messages.Idle(start.attempt, tuple(ends), progressed))
        match self._membership:
            case Membership.DISMISSED:
                self._finish(self._verdict(ends))
            case Membership.LEAVING if not done:
                self._finish(self._verdict(ends))
            case Membership.LEAVING if self._link is None:
                self._finish(ExitCode.SAVED_AND_STOPPED)

    def _verdict(self, ends: Sequence[End]) -> int:
        """The exit code for all ranks, if this supervisor leaves by itself."""
        failures = (end for end in ends if end.cause)
        failed = min(failures, key=lambda end: (end.cause == PEER_LOST, end.time), default=None)
        if failed is None:
            codes = {end.exit_code for end in ends} or {INTERRUPTED}
            return ExitCode.SAVED_AND_STOPPED if INTERRUPTED in codes else max(codes)
        self._report(failed)
        return failed.exit_code

    def _leave(self, incident: Incident) -> None:
        """The operator deals with the incident: this pod ends, and reports which rank it was."""
        if incident.node == self._settings.node:
            self._report(incident.end, incident)
            self._finish(incident.end.exit_code)
            return
        if self._settings.patience is not None:  # Otherwise the operator reports it.
            complain(f"node {incident.node} failed: {incident.end.words}")
        error = PeerLostError(f"{self._in_words(incident)} failed: {incident.end.cause}")
        end = End(self._specs[0].rank, ExitCode.PEER_LOST, time.time(), error.cause, str(error))
        self._report(structs.replace(end, step=incident.end.step), incident)
        self._finish(ExitCode.PEER_LOST)

    def _report(self, end: End, incident: Incident | None = None) -> None:
        """Leaves a report for the operator; it may see any pod's end first, so each report names the incident."""
        named = None if incident is None else incident.to_document()
        parts = (end.rank, end.exit_code, end.cause, end.exception, end.message, end.step)
        node = None if self._ring.is_plain else self._settings.node
        leave(Report(*parts, self.attempt, named, node), self._report_file)

    def _in_words(self, incident: Incident) -> str:
        """Which rank failed first."""
        return rank_in_words(incident.end.rank, incident.node, self._settings.processes)

    async def _examine(self, attempt: int, ranks: LocalRanks) -> None:
        """Examines what each stuck rank is doing; of one that has ended, only that is reported."""
        found, _, _ = await asyncio.gather(
            asyncio.gather(*(self._found(local, pid) for local, pid in ranks.pids.items())),
            self._examine_devices(attempt, ranks),
            self._ask_ras(attempt, ranks),
        )
        # Some may have ended meanwhile.
        gone = {self._specs[local].rank: end for local, end in ranks.ended.items()}
        still = (one for one in found if one.rank not in gone)
        self._send(Examined(attempt, (*still, *(observation_of(*one) for one in gone.items()))))

    async def _ask_ras(self, attempt: int, ranks: LocalRanks) -> None:
        """NCCL's RAS knows all ranks, so it is asked on one node only."""
        if self._settings.node == 0 and (address := ranks.ras_address):
            await collect_from_ras(address, attempt)

    async def _examine_devices(self, attempt: int, ranks: LocalRanks) -> None:
        """If a rank is stuck on a broken GPU, that is why the gang stalls, whatever its ranks do."""
        if (end := await ranks.broken_device()) is not None:
            self._send(Failed(attempt, end.cause, end=end))

    async def _found(self, local: int, pid: int) -> Observation:
        """What a rank is doing; if it cannot be examined, the observations of the others are still reported."""
        rank = self._specs[local].rank
        try:
            return await collect(pid, rank, self._heartbeats.path(local), self.attempt)
        except Exception as error:  # noqa: BLE001  (whatever it is, a rank that hangs is not to end the supervisor)
            warn(f"cannot look at rank {rank}: {type(error).__name__}: {error}")
            return Observation(rank)

    def _spec_in(self, local: int, spec: RankSpec, start: Start) -> RankSpec:
        """A spec with what is different in each attempt."""
        env = {**spec.env, Env.ATTEMPT: str(start.attempt), Env.HEARTBEAT: str(self._heartbeats.path(local))}
        if self._settings.master_addr:
            env |= {Env.MASTER_ADDR: self._rendezvous.master_addr, Env.MASTER_PORT: str(start.port)}
        seconds = start.past.mean_time_to_failure
        if seconds is not None:
            env[Env.MEAN_TIME_TO_FAILURE] = f"{max(1.0, seconds):.0f}"
        if self._posts is not None and spec.rank == 0:
            env |= self._posts.env(env)
        return replace(spec, env=env)

    @property
    def _are_told_to_stop(self) -> bool:
        """Whether the ranks clean up, for which they have as long as this node has."""
        return isinstance(self._state, NodeRunning) and self._state.ranks.told_to_stop

    def _stop(self) -> None:
        if isinstance(self._state, NodeRunning):
            self._state.ranks.stop()

    async def _ended(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  (it raises nothing)
        """Waits until no rank runs."""
        if isinstance(self._state, NodeRunning):
            await asyncio.wait([self._state.task], timeout=timeout)

    def _send(self, message: Message) -> None:
        if self._link is not None:
            self._link.send(message)

    def _fail_with(self, task: asyncio.Task[None]) -> None:
        """A bug of ours ends this supervisor: otherwise the others would wait forever for its messages."""
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._exit_code.done():
            self._exit_code.set_exception(error)

    def _finish(self, code: int) -> None:
        if not self._exit_code.done():
            self._exit_code.set_result(code)


def beat_seconds(processes: int) -> float:
    """Time between two beats of a node, in a gang of this many processes."""
    return min(max(BEAT_SECONDS, processes / BEATS_PER_SECOND), BEAT_SECONDS_AT_MOST)


def _with_step(end: End, beat: Beat | None) -> End:
    """The end with the last step that the rank reported, unless that was only counted, or the end has one."""
    if not end.cause or end.step is not None or beat is None or beat.counted:
        return end
    return structs.replace(end, step=beat.step)


def read_domain(file: Path | None) -> str | None:
    """The topology domain of this node; empty: it is not known yet. None: it is never to be known."""
    if file is None:
        return None
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""
