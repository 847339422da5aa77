"""One attempt of a node's ranks: from the coordinator's Start until all have ended, with what they report meanwhile.

The ranks are started after the ranks of the former attempt have ended, and this node has passed its preflight.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from ddpjob_rank.console import say, warn
from ddpjob_rank.environment import Env
from ddpjob_rank.exit_codes import ExitCode
from ddpjob_rank.machine import interface
from ddpjob_rank.machine.network import address_towards
from ddpjob_rank.reporting.result import held_mark
from ddpjob_rank.reporting.teller import STARTING
from ddpjob_rank.running.program import Program, program_of
from ddpjob_rank.running.script.read_at_import import reader_of
from msgspec import structs

from ddpjob_supervisor.node.copy_holder import CopyHolder
from ddpjob_supervisor.node.ranks import StartError
from ddpjob_supervisor.node.run_packages import PATH, PackageSet, RunPackages
from ddpjob_supervisor.node.sent_code import SentCode
from ddpjob_supervisor.node.starters import Starter, Warm
from ddpjob_supervisor.node.strays import Strays
from ddpjob_supervisor.preflight.running import COLLECTIVE
from ddpjob_supervisor.watch.beat import Beat, BeatFields
from ddpjob_supervisor.watch.blame import Observation
from ddpjob_supervisor.watch.heartbeats import Heartbeats
from ddpjob_supervisor.watch.stacks import collect, collect_from_ras, observe
from ddpjob_supervisor.watch.stopped import stopped_state
from ddpjob_supervisor.watch.threads import in_thread

from .judging import observation_of
from .link import NAME_SECONDS, answers
from .local_ranks import LocalRanks, RankSpec, rank_specs
from .messages import Beats, End, Examined, Failed, Installed, Looked, Message, Start
from .once import Once
from .rendezvous import Rendezvous
from .ring import Ring
from .settings import Settings

STORE_SECONDS, STORE_LOOK_SECONDS = 0.25, 0.01
"""How long to wait for rank 0's store, and how long between two checks. Rank 0 is forked with its imports done, so it
usually listens within a tenth of a second."""

THREADS = "OMP_NUM_THREADS"
"""A variable that PyTorch reads when it is imported, but that each rank is given all the same."""


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NodeSetup:
    """What all attempts of a node have in common."""

    settings: Settings
    program: Program | None
    """None if the gang is held: then each Start names the program."""
    starter: Starter
    rendezvous: Rendezvous
    fit: asyncio.Task[None]
    """The task that runs this node's preflight. It raises an error if the node is not fit."""
    env: Mapping[str, str]
    directory: Path
    heartbeats: Heartbeats
    strays: Strays
    copy: CopyHolder
    code: SentCode
    packages: RunPackages

    def ring(self, order: Sequence[int] | None = None) -> Ring:
        """A ring with the nodes in the given order, or in numerical order if `order` is None."""
        return Ring(range(self.settings.nodes) if order is None else order, self.settings.processes)


class NodeAttempt:
    """The ranks of a node in one attempt."""

    task: asyncio.Task[None]
    """Done when all ranks have ended, and this has been reported to the coordinator."""

    def __init__(
        self,
        node: NodeSetup,
        start: Start,
        on_failure: Callable[["NodeAttempt", End], None],
        fetch: Callable[[str], Coroutine[Any, Any, None]],
        send: Callable[[Message], None],
    ) -> None:
        """`on_failure` is called with the end of each rank that fails and was not killed by this supervisor.

        `fetch` gets the code with this digest, unless it is on this node. `send` sends a message to the coordinator.
        """
        settings = node.settings
        self.start = start
        self.ring = node.ring(start.order)
        self.ranks = LocalRanks(node.starter, lambda end: on_failure(self, end), settings.grace)
        self.ends: Sequence[End] | None = None
        """How each rank has ended; None while some have not ended."""
        self._node = node
        self._fetch = fetch
        self._send = send
        self.may_begin = asyncio.Event()
        """Set when all nodes have the packages of this attempt's program."""
        self._env = {**node.env, **(start.program.env if start.program else {})}
        self._specs = rank_specs(self._env, self.ring.first_rank(settings.node), settings.processes, node.directory)
        self._slowed: dict[int, str] = {}
        self._asking = asyncio.Lock()
        """Held while ranks report what they are doing, because each rank has only one place for its report."""
        for local in range(settings.processes):  # Otherwise reports of the last attempt would count for this one.
            node.heartbeats.reset(local)
        if start.program is not None:
            held_mark(node.heartbeats.path(0)).touch()
        if 0 not in self.numbers and not start.check:
            node.copy.drop()  # Rank 0 is on another node now, so the copy will never be used.

    @property
    def numbers(self) -> list[int]:
        """The rank numbers of this node's processes."""
        return [spec.rank for spec in self._specs]

    @property
    def runs(self) -> bool:
        """Whether a rank runs or is still to be started."""
        return self.ends is None

    @property
    def done(self) -> bool:
        """Whether the program is done on this node: all ranks have exited with 0."""
        return not (self.start.check or self.start.program) and {end.exit_code for end in self.ends or ()} == {
            ExitCode.DONE
        }

    async def run(self, former: "NodeAttempt | None") -> Sequence[End] | None:
        """Runs all ranks until they have ended. Returns None if the preflight failed, which ends this supervisor."""
        if former is not None:
            await asyncio.wait([former.task])
        # The coordinator may send Start before this node has passed its preflight.
        if not await self._is_awaited(self._node.fit):
            return ()
        if self._node.fit.cancelled() or self._node.fit.exception() is not None:
            return None
        ends = await self._run()
        await self._node.strays.end()
        return ends

    async def _is_awaited(self, task: asyncio.Task[Any]) -> bool:
        """Waits until a task is done. Returns False as soon as ranks must not be started any more."""
        unwanted = asyncio.create_task(self.ranks.unwanted.wait())
        await asyncio.wait([task, unwanted], return_when=asyncio.FIRST_COMPLETED)
        unwanted.cancel()
        return task.done()

    async def _run(self) -> Sequence[End]:
        extra = await self._interface()
        try:
            program, directory = await self._program()
            extra = {**extra, **await self._with_packages(directory)}
            specs = [self._with_attempt(local, spec, extra) for local, spec in enumerate(self._specs)]
            self._warn_of_late_variables()
            # ddpjob-train does its own waiting for rank 0, after it has loaded its data.
            if not self._node.settings.leads and not program.is_trainer:
                await self._await_store()
            ends: Sequence[End] = await self.ranks.run(program, specs, directory)
        except StartError as error:
            message, now = str(error), time.time()
            ends = [End(rank, ExitCode.APPLICATION_ERROR, now, error.cause, message) for rank in self.numbers]
        return [_with_step(*reported) for reported in zip(ends, self._node.heartbeats.read(), strict=True)]

    async def _program(self) -> tuple[Program, Path | None]:
        """The program to run, and its working directory, or None if that is the supervisor's or no rank is wanted.

        Raises:
            StartError: The files that were sent with the program cannot be unpacked.
        """
        held = self.start.program
        if self.start.check:
            return COLLECTIVE, None
        if held is not None:
            return program_of(held.words), await self._unless_unwanted(self._unpacked(held.code))
        assert self._node.program is not None, "only a held gang has none of its own"
        if (digest := self.start.past.code.digest) != self._node.code.placed:
            await self._unless_unwanted(self._placed(digest))
        return self._node.program, None

    async def _with_packages(self, directory: Path | None) -> Mapping[str, str]:
        """The variable by which ranks of a held gang find the packages of their program; empty if it needs none.

        Ranks begin together, however long a node that is new takes to install: so returns when all nodes have the
        packages, or no rank is wanted any more.

        Raises:
            NotInstalledError: This node cannot have them.
        """
        held = self.start.program
        if held is None or not held.installs or directory is None:
            return {}
        wanted = PackageSet(held.packages, held.requirements)
        path = await self._unless_unwanted(self._node.packages.searched(wanted, directory, self._env))
        if path is None:
            return {}
        self._send(Installed(self.start.attempt))
        await self._unless_unwanted(self.may_begin.wait())
        return {PATH: path}

    async def _unless_unwanted(self, coming: Coroutine[Any, Any, T]) -> T | None:
        """What comes of something that may take long; None if no rank is wanted any more."""
        task = asyncio.create_task(coming)
        if await self._is_awaited(task):
            return task.result()
        task.cancel()
        await asyncio.wait([task])
        return None

    async def _unpacked(self, digest: str) -> Path:
        await self._fetch(digest)
        return await in_thread(self._node.code.unpacked, digest)

    async def _placed(self, digest: str) -> Path:
        await self._fetch(digest)
        directory = Path.cwd()
        await in_thread(self._node.code.place, digest, directory)
        return directory

    def _warn_of_late_variables(self) -> None:
        """Warns of variables of a run on a hold that PyTorch read when it was imported, before the run."""
        node, held = self._node, self.start.program
        if held is None or node.settings.node != 0 or not isinstance(node.starter, Warm):
            return
        for name, value in held.env.items():
            if reader_of(name) is not None and name != THREADS and node.env.get(name) != value:
                warn(f"{name} comes too late: PyTorch read it when it was imported. Give it to ddpjob hold --env")

    async def _await_store(self) -> None:
        """Waits until rank 0's store listens: a rank whose first try is refused waits long before its second."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STORE_SECONDS):
                while not await answers(self._node.rendezvous.master_addr, self.start.port):  # noqa: ASYNC110  (it is on another machine)
                    await asyncio.sleep(STORE_LOOK_SECONDS)

    async def _interface(self) -> Mapping[str, str]:
        """The variable with gloo's network interface; empty if the user sets it, or gloo needs no help.

        Without a supervisor, ddpjob-train chooses the interface in the same way.
        """
        node, members = self._node, self.start.members
        if interface.VARIABLE in self._env or node.settings.nodes == 1 or not node.settings.master_addr:
            return {}
        # In the address of rank 0's own node, the host is an empty string.
        hosts = [address.rpartition(":")[0].strip("[]") for address in members.values()]
        with contextlib.suppress(TimeoutError, ValueError):  # ValueError: a host name is not valid.
            async with asyncio.timeout(NAME_SECONDS):
                name = await in_thread(_interface_for_gloo, node.rendezvous.master_addr, self.start.port, hosts)
                if name and node.settings.node == 0 and self.start.attempt == 1:
                    say(interface.CHOSEN.format(name))
                return {interface.VARIABLE: name} if name else {}
        return {}

    def _with_attempt(self, local: int, spec: RankSpec, extra: Mapping[str, str]) -> RankSpec:
        """Adds to a spec the variables that differ from attempt to attempt."""
        node, start = self._node, self.start
        env = {**spec.env, **extra, Env.ATTEMPT: str(start.attempt), Env.HEARTBEAT: str(node.heartbeats.path(local))}
        if start.check:
            env.pop(Env.ATTACH, None)  # The terminal is for the program, and is closed when its first user ends.
        if node.settings.master_addr:
            env |= {Env.MASTER_ADDR: node.rendezvous.master_addr, Env.MASTER_PORT: str(start.port)}
        seconds = start.past.mean_time_to_failure
        if seconds is not None:
            env[Env.MEAN_TIME_TO_FAILURE] = f"{max(1.0, seconds):.0f}"
        return replace(spec, env=env)

    def beats(self) -> tuple[BeatFields, ...]:
        """The last reports of the ranks, as they are sent. A rank that has reported nothing may be stopped, too."""
        transports, pids = (self.ranks.transports() if self.runs else {}), self.ranks.pids
        beats = []
        for local, (spec, beat) in enumerate(zip(self._specs, self._node.heartbeats.read(), strict=True)):
            stopped = stopped_state(pids[local], beat) if local in pids else None
            if beat is None and stopped is None:
                continue
            told = structs.replace(
                beat or Beat(spec.rank, self.start.attempt, STARTING),
                rank=spec.rank,
                attempt=self.start.attempt,
                transport=transports.get(local),
                slowed=self._slowed.get(local) if self.runs else None,
                stopped=stopped,
            )
            beats.append(told.to_dict())
        return tuple(beats)

    def message(self) -> Beats:
        """The message with the last reports, and with the ranks that are running."""
        return Beats(self.start.attempt, self.beats(), tuple(self._specs[local].rank for local in self.ranks.pids))

    async def note_slowed_gpus(self, once: Once) -> None:
        """Records and logs which GPUs are slowed down, because this may explain a straggler."""
        self._slowed = await self.ranks.slowed()
        for local, why in self._slowed.items():
            once.warn(f"rank {self._specs[local].rank}: {why}")

    async def examine(self, send: Callable[[Message], None]) -> None:
        """Examines what each rank of a stalled gang is doing, and sends the observations."""
        observations, _, _ = await asyncio.gather(
            self._observations(keep=True),
            self._examine_devices(send),
            self._ask_ras(),
        )
        # A rank that has ended meanwhile is reported as ended, no matter what it was doing before.
        ended = {self._specs[local].rank: end for local, end in self.ranks.ended.items()}
        running = (observation for observation in observations if observation.rank not in ended)
        send(Examined(self.start.attempt, (*running, *(observation_of(*item) for item in ended.items()))))

    async def look(self, send: Callable[[Message], None]) -> None:
        """Finds out what each rank is doing, and sends the observations."""
        send(Looked(self.start.attempt, await self._observations(keep=False)))

    async def _observations(self, *, keep: bool) -> tuple[Observation, ...]:
        """What each running rank is doing. If `keep`, this is also logged and written to files."""
        async with self._asking:
            pids = self.ranks.pids.items()
            return tuple(await asyncio.gather(*(self._examined(*rank, keep=keep) for rank in pids)))

    async def _examined(self, local: int, pid: int, *, keep: bool) -> Observation:
        """What a rank is doing.

        Empty if the examination fails, so that the observations of other ranks still count.
        """
        rank, beats = self._specs[local].rank, self._node.heartbeats.path(local)
        try:
            return await (collect(pid, rank, beats, self.start.attempt) if keep else observe(pid, rank, beats))
        except Exception as error:  # noqa: BLE001  (no error in the examination may end the supervisor)
            warn(f"cannot inspect rank {rank}: {type(error).__name__}: {error}")
            return Observation(rank)

    async def _examine_devices(self, send: Callable[[Message], None]) -> None:
        """Reports a rank that is stuck on a broken GPU, which then is the cause of the stall."""
        if (end := await self.ranks.broken_device()) is not None:
            send(Failed(self.start.attempt, end.cause, end=end))

    async def _ask_ras(self) -> None:
        """Records the report of NCCL's RAS, a service that covers all ranks, so that only node 0 requests it."""
        if self._node.settings.node == 0 and (address := self.ranks.ras_address):
            await collect_from_ras(address, self.start.attempt)


def _interface_for_gloo(master: str, port: int, hosts: Sequence[str]) -> str:
    own = "" if interface.name_leads_out() else address_towards(master, port)
    return interface.interface_towards(own or "", hosts)


def _with_step(end: End, beat: Beat | None) -> End:
    """Adds to the end of a failed rank the last step that the rank reported, unless the end already has a step.

    If steps are only counted, adds how many the rank had finished in this attempt, unless that is unknown.
    """
    if not end.cause or end.step is not None or beat is None or beat.step is None:
        return end
    if not beat.counted:
        return structs.replace(end, step=beat.step)
    before = 0 if beat.anew else None if beat.first_step is None else beat.first_step - 1
    return end if before is None else structs.replace(end, counted_steps=beat.step - before)
