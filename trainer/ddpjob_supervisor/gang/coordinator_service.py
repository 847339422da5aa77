"""The coordinator in rank 0's supervisor: passes events to `Coordinator`, and sends the messages in its outbox."""

import asyncio
import contextlib
import math
import time
from typing import TYPE_CHECKING, Any

from ddpjob_rank.console import warn
from ddpjob_rank.errors import TrainerError
from ddpjob_rank.limits import Learned
from ddpjob_rank.machine.listening import free_port
from ddpjob_rank.moments import rfc3339
from ddpjob_rank.reporting.teller import STARTING
from ddpjob_rank.running.program import program_of
from msgspec.structs import replace

from ddpjob_supervisor.history.history import seen_by_operator
from ddpjob_supervisor.node.sent_code import SentCode
from ddpjob_supervisor.watch import learned_limits
from ddpjob_supervisor.watch.blame import Observation, blame, whereabouts
from ddpjob_supervisor.watch.stalls import Stalls
from ddpjob_supervisor.watch.stopped import stopped_ranks

from .addresses import address_of
from .coordinator import Coordinator
from .link import PING_SECONDS, SILENT_SECONDS, Link, LinkLostError, send_all
from .messages import (
    NAMED,
    Announce,
    Beats,
    Bring,
    Code,
    CodeRevision,
    HeldProgram,
    Hello,
    History,
    Message,
    Past,
    Ping,
    Refused,
    Start,
    UnreadableError,
    Welcome,
)
from .once import Once, shown
from .rendezvous import RELEASE, announce_to
from .settings import Settings
from .states import Delay, Done, Gathering, Holding, Phase, Preflight, RunEnd, Running, Stalled, Stopping

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ddpjob_rank.recording.event import Event

LOOK_SECONDS = 0.5
"""Seconds between two checks of the gang."""

STALL_LOOK_SECONDS = 1.0
"""Seconds between two checks for a stall, each of which goes through all ranks of the gang."""

LATE_SECONDS = 300.0
"""When the log first reports that the first step is late. It does so again after twice this time, four times, …."""

ANSWERING_SECONDS = 5.0
"""How long all ranks may take to report what they are doing. Usually it is less than a second."""

PATIENT_SECONDS = 5.0
"""How long to wait for nodes that people start by hand before the wait is logged."""

AGAIN_SECONDS = 2.0
"""Seconds until this supervisor announces itself again to supervisors that did not answer: they were busy or
unreachable."""

ENDING = frozenset({Phase.RUNNING, Phase.STOPPING})
"""Phases in which it is not yet decided why the attempt ended, although this node's ranks may have ended."""


class NotReadyError(TrainerError):
    """The gang cannot run a program, or other code, now."""

    def __init__(self, message: str, *, later: bool) -> None:
        """`later` says whether the gang is still gathering, so that it can run one soon."""
        super().__init__(message)
        self.later = later


class CoordinatorService:
    """Serves the members of the gang."""

    def __init__(self, settings: Settings, start: str = "", code: SentCode | None = None) -> None:
        """`start` identifies what the time of the first step depends on, as in `learned_limits.kind_of_start`.

        `code` is where the code is from which members get what they lack.
        """
        self.code = SentCode() if code is None else code
        self._ahead = time.time() - time.monotonic()
        self.coordinator = Coordinator(
            settings.nodes,
            settings.limits,
            self._now(),
            processes=settings.processes,
            check_first=settings.preflight == "Full",
            joining_seconds=settings.joining_seconds,
            idle_seconds=settings.idle_seconds,
            code=CodeRevision(settings.code_revision or 0, self.code.mounted_digest),
        )
        self._settings = settings
        self.on_beats: Callable[[int, Sequence[Mapping[str, Any]]], None] = lambda *_: None
        """Called with an attempt's number and the beats that have just arrived for it."""
        self.on_incident: Callable[[Event], None] = lambda _: None
        """Called with an incident that the operator has seen, as a pod that it has made since then tells it."""
        self.on_run: Callable[[int, HeldProgram], None] = lambda *_: None
        """Called with the attempt of each program that begins in a held gang."""
        self.on_run_end: Callable[[RunEnd], None] = lambda _: None
        """Called with the end of each program of a held gang."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when something may have changed that readers of the status page should see immediately."""
        self._links: dict[int, Link] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._listening_on = 0
        self._silent: Sequence[str] = ()
        """Addresses of supervisors that have not answered the Announce yet."""
        self._announcing: asyncio.Task[None] | None = None
        self._once = Once()
        self._moved = asyncio.Event()
        self._ports: set[int] = set()
        self._port_of: dict[tuple[int, bool], int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._start = start
        self._stalls = Stalls(settings.stall_timeout, None, settings.first_step_timeout)
        self._kept = self._stalls.learned
        self._outcome: RunEnd | None = None
        """The last outcome of which `on_run_end` was told."""
        self._stepped = 0
        """The last attempt that has finished a step."""
        self._ended: asyncio.Future[RunEnd] | None = None
        """How the present program of a held gang has ended, once it has."""
        self._asking: asyncio.Task[dict[int, Observation]] | None = None
        """The task that asks all ranks what they are doing."""
        self._telling: asyncio.Task[None] | None = None
        """The task that finds out what ranks are doing while their first step is late."""
        self._keeping: asyncio.Task[None] | None = None
        """The task that saves the limits learned from stalls and from first steps."""

    async def inherit(self, listening_on: int) -> None:
        """Requests the gang's history from the other supervisors, if this pod replaces a former one.

        `listening_on` is this supervisor's control port.
        """
        # Do this even if no peer answers now: peers that connect later bring their history.
        if self._settings.peers[1:]:
            self.coordinator.remember(self._settings.attempt - 1, Past())
        self._listening_on, self._silent = listening_on, self._settings.peers[1:]
        await self._announce()

    async def _announce(self) -> None:
        """Sends rank 0's address to each supervisor that has not answered, and so may have only the old address."""
        announce = Announce(self._settings.uid, self._settings.incarnation, f":{self._listening_on}")
        asked, self._silent = self._silent, ()
        answers = await asyncio.gather(*(announce_to(address, announce, self._settings) for address in asked))
        for answer in answers:
            if isinstance(answer, History) and isinstance(self.coordinator.state, Gathering):
                self.coordinator.remember(answer.attempt, answer.past)
                self._ports.add(self._settings.master_port)
        self._silent = tuple(address for address, answer in zip(asked, answers, strict=True) if answer is None)

    async def serve(self, link: Link, hello: Hello) -> None:
        """Accepts a member, and handles its messages until it leaves.

        Raises:
            UnreadableError: The member has sent an invalid message, and now counts as gone.
        """
        refusal = self._refusal(hello)
        if refusal is not None:
            link.send(refusal)
            self._once.warn(f"a supervisor that calls itself node {hello.node} was refused: {refusal.why}")
            return
        node = hello.node
        self._take_in(link, hello)
        try:
            while True:
                message = await link.receive()
                if self._links.get(node) is not link:
                    return
                if isinstance(message, Bring):
                    link.send(Code(message.digest, message.offset, self.code.piece(message.digest, message.offset)))
                    continue
                self.coordinator.said(node, message, self._now())
                if isinstance(message, Beats):
                    self._pass_on(node, message.attempt)
                else:
                    self._act()
        except LinkLostError:
            self._miss(node, link)
        except UnreadableError:
            self._miss(node, link)
            raise

    def _take_in(self, link: Link, hello: Hello) -> None:
        """Adds a member.

        Does not `await`: nothing may be sent on the link before the coordinator knows the member.
        """
        node, former = hello.node, self._links.get(hello.node)
        if former is not None:
            closing = asyncio.create_task(former.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        self._links[node] = link
        link.send(Welcome(RELEASE, time.time(), self._settings.incarnation, at=link.here))
        if (incident := seen_by_operator(hello.incident)) is not None:
            self.on_incident(incident)
        self.coordinator.joined(node, hello, address_of(link.peer_host, hello.port), self._now())
        self._act()

    def _miss(self, node: int, link: Link) -> None:
        if self._links.get(node) is link:
            del self._links[node]
            self.coordinator.left(node, self._now())
            self._act()

    def _pass_on(self, node: int, attempt: int) -> None:
        if attempt != self.coordinator.attempt:
            return
        self.on_beats(attempt, self.coordinator.members[node].beats)
        if self.coordinator.current.progressed and attempt > self._stepped and not self._settings.attached:
            self._stepped = attempt
            self._stalls.look(time.monotonic(), self.beats())  # The attempt may end before the next regular check.
            self._keep(self._stalls.learned)

    def _refusal(self, hello: Hello) -> Refused | None:
        if self.coordinator.is_outdated(hello):
            return Refused(f"a newer pod of node {hello.node} has joined before", for_good=False)
        if not 0 <= hello.node < self._settings.nodes:
            return Refused(f"there is no node {hello.node} among {self._settings.nodes} nodes", for_good=True)
        if self._settings.joining_seconds is not None and hello.node in self._links:
            return Refused(f"node {hello.node} has already joined: each node needs a different number", for_good=True)
        return None

    # A held gang.

    def check_holding(self) -> None:
        """Checks that a program can be run now.

        Raises:
            NotReadyError: Another program runs, or the gang is not complete, or not held.
        """
        coordinator = self.coordinator
        if coordinator.idle_seconds is None:
            raise NotReadyError("it is not held: it has a program of its own", later=False)
        match coordinator.state:
            case Holding():
                coordinator.wanted(self._now())  # The program's code may still have to arrive.
                return
            case Gathering() if coordinator.missing:
                missing = ", ".join(map(str, coordinator.missing[:NAMED]))
                raise self._not_ready(f"waiting for the supervisor of node {missing}")
            case Running() | Stalled() | Stopping() if coordinator.program is not None:
                raise NotReadyError(f"{_named(coordinator.program)} runs here", later=False)
            case Gathering() | Preflight() | Stopping():  # The ranks that are being ended have tested the machines.
                raise self._not_ready("the nodes are getting ready")
        raise NotReadyError("the hold is over", later=False)

    def _not_ready(self, why: str) -> NotReadyError:
        self.coordinator.wanted(self._now())
        return NotReadyError(why, later=True)

    def run(self, program: HeldProgram) -> tuple[int, asyncio.Future[RunEnd]]:
        """Runs a program, whose code is here, on all nodes; returns its attempt, and how it will have ended.

        Raises:
            NotReadyError: As in `check_holding`.
        """
        self.check_holding()
        self._forget_limits()
        self.coordinator.run(program, self._now())
        self.on_run(self.coordinator.attempt, program)
        # Who waits for the end learns it even if the next program begins before that task's turn.
        self._ended = asyncio.get_running_loop().create_future()
        attempt, ended = self.coordinator.attempt, self._ended
        self._act()
        return attempt, ended

    def _forget_limits(self) -> None:
        """Forgets what was learned from another program: it does not hold for the next one."""
        self._stalls = Stalls(self._settings.stall_timeout, None, self._settings.first_step_timeout)
        self._kept = self._stalls.learned

    # New code in a running job.

    def check_replaceable(self, digest: str) -> None:
        """Checks that the code of the ranks can be replaced now, by code with this digest.

        Raises:
            NotReadyError: No ranks run, their code did not come with the job, or this code has failed before.
        """
        if self.coordinator.idle_seconds is not None:
            raise NotReadyError("it is held: run other code with ddpjob run --on", later=False)
        if not self.code.mounted_digest:
            raise NotReadyError(
                "its pods do not have the archive of its code, which was not sent with ddpjob submit, or by an older"
                " release; replace it without --in-place",
                later=False,
            )
        if (failed := self.coordinator.past.failed) is not None and failed.digest == digest:
            raise NotReadyError(f"this code {failed.story}; change it, and try again", later=False)
        match self.coordinator.state:
            case Running() | Stalled() if self.coordinator.someone_is_done:
                raise NotReadyError("some of its nodes have finished, and would not run the new code", later=False)
            case Running() | Stalled():
                return
            case Done():
                raise NotReadyError("the gang is about to end", later=False)
        raise NotReadyError("its ranks do not run yet", later=True)

    def replace_code(self, code: CodeRevision) -> int:
        """Lets all nodes run other code, which is here; returns the number of the attempt that runs it.

        Raises:
            NotReadyError: As in `check_replaceable`.
        """
        known = self.coordinator.past.code
        if known.digest != code.digest:
            if code.revision <= known.revision:
                raise NotReadyError(f"its ranks run revision {known.revision} of the code already", later=False)
            self.check_replaceable(code.digest)
            self._forget_limits()
            self.coordinator.replace_code(code, self._now())
            self._act()
        elif code.revision > known.revision:
            self.coordinator.renumber(code.revision)
        return self.coordinator.past.code.attempt or self.coordinator.attempt

    def fate_of(self, digest: str) -> str | None:
        """How new code has gone on, in a clause: empty if it stays; None if that is not known yet.

        The code stays once it has finished a step.
        """
        past = self.coordinator.past
        if past.failed is not None and past.failed.digest == digest:
            return past.failed.story
        return None if past.code.digest == digest and past.former is not None else ""

    # Programs of a held gang.

    def interrupt(self, attempt: int, *, gone: bool) -> None:
        """Ends the program of an attempt; does nothing if it has ended. `gone`: the command that runs it is gone."""
        self.coordinator.interrupt(attempt, self._now(), gone=gone)
        self._act()

    def finish_run(self, attempt: int) -> None:
        """Lets the ranks of an attempt save and end, for which they have `grace`. Does nothing if it has ended."""
        self.coordinator.finish_run(attempt)
        self._act()

    @property
    def grace(self) -> float:
        """How many seconds ranks have to end after they are told to stop."""
        return self._settings.grace

    @property
    def hold_message(self) -> str:
        """What a held gang does, in a clause; empty if the gang is not held."""
        coordinator = self.coordinator
        if coordinator.idle_seconds is None:
            return ""
        program, outcome, until = coordinator.program, coordinator.outcome, coordinator.idle_until
        name = "" if program is None else _named(program)
        if name and outcome is None:
            return f"held: packages are installed for {name}" if coordinator.installs else f"held: {name} runs"
        # The pod was made for a later attempt than the first, so its predecessor may have run programs.
        none = "since rank 0's pod was replaced" if self._settings.attempt > 1 else "yet"
        ended = f"{name} has ended" if name else f"no program has run {none}"
        how = f": {outcome.message}" if outcome is not None and outcome.message else ""
        ends = "" if until is None else f"; the hold ends at {rfc3339(until, 'seconds')} unless a program is run"
        return f"held: {ended}{how}{ends}"

    async def finish(self) -> None:
        """Waits until the coordinator has decided why the attempt ended, because the others need its instructions."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SILENT_SECONDS):
                while self.coordinator.phase in ENDING:
                    self._moved.clear()
                    await self._moved.wait()

    async def part(self, seconds: float) -> None:
        """Waits, at most so many seconds, until all nodes with ranks were told to stop.

        The first node may be told a moment before the others. If its supervisor, which coordinates them, were gone by
        then, they would kill their ranks, which could not save.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.coordinator.runs_untold:
                    self._moved.clear()
                    await self._moved.wait()

    async def close(self) -> None:
        """Closes all connections after everything has been sent."""
        if self._announcing is not None:
            self._announcing.cancel()
        for task in filter(None, (self._telling, self._asking)):
            task.cancel()
        if self._keeping is not None:
            await self._keeping
        await asyncio.gather(*self._closing, *(link.close() for link in self._links.values()))

    async def look_after(self) -> None:
        """Pings the members and checks the gang for stalls and missing nodes, until it is canceled."""
        self._kept = await learned_limits.recall(self._settings.uid, self._start)
        self._stalls = Stalls(self._settings.stall_timeout, self._kept, self._settings.first_step_timeout)
        pinged = announced = looked = 0.0
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now = time.monotonic()
            if now - pinged >= PING_SECONDS:
                pinged = now
                send_all(self._links.values(), Ping())
            if now - announced >= AGAIN_SECONDS:
                announced = now
                self._announce_again()
            if now - looked >= STALL_LOOK_SECONDS:
                looked = now
                self._look_for_stalls(now)
            self._look_for_nodes()
            self.on_change()  # This covers changes by beats, such as stragglers: one call per beat would be too many.

    def _announce_again(self) -> None:
        """Announces rank 0 again to supervisors that have not answered.

        They still use the address of the former pod.
        """
        idle = self._announcing is None or self._announcing.done()
        if self._silent and idle and isinstance(self.coordinator.state, Gathering):
            self._announcing = asyncio.create_task(self._announce())

    def _look_for_stalls(self, now: float) -> None:
        coordinator = self.coordinator
        if not isinstance(coordinator.state, Running):
            return
        members, beats = coordinator.members.values(), self.beats()
        self._note_stopped(stopped_ranks(beats, coordinator.current.ring.in_words))
        if self._settings.attached:
            return
        silent = {"attempt": coordinator.attempt, "activity": STARTING}  # For ranks without a report.
        running = {rank: silent for member in members for rank in member.running}
        stalled = self._stalls.look(now, running | beats)
        if stalled is not None:
            warn(f"no rank has made progress for {stalled:.0f} s: checking what the ranks are doing")
            coordinator.found_stalled(self._now() - stalled, self._now())
            self._act()
        elif self._is_late:
            self._telling = asyncio.create_task(self._tell_where(self._stalls.waited or 0.0))
        self._keep(self._stalls.learned)

    def _note_stopped(self, message: str) -> None:
        """Records which ranks are stopped, and logs every change."""
        current = self.coordinator.current
        if message and message != current.stopped:
            warn(message)
        current.stopped = message

    @property
    def _is_late(self) -> bool:
        """Whether to log (again) that the first step is late. The interval between log lines doubles each time."""
        waited, known = self._stalls.waited, self.coordinator.current.delay
        again = LATE_SECONDS if known is None else 2 * known.seconds
        return waited is not None and waited >= again and (self._telling is None or self._telling.done())

    async def _tell_where(self, waited: float) -> None:
        """Records and logs what the ranks are doing, `waited` seconds after the attempt began."""
        current = self.coordinator.current
        where = whereabouts(await self.look(), self._settings.nodes * self._settings.processes, current.ring.in_words)
        if current is self.coordinator.current and not current.progressed:
            seconds = LATE_SECONDS * 2 ** math.floor(math.log2(waited / LATE_SECONDS))
            current.delay = Delay(self._now() - waited, seconds, f"no step seen for {seconds / 60:.0f} min; {where}")
            warn(current.delay.message)
            self.on_change()

    async def look(self) -> dict[int, Observation]:
        """What each rank is doing now, by rank. Leaves out ranks that do not run or do not answer."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
        return await asyncio.shield(self._asking)

    async def _ask(self) -> dict[int, Observation]:
        current = self.coordinator.current
        self.coordinator.look()
        self._act()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWERING_SECONDS):
                while not self.coordinator.looked:
                    self._moved.clear()
                    await self._moved.wait()
        return {observation.rank: observation for node in current.looks.values() for observation in node}

    def _keep(self, learned: Learned) -> None:
        """Saves what was learned, but only after a stall or a longer first step, because pauses change too often."""
        held = self.coordinator.idle_seconds is not None  # Then programs differ from attempt to attempt.
        if not held and (learned.stalls, learned.first_step) != (self._kept.stalls, self._kept.first_step):
            self._kept = learned
            self._keeping = asyncio.create_task(learned_limits.keep(learned, self._settings.uid, self._start))

    def _look_for_nodes(self) -> None:
        """Logs which nodes are missing, for people who start them by hand."""
        coordinator = self.coordinator
        waits = isinstance(coordinator.state, Gathering) and self._now() > coordinator.state.since + PATIENT_SECONDS
        if waits and self._settings.joining_seconds is not None and coordinator.missing:
            missing = ", ".join(map(str, coordinator.missing))
            self._once.warn(f"waiting for node {missing} of {self._settings.nodes}")

    @property
    def stall_limit(self) -> float | None:
        """How many seconds the gang may now go without finishing a step."""
        return self._stalls.limit

    def beats(self) -> dict[int, dict[str, Any]]:
        """The last report of each process of the gang, by rank."""
        return {beat["rank"]: beat for member in self.coordinator.members.values() for beat in member.beats}

    def _act(self) -> None:
        """Sends the coordinator's messages, and schedules its next tick."""
        coordinator = self.coordinator
        if coordinator.examined:
            self._blame()
        for nodes, message in coordinator.drained():
            send_all([self._links[node] for node in nodes if node in self._links], self._completed(message))
        if coordinator.outcome is not self._outcome:
            self._outcome = coordinator.outcome
            if self._outcome is not None:
                self.on_run_end(self._outcome)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        moment = coordinator.next_moment()
        if moment is not None:
            self._timer = asyncio.get_running_loop().call_later(max(0.0, moment - self._now()), self._tick)
        if coordinator.outcome is not None and self._ended is not None and not self._ended.done():
            self._ended.set_result(coordinator.outcome)
        self._moved.set()
        self.on_change()

    def _tick(self) -> None:
        if isinstance(self.coordinator.state, Stalled):
            self._blame()
        self.coordinator.tick(self._now())
        self._act()

    def _blame(self) -> None:
        """Ends a stalled attempt, and logs which rank stalled it."""
        observations, named = self.coordinator.observations(), self.coordinator.current.ring.in_words
        rank, message = blame(observations, self._settings.nodes * self._settings.processes, named)
        warn(f"stalled: {message}")
        # Counted steps may start from 1 in each attempt. If they were taken for step numbers, this would look like a
        # crash loop.
        seen = [observation.step for observation in observations.values() if not observation.counted]
        steps = [step for step in seen if step is not None]
        self.coordinator.blamed(rank, message, min(steps, default=None), self._now())

    def _completed(self, message: Message) -> Message:
        if not isinstance(message, Start) or message.port:
            return message
        key = (message.attempt, message.check)
        if key not in self._port_of:
            self._port_of = {key: self._port()}
        return replace(message, port=self._port_of[key])

    def _now(self) -> float:
        """Seconds since the epoch, from a clock that neither goes back nor jumps."""
        return time.monotonic() + self._ahead

    def _port(self) -> int:
        """Returns the port of an attempt's store: MASTER_PORT for the first attempt, then a new port each time."""
        port = self._settings.master_port
        while not port or port in self._ports:
            port = free_port(self._settings.listen)
        self._ports.add(port)
        return port


def _named(program: HeldProgram) -> str:
    """A program, who runs it, and which code it is. Its arguments are left out, because they may hold secrets."""
    name = program_of(program.words).name
    return f"{shown(name)} (code {program.code[:12]}, run by {program.by})"
