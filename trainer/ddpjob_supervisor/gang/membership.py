"""A node's membership in the gang: it obeys the coordinator, which starts and ends attempts, until it may exit.

    idle --Start--> an attempt runs --all its ranks have ended--> idle
                     |   ^
                     +---+ Start of a later attempt: the ranks of the former attempt are ended first

After an attempt, the coordinator decides between another attempt and an exit, as long as there is a coordinator
(`exit_verdict`).
"""

import asyncio
import signal
import time
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

from ddpjob_rank.console import complain, counted, say
from ddpjob_rank.errors import PeerLostError
from ddpjob_rank.exit_codes import SIGNAL_BASE, ExitCode
from ddpjob_rank.failure.failure_report import report_path
from msgspec import structs

from ddpjob_supervisor.history.history import OFF, NodeHistory
from ddpjob_supervisor.node.ranks import StartError
from ddpjob_supervisor.watch.beat import BeatFields

from . import exit_verdict
from .exit_verdict import Membership, Verdict
from .judging import KILLED_SECONDS, is_well
from .link import Link, LinkLostError
from .messages import (
    Beats,
    Begin,
    Bring,
    Code,
    CodeRevision,
    End,
    Examine,
    Failed,
    FailedCode,
    Farewell,
    Finish,
    Finished,
    Hello,
    Idle,
    Incident,
    Leave,
    Leaving,
    Located,
    Look,
    Message,
    Past,
    Start,
    Stop,
    UnreadableError,
)
from .node_attempt import NodeAttempt, NodeSetup
from .once import Once
from .rendezvous import RELEASE
from .ring import Ring, rank_in_words

BEAT_SECONDS, BEAT_SECONDS_AT_MOST = 0.5, 2.0
"""Seconds between two reports of a node: the value for a small gang, and the maximum."""

BEATS_PER_SECOND = 2000
"""How many ranks of the whole gang report per second: in a large gang each node reports less often. 4000 reports took
10 % of a core on rank 0's node (bench/coordinator.py), whose ranks need all of its cores."""

ATTEMPT_BEGINS = "attempt {} begins"
"""The line by which `ddpjob logs` finds the beginning of each attempt in a log. It is a part of the contract."""

ATTEMPT_ENDED = "attempt {} has ended"
"""The line by which `ddpjob run --on` finds the end of its run in a log. It is a part of the contract."""

ALL_RANKS = "all ranks"

RANK_ENDED = "rank_ended"
"""The event in a node's history that one of its ranks has ended."""

CODE_REPLACED = "code_replaced"
"""The event in a node's history that its ranks run other code from this attempt on."""

CODE_FAILED = "code_failed"
"""The event in a node's history that new code failed before its first step, so that the former code runs again."""

DONE_SECONDS = 60.0
"""How long a node that is done looks for rank 0. A lost pod of rank 0 is usually replaced within this time, unless
the whole job is done."""

GPU_SECONDS = 30.0
"""Seconds between two checks whether GPUs are slowed down: temperatures change within minutes."""

LOCATING_SECONDS, LOCATING_LOOK_SECONDS = 10.0, 0.05
"""How long to wait for the topology domain, and how long between two reads, while the starter is not ready."""


class Follower:
    """Runs this node's ranks in each attempt, until this supervisor has an exit code."""

    def __init__(self, node: NodeSetup, history: NodeHistory = OFF) -> None:
        self.attempt = node.settings.attempt
        self.past = Past()
        """The history of former attempts, as the coordinator has reported it."""
        self._node = node
        self._history = history
        self._settings = node.settings
        self._current: NodeAttempt | None = None
        """The present attempt or, while this node is idle, the last one."""
        self._membership = Membership.FOLLOWING
        self.told_at: float | None = None
        """When a signal told this node to stop, by the monotonic clock; None if none has."""
        self._link: Link | None = None
        self._once = Once()
        self._heard = False
        """Whether a coordinator has heard this supervisor, and with it the incident of which the operator tells."""
        self._examining: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._awaited: tuple[int, asyncio.Future[bytes | None]] | None = None
        """The piece of code that the coordinator is asked for: its offset, and its bytes."""
        self._exit_code: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def hello(self, port: int) -> Hello:
        """The first message to the coordinator. `port` is the port on which this supervisor listens."""
        settings, domain = self._settings, read_domain(self._settings.domain_file)
        identity = (settings.uid, settings.node, settings.incarnation, self.attempt, port, RELEASE)
        incident = "" if self._heard else settings.incident
        mounted = CodeRevision(settings.code_revision or 0, self._node.code.mounted_digest)
        code = max(mounted, self.past.code, key=attrgetter("revision"))
        told = Hello(*identity, sent=time.time(), domain=domain, incident=incident)
        return structs.replace(told, revision=code.revision, code=code.digest)

    async def locate(self) -> None:
        """Waits for this node's topology domain, if ranks follow placement, until the starter is ready."""
        if read_domain(self._settings.domain_file) != "":
            return
        ready = asyncio.ensure_future(self._node.starter.ready())
        # An error is ignored here: starting the ranks raises it too.
        ready.add_done_callback(lambda task: task.cancelled() or task.exception())
        deadline = time.monotonic() + LOCATING_SECONDS
        while read_domain(self._settings.domain_file) == "" and not ready.done() and time.monotonic() < deadline:
            await asyncio.wait([ready], timeout=LOCATING_LOOK_SECONDS)

    async def follow(self, port: int, local: Link | None = None) -> int:
        """Takes part in the gang until the job is done or given up, and returns this supervisor's exit code.

        `port` is where this supervisor listens; `local` is the link to the coordinator if it is in this process.

        Raises:
            ConfigError: The coordinator does not accept this supervisor.
            PeerLostError: There is no operator, and the coordinator does not appear, or is gone.
            PreflightError: This node is not fit for training.
        """
        self._node.fit.add_done_callback(self._fail_with)
        tasks = [
            asyncio.create_task(coroutine)
            for coroutine in (self._listen(port, local), self._beat(), self._watch_gpus())
        ]
        waited: list[asyncio.Future[Any]] = [self._exit_code, *tasks]
        try:
            done, _ = await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            return await self._exit_code
        finally:
            for task in (self._node.fit, *tasks):
                task.cancel()
            self._stop()
            await self._ended(KILLED_SECONDS)
            if self._link is not None:
                await self._link.close()
            self._node.heartbeats.close()

    def request(self, number: signal.Signals) -> None:
        """Handles a signal that tells this node to stop: its ranks may save, then the supervisor exits."""
        self._history.stop(self.attempt, number.name)
        if self._membership is Membership.FOLLOWING:
            self._membership, self.told_at = Membership.LEAVING, time.monotonic()
        self._send(Leaving())
        if (attempt := self._running) is not None and self._node.fit.done():
            attempt.ranks.send_signal(number)
        elif attempt is None and (self._is_held or is_well(self._ends)):
            self._leave(Verdict(ExitCode.SAVED_AND_STOPPED))
        else:
            self._leave(Verdict(SIGNAL_BASE + number))

    @property
    def running(self) -> bool:
        """Whether ranks of this node are running."""
        return self._running is not None

    @property
    def told_to_stop(self) -> bool:
        """Whether a signal has told this node to stop."""
        return self._membership is Membership.LEAVING

    def beats(self) -> tuple[BeatFields, ...]:
        """The last reports of this node's ranks."""
        return () if self._current is None else self._current.beats()

    @property
    def _running(self) -> NodeAttempt | None:
        return self._current if self._current is not None and self._current.runs else None

    @property
    def _ends(self) -> Sequence[End]:
        """How the ranks of the last attempt have ended; empty if they still run, or if there was no attempt."""
        return () if self._current is None else self._current.ends or ()

    # Contact with the coordinator, and its loss.

    async def _listen(self, port: int, local: Link | None) -> None:
        """Obeys the coordinator. If the connection is lost, ends the ranks and looks for the coordinator again."""
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
            if self._membership is Membership.LEAVING:  # The ranks were told to stop, and may still save.
                await self._ended()
                # Has an effect only if all ranks are done. If not, `_report_ends` has already set the exit code.
                self._leave(Verdict(ExitCode.SAVED_AND_STOPPED))
                continue
            if self._settings.joining_seconds is not None:
                self._leave_without_coordinator()
            self._stop()
            await self._ended()

    def _leave_without_coordinator(self) -> None:
        """Exits because the coordinator has disappeared, and nobody replaces it without an operator.

        Raises:
            PeerLostError: The ranks of this node had not finished.
        """
        if not is_well(self._ends):
            raise PeerLostError("rank 0's supervisor is gone, and its ranks with it")
        self._leave(exit_verdict.of_ranks(self._ends))

    async def _reach(self, port: int) -> Link:
        """Connects to the coordinator. A node that is done gives up after DONE_SECONDS, and exits."""
        await self.locate()
        try:
            done = self._current is not None and self._current.done
            async with asyncio.timeout(DONE_SECONDS if done else None):
                link = await self._node.rendezvous.reach(self.hello(port))
        except TimeoutError:
            self._leave(Verdict(ExitCode.DONE))
            return await asyncio.Future()
        self._heard = True
        return link

    async def _beat(self) -> None:
        seconds = beat_seconds(self._settings.nodes * self._settings.processes)
        while True:
            await asyncio.sleep(seconds)
            self._send(Beats(self.attempt) if self._running is None else self._running.message())

    async def _watch_gpus(self) -> None:
        while True:
            await asyncio.sleep(GPU_SECONDS)
            if self._running is not None:
                await self._running.note_slowed_gpus(self._once)

    def _send(self, message: Message) -> None:
        if self._link is not None:
            self._link.send(message)

    def _handle(self, message: Message) -> None:
        """Carries out a message of the coordinator."""
        attempt = self._running
        match message:
            case Code(offset=offset, data=data):
                if self._awaited is not None and self._awaited[0] == offset and not self._awaited[1].done():
                    self._awaited[1].set_result(data)
            case Start(number) if number >= self.attempt:
                self._start(message)
            case Begin(number) if attempt is not None and number == self.attempt:
                attempt.may_begin.set()
            case Stop(number, also_told) if attempt is not None and number == self.attempt:
                if also_told or not attempt.ranks.told_to_stop:
                    attempt.ranks.stop()
            case Finish(number) if attempt is not None and number == self.attempt:
                attempt.ranks.send_signal(signal.SIGTERM)
            case Examine(number) | Look(number) if attempt is not None and number == self.attempt:
                self._observe(attempt, message)
            case Leave(incident):
                self._leave_with(incident)
            case Farewell():
                self._membership = Membership.DISMISSED
                if attempt is None:  # How the last program ended does not matter to a hold.
                    self._leave(Verdict(ExitCode.DONE) if self._is_held else exit_verdict.of_ranks(self._ends))
            case _:
                pass  # The message is a ping, or is about a former attempt.

    def _observe(self, attempt: NodeAttempt, message: Examine | Look) -> None:
        """Begins to find out what the ranks are doing."""
        if isinstance(message, Examine):
            task = self._examining = asyncio.create_task(attempt.examine(self._send))
        else:
            task = self._looking = asyncio.create_task(attempt.look(self._send))
        task.add_done_callback(self._fail_with)

    async def _fetch(self, digest: str) -> None:
        """Gets code from the coordinator, unless it is here.

        Raises:
            StartError: The coordinator does not have it, or it cannot be kept.
        """
        code = self._node.code
        if code.has(digest):
            return
        try:
            arriving = code.receive(digest)
            while piece := await self._piece(digest, arriving.size):
                arriving.add(piece)
            arriving.finish()
        except (ValueError, OSError) as error:
            raise StartError(f"cannot get the code from rank 0's node: {error}") from error

    async def _piece(self, digest: str, offset: int) -> bytes:
        """A piece of code. If the coordinator is lost before it answers, the ranks are not wanted any more.

        Raises:
            ValueError: The coordinator does not have the code.
        """
        self._awaited = offset, asyncio.get_running_loop().create_future()
        self._send(Bring(digest, offset))
        if (piece := await self._awaited[1]) is None:
            raise ValueError("rank 0's supervisor does not have it")
        return piece

    # The start and the end of attempts.

    def _start(self, start: Start) -> None:
        self._history.begin(start.attempt)
        if start.program is not None:
            self._history.hide(start.program.env)
        self._log_attempt(start)
        self._node.rendezvous.members = start.members
        former = self._running
        self._stop()  # The coordinator assumes that no rank runs, but two attempts must never overlap on a node.
        attempt = self._current = NodeAttempt(self._node, start, self._failed, self._fetch, self._send)
        self.attempt, self.past = start.attempt, start.past
        if not attempt.ring.is_plain:
            ranks = ", ".join(map(str, attempt.numbers))
            say(f"attempt {start.attempt}: node {self._settings.node} has rank {ranks}")
        attempt.task = asyncio.create_task(self._run(attempt, former))
        attempt.task.add_done_callback(self._fail_with)

    def _log_attempt(self, start: Start) -> None:
        """Logs on every node that its ranks start again, and the reason if it is known."""
        if start.attempt == 1 and start.program is None:
            return
        before, why = start.past.incidents[-1] if start.past.incidents else None, ""
        code, failed = start.past.code, start.past.failed
        if failed is not None and failed.incident.attempt == start.attempt - 1:
            why = f" in place: code {code.digest[:12]} again, because new code {failed.digest[:12]} {failed.story}"
            self._note_failed_code(failed)
        elif code.attempt == start.attempt:
            why = f" in place: new code {code.digest[:12]}, sent by {code.by}"
            self._note_code(code)
        elif before is not None and before.attempt == start.attempt - 1:
            self._record(before)
            step, counted_steps = before.end.step, before.end.counted_steps
            after = "" if counted_steps is None else f" after {counted(counted_steps, 'step')}"
            where = after if step is None else f" at step {step}"
            why = f" in place: {self._in_words(before)} failed{where}: {before.end.words}"
        say(f"{ATTEMPT_BEGINS.format(start.attempt)}{why}")

    def _note_code(self, code: CodeRevision) -> None:
        """Adds a planned change of the code to the history. One node does this for all."""
        if self._settings.leads:
            self._history.note(
                CODE_REPLACED, code.attempt, hurry=True, revision=code.revision, digest=code.digest, by=code.by
            )

    def _note_failed_code(self, failed: FailedCode) -> None:
        """Adds to the history that new code has failed. One node does this for all."""
        if self._settings.leads:
            document = failed.incident.to_document()
            self._history.note(
                CODE_FAILED,
                failed.incident.attempt,
                hurry=True,
                revision=failed.revision,
                digest=failed.digest,
                by=failed.by,
                story=failed.story,
                incident=document,
            )

    async def _run(self, attempt: NodeAttempt, former: NodeAttempt | None) -> None:
        ends = await attempt.run(former)
        if ends is not None and attempt is self._current:  # A replaced attempt has nothing to report.
            attempt.ends = ends
            self._report_ends(attempt, ends)

    def _failed(self, attempt: NodeAttempt, end: End) -> None:
        """Reports a failed rank, so that the coordinator ends all ranks.

        Without a coordinator, ends this node's ranks.
        """
        if self._membership is not Membership.DISMISSED and self._link is not None:
            self._send(Failed(attempt.start.attempt, end.cause, bool(end.waited)))
        elif not attempt.ranks.told_to_stop:
            attempt.ranks.stop()

    def _report_ends(self, attempt: NodeAttempt, ends: Sequence[End]) -> None:
        """Reports that all ranks of this node have ended, and exits unless the coordinator decides what follows."""
        start = attempt.start
        for end in ends:
            self._history.note(RANK_ENDED, start.attempt, end.step, hurry=True, **_as_values(end))
            if end.cause and end.exception is None and end.exit_code > SIGNAL_BASE:
                was = "was " if end.message.startswith("killed ") else "failed: "
                complain(f"rank {end.rank} {was}{end.message}")
        if last := attempt.beats():  # The last steps, and a checkpoint, may be newer than the last report.
            self._send(Beats(start.attempt, last))
        if start.order is not None and (domain := read_domain(self._settings.domain_file)) is not None:
            self._send(Located(domain))
        progressed = any(beat.get("step") is not None for beat in last)
        self._send(Finished(start.attempt) if attempt.done else Idle(start.attempt, tuple(ends), progressed))
        if start.program is not None:
            say(ATTEMPT_ENDED.format(start.attempt))
        connected = self._link is not None
        verdict = exit_verdict.once_ended(self._membership, ends, done=attempt.done, connected=connected)
        if verdict is not None:
            self._leave(verdict)

    def _stop(self) -> None:
        if self._running is not None:
            self._running.ranks.stop()

    async def _ended(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  (it raises nothing)
        """Waits until no rank runs."""
        if self._running is not None:
            await asyncio.wait([self._running.task], timeout=timeout)

    # The end of this supervisor.

    def _leave_with(self, incident: Incident) -> None:
        """Exits, so that the operator deals with the incident. Without an operator, logs the incident instead."""
        self._record(incident)
        if incident.node != self._settings.node and self._settings.joining_seconds is not None:
            who = ALL_RANKS if incident.is_of_all_ranks else f"node {incident.node}"
            complain(f"{who} failed: {incident.end.words}")
        rank = self._ring.first_rank(self._settings.node)
        self._leave(exit_verdict.of_incident(incident, self._settings.node, rank, self._in_words(incident)))

    def _record(self, incident: Incident) -> None:
        """Adds an incident to the history. One node does this for all."""
        if self._settings.leads:
            document = incident.to_document()
            self._history.note("incident", incident.attempt, incident.end.step, hurry=True, incident=document)

    def _leave(self, verdict: Verdict) -> None:
        verdict.report(
            self.attempt, None if self._ring.is_plain else self._settings.node, report_path(self._node.env)
        )
        if not self._exit_code.done():
            self._exit_code.set_result(verdict.code)

    @property
    def _is_held(self) -> bool:
        return self._settings.idle_seconds is not None

    @property
    def _ring(self) -> Ring:
        return self._node.ring() if self._current is None else self._current.ring

    def _in_words(self, incident: Incident) -> str:
        """The rank that failed first, as text; all ranks, if no rank stands out as the cause of a stall."""
        if incident.is_of_all_ranks:
            return ALL_RANKS
        return rank_in_words(incident.end.rank, incident.node, self._settings.processes)

    def _fail_with(self, task: asyncio.Task[None]) -> None:
        """Ends this supervisor with the error of a task: otherwise the other nodes would wait for it forever."""
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._exit_code.done():
            self._exit_code.set_exception(error)


def beat_seconds(processes: int) -> float:
    """Seconds between two reports of a node, in a gang of this many processes."""
    return min(max(BEAT_SECONDS, processes / BEATS_PER_SECOND), BEAT_SECONDS_AT_MOST)


def _as_values(end: End) -> dict[str, Any]:
    """How a rank has ended, as values of an event."""
    return {
        "rank": end.rank,
        "exitCode": end.exit_code,
        "cause": end.cause,
        "exception": end.exception,
        "message": end.message,
    }


def read_domain(file: Path | None) -> str | None:
    """The topology domain of this node. Empty if it is not known yet; None if ranks do not follow placement."""
    if file is None:
        return None
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""
