"""Collects the content of the status page: the gang's state, complete only in its coordinator, and the beats."""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ddpjob_rank.console import warn
from ddpjob_rank.exit_codes import ExitCode

from ddpjob_supervisor.gang.coordinator_service import CoordinatorService
from ddpjob_supervisor.gang.membership import Follower
from ddpjob_supervisor.gang.rendezvous import Rendezvous
from ddpjob_supervisor.gang.settings import Settings
from ddpjob_supervisor.gang.states import Phase, RunEnd
from ddpjob_supervisor.node.starters import Starter
from ddpjob_supervisor.watch.beat import BeatDocument
from ddpjob_supervisor.watch.checkpoint_requests import REQUESTED, CheckpointRequests
from ddpjob_supervisor.watch.procfs import proportional_set_size
from ddpjob_supervisor.watch.threads import in_thread

from .curve import Curve
from .document import PROCESSES, Document, Gang, Memory, document, fingerprint, in_groups
from .kept_points import KeptPoints
from .progress import GangProgress
from .starting_over import Beginnings, Interval
from .stragglers import Comparison

MEMORY_SECONDS = 30.0

REQUEST_SECONDS, ANSWER_SECONDS = 0.5, 0.1
"""Seconds between two looks for a request for a checkpoint, and for its outcome. A look takes some microseconds, and
works on every file system and operating system, which a watch on the file does not."""


class Status:
    """Follows one supervisor and, if it is the coordinator, its gang."""

    def __init__(
        self,
        settings: Settings,
        follower: Follower,
        service: CoordinatorService | None,
        rendezvous: Rendezvous,
        starter: Starter,
    ) -> None:
        self._settings = settings
        self._follower = follower
        self._service = service
        self._rendezvous = rendezvous
        self._starter = starter
        self._progress = GangProgress()
        self._comparison = Comparison()
        self._memory = Memory()
        self._beginnings = Beginnings(Interval(settings.checkpoint_every_steps, settings.checkpoint_every_seconds))
        self._requests: CheckpointRequests | None = None
        self.curve = Curve(lambda _: None)
        """The curve in which progress is recorded."""
        self.points = KeptPoints()
        """Its last points, for who looks at the gang now."""

    def add(self, attempt: int, beats: Sequence[BeatDocument]) -> None:
        """Takes beats that have just arrived, and logs a warning if an attempt has started over."""
        now = time.monotonic()
        self._progress.add(attempt, beats, now)
        self._comparison.add(attempt, beats, now)
        if any(beat.get("step") is not None for beat in beats):
            self._note(attempt)

    def finish(self, *, over: bool) -> None:
        """Records the last progress when the gang ends. `over` means that the program is done, or the hold."""
        if self._service is not None:
            over = over and self._settings.idle_seconds is None  # The programs of a hold have ended before.
            self._progress.look()
            self._note(self._service.coordinator.attempt, over=over)
            if over:
                self.curve.finish(time.time())

    def finish_run(self, end: RunEnd) -> None:
        """Records the last progress of a program in a held gang, and whether it is done.

        Then forgets it: until the next program has finished a step, the gang has no progress.
        """
        over = end.exit_code == ExitCode.DONE
        self._progress.look()
        if self._note(end.attempt, over=over) and over:
            self.curve.finish(time.time())
        self._progress.forget()
        self._comparison = Comparison()

    async def watch_memory(self) -> None:
        """Measures memory every MEMORY_SECONDS until canceled.

        Uses a thread, because the kernel takes long to answer.
        """
        while True:
            self._memory = await in_thread(self._measured)
            await asyncio.sleep(MEMORY_SECONDS)

    async def watch_requests(self, file: Path, heartbeat: Path, changed: Callable[[], None]) -> None:
        """Passes requests for a checkpoint on to rank 0 until canceled; for its arguments see CheckpointRequests.

        `changed` is called when there is a request, and when it is answered.
        """
        follower = self._follower
        self._requests = CheckpointRequests(file, heartbeat)
        while True:
            if self._requests.look(follower.attempt, running=follower.running, beats=follower.beats):
                for beat in follower.beats():  # The beat that answers the request will arrive only later.
                    self._progress.note_checkpoint(beat)
                changed()
            await asyncio.sleep(ANSWER_SECONDS if self._requests.last.state == REQUESTED else REQUEST_SECONDS)

    def document(self) -> Document:
        """The present document of GET /status."""
        return document(self._of_this_node() if self._service is None else self._of_all(self._service))

    async def stacks(self) -> Document:
        """The document of GET /stacks, which only the coordinator's supervisor has."""
        assert self._service is not None, "the caller has seen to it"
        coordinator = self._service.coordinator
        head = {"job": fingerprint(self._settings.uid), "attempt": coordinator.attempt, "phase": coordinator.phase}
        observations = await self._service.look()
        world = self._settings.nodes * self._settings.processes if coordinator.phase is Phase.RUNNING else 0
        return head | {"ranks": in_groups(observations, world)}

    def _of_all(self, service: CoordinatorService) -> Gang:
        coordinator, settings = service.coordinator, self._settings
        current = coordinator.current
        return Gang(
            uid=settings.uid,
            nodes=settings.nodes,
            procs_per_node=settings.processes,
            order=() if current.ring.is_plain else current.ring.order,
            # Before the first attempt, this is the number that the operator expects.
            attempt=max(coordinator.attempt, settings.attempt),
            phase=coordinator.phase,
            since=coordinator.state.since,
            first_step_seen=current.progressed,
            missing=coordinator.missing,
            in_place_restarts=coordinator.past.restarts,
            incidents=coordinator.past.incidents,
            beats=list(service.beats().values()) if settings.nodes * settings.processes <= PROCESSES else (),
            progress=self._progress.progress(time.monotonic(), time.time(), over=coordinator.succeeded),
            slowest_node=self._comparison.slowest,
            stall_limit=service.stall_limit,
            last_point=self.points.last,
            checkpoint=self._progress.checkpoint,
            requested=None if self._requests is None else self._requests.last,
            stall=current.stall,
            delay=current.delay if coordinator.phase is Phase.RUNNING else None,
            stopped=current.stopped if coordinator.phase is Phase.RUNNING else "",
            hold=service.hold_message,
            code=coordinator.past.code,
            has_untried_code=coordinator.has_untried_code,
            failed_code=coordinator.past.failed,
            stragglers=self._comparison.stragglers,
            memory=self._memory,
            now=time.time(),
        )

    def _of_this_node(self) -> Gang:
        settings, follower = self._settings, self._follower
        where = self._rendezvous.where()
        return Gang(
            uid=settings.uid,
            nodes=settings.nodes,
            procs_per_node=settings.processes,
            attempt=follower.attempt,
            phase=Phase.RUNNING if follower.running else Phase.GATHERING,
            beats=[{**beat, "node": settings.node} for beat in follower.beats()],
            memory=self._memory,
            coordinator="" if where is None else where.address,
            now=time.time(),
        )

    def _note(self, attempt: int, *, over: bool = False) -> bool:
        """Records the progress of an attempt; returns whether it has finished a step."""
        progress = self._progress.progress(time.monotonic(), time.time(), over=over)
        if progress is None or progress.attempt != attempt:
            return False
        self.curve.note(attempt, progress, time.time())
        saved = self._progress.checkpoint
        incidents = () if self._service is None else self._service.coordinator.past.incidents
        failed_at = incidents[-1].end.step if incidents else None
        warning = self._beginnings.note(progress, None if saved is None else saved["step"], failed_at)
        # In a job the operator reports this, because it also has the history of former pods.
        if warning and not self._settings.in_a_job:
            warn(warning)
        return True

    def _measured(self) -> Memory:
        zygote = self._starter.zygote
        return Memory(None if zygote is None else proportional_set_size(zygote), proportional_set_size(os.getpid()))
