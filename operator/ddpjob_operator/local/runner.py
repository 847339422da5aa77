"""Runs a job on this machine, from its present state to its end, by carrying out the engine's decisions."""

import queue
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ddpjob_operator.api import Backend, BadInputError, DDPJob, DDPJobStatus, PodSecurity, State
from ddpjob_operator.api.words import enumerated
from ddpjob_operator.engine import (
    SECRET,
    SERVICE,
    Action,
    Asked,
    Create,
    CreatePod,
    Decision,
    DeletePod,
    Event,
    Pod,
    RequestCheckpoint,
    Settings,
    Snapshot,
    StopPod,
    decide,
    service_name,
)

from .files import write_json
from .local_spec import spec_for_this_machine, spec_while_attached
from .machine import Port, free_port, share_of_gpus, threads_per_process
from .process_spec import Machine, Ports, translate
from .processes import Pods, RankTerminal
from .run_directory import RunDirectory
from .status_listener import StatusListener

ASIDE = "Aside"
"""The reason of an event that few users need. Such an event is printed in a faint colour."""
RETRY = timedelta(seconds=1)
THIS_MACHINE = "this-machine"
"""Placeholder for the image of a job that names none. Processes use the software of this machine instead."""
RESYNC_SECONDS = 30.0
"""The longest time between two rounds if no change is reported."""


def check_runs_here(run: RunDirectory, job: DDPJob) -> None:
    """Checks whether this machine can run the job, before any file of the run is created.

    Raises:
        BadInputError: the job needs something that only a cluster has, a directory that it needs cannot be created,
            or no port can be locked.
    """
    nowhere = Machine(Path.cwd(), Ports(master=0, status=0, control=0), threads=1)
    for action in decide(_seen(job)).actions:
        if isinstance(action, CreatePod):
            process = translate(action.build(), run, run.pods, nowhere)
            for needed in process.needed:
                if not needed.is_relative_to(run.root):
                    _make(needed)
    Port(free_port())  # If no port can be locked, this fails now rather than after the run has started.


def _make(directory: Path) -> None:
    """Creates a directory outside the run directory. An error ends the command, because the job is not running yet.

    (While a job is running, the runner retries instead, because the file system may recover.)

    Raises:
        BadInputError: the directory cannot be created.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInputError(
            f"cannot make the directory {directory}, which the job's volumes need: {error.strerror}"
        ) from None


def _seen(
    job: DDPJob,
    pods: tuple[Pod, ...] = (),
    services: tuple[str, ...] = (),
    *,
    request: str = "",
    attached: bool = False,
) -> Snapshot:
    """The engine's snapshot of a job on this machine.

    `request` is the last request for a checkpoint, `attached` tells whether a rank has a terminal.

    The snapshot's settings turn off pod security and NetworkPolicies, because processes run as the user, in the
    user's home and behind the machine's own firewall.
    """
    spec = spec_for_this_machine(job.spec)
    job = job.model_copy(update={"spec": spec_while_attached(spec) if attached else spec})
    settings = Settings(
        pod_security=PodSecurity.NONE,
        trainer_image=THIS_MACHINE,
        host="machine",
        noun="node",
        no_restarts="nothing is restarted with --attach" if attached else "",
    )
    owned = {SERVICE: services}
    return Snapshot(datetime.now(UTC), job, pods, settings=settings, owned=owned, checkpoint_request=request)


class Runner:
    """Runs one job on this machine. The caller must hold the run directory's lock."""

    def __init__(
        self,
        run: RunDirectory,
        job: DDPJob,
        gpus: list[str],
        tell: Callable[[Event], None],
        terminal: RankTerminal | None = None,
    ) -> None:
        self._run = run
        self._job = job
        self._gpus = gpus
        self._tell = tell
        self._dirty: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._terminal = terminal
        self._pods = Pods(run, self._mark, terminal)
        self._held: list[Port] = []
        self._listener = StatusListener(self._mark)
        self._told: set[str] = set()
        self._stopping = False
        self._interrupts = 0

    @property
    def job(self) -> DDPJob:
        """The job with its present status."""
        return self._job

    def run(self) -> DDPJobStatus:
        """Runs the job until it has finished or is suspended, and none of its processes is left."""
        try:
            return self._to_its_end()
        finally:
            self._held.clear()  # This process may run another job afterwards.

    def _to_its_end(self) -> DDPJobStatus:
        self._run.save(self._job)
        self._pods.resume(starting=not self._job.spec.suspend)
        while True:
            try:
                decision = self._round()
            except OSError as error:
                if self._gives_up(error):
                    return self._job.status
                self._wait(datetime.now(UTC) + RETRY)
                continue
            if decision.empty and self._at_rest():
                return self._job.status
            self._wait(decision.wake_at)

    def _gives_up(self, error: OSError) -> bool:
        """Whether to give up after a file could not be written. True only if the user has asked to stop the job.

        Otherwise the round is repeated, while the ranks keep running.
        """
        why = f"{error.strerror}: {error.filename}"
        if self.interrupted:
            self._notice(f"{why}; the ranks are told to stop, and the next ddpjob run sees how they end")
            self._pods.terminate()
            return True
        go_on = ". The ranks go on" if any(pod.running for pod in self._pods.observe()) else ""
        self._notice(f"{why}; retrying until it can be written{go_on}")
        return False

    def interrupt(self) -> None:
        """Suspends the job. A second call kills all pods. Signal handlers may call this."""
        self._interrupts += 1
        self.stop()

    def stop(self) -> None:
        """Suspends the job. Unlike `interrupt`, a second call does not kill pods. Signal handlers may call this."""
        self._stopping = True
        self._mark()

    def look(self) -> None:
        """Begins a round, because somebody may have requested a checkpoint. Signal handlers may call this."""
        self._mark()

    @property
    def interrupted(self) -> bool:
        """Whether `stop` or `interrupt` was called."""
        return self._stopping

    def _mark(self) -> None:
        self._dirty.put(None)

    def _wait(self, wake_at: datetime | None) -> None:
        """Waits for a change, at most until `wake_at`. Empties the queue: one round handles all queued changes."""
        seconds = RESYNC_SECONDS if wake_at is None else (wake_at - datetime.now(UTC)).total_seconds()
        try:
            self._dirty.get(timeout=min(max(seconds, 0.0), RESYNC_SECONDS))
            while True:
                self._dirty.get_nowait()
        except queue.Empty:
            return

    def _round(self) -> Decision:
        self._heed_interrupts()
        pods = self._pods.observe()
        request, attached = self._run.checkpoint_request, self._terminal is not None
        decision = self._decision(_seen(self._job, pods, self._services(), request=request, attached=attached))
        self._carry_out(decision)
        self._pods.remove_gone(pods)
        return decision

    def _decision(self, seen: Snapshot) -> Decision:
        """Returns the engine's decision.

        The engine may first need to know more. On this machine only rank 0's supervisor can be asked; the engine's
        other questions count as answered.
        """
        while (decision := decide(replace(seen, report=self._listener.report))).needs:
            seen = replace(seen, answered=seen.answered | decision.needs)
            if decision.needs.supervisor is not None:
                self._listen_to(decision.needs.supervisor)
        if seen.answered.supervisor is None:
            self._listener.attend(self._job.metadata.uid, None)
        return decision

    def _listen_to(self, asked: Asked) -> None:
        """Follows a supervisor's status on its actual port. The engine knows only the ports in the job's spec."""
        there = replace(asked, port=self._pods.status_port(asked.pod))
        self._listener.attend(self._job.metadata.uid, there)

    def _heed_interrupts(self) -> None:
        if self._stopping and not self._job.spec.suspend:
            self._notice("stopping; interrupt again to stop immediately")
            self._replace(spec=self._job.spec.model_copy(update={"suspend": True}))
        if self._interrupts > 1:
            self._pods.kill()

    def _carry_out(self, decision: Decision) -> None:
        if decision.status is not None:
            self._replace(status=decision.status)
        for action in decision.actions:
            self._act(action)
        for event in decision.events:
            self._tell(event)
        if not decision.empty:
            self._mark()  # Begin the next round immediately, because this decision may lead to another.

    def _act(self, action: Action) -> None:
        match action:
            case Create(kind, manifest) if kind is SERVICE:
                write_json(self._run.service_file, manifest)
            case Create(kind) if kind is SECRET:
                self._run.make_secret()
            case CreatePod(node):
                for notice in self._pods.create(action.build(), *self._place(node)):
                    self._notice(notice)
            case DeletePod():
                self._pods.delete(action)
            case StopPod(name):
                self._pods.stop(name)
            case RequestCheckpoint(name, request=request):
                self._pods.request_checkpoint(name, request)
            case _:
                pass  # There are no other actions: jobs on this machine do not expire and have no topology.

    def _replace(self, **changed: object) -> None:
        job = self._job.model_copy(update=changed)
        self._run.save(job)  # A decision is valid only after it has been written.
        self._job = job

    def _services(self) -> tuple[str, ...]:
        return (service_name(self._job),) if self._run.service_file.exists() else ()

    def _at_rest(self) -> bool:
        status = self._job.status
        ended = status.finished or status.state is State.SUSPENDED
        return ended and not any(pod.active for pod in self._pods.observe())

    def _place(self, node: int) -> tuple[Machine, Path]:
        """A pod's share of this machine, and its log directory. All pods of a gang share ports and log directory."""
        status, work = self._job.status, self._run.work
        assert work is not None, "chosen when the run was opened"
        assert status.nodes is not None, "an attempt was started"
        assert status.procs_per_node is not None, "an attempt was started"
        devices = None
        if status.backend is Backend.NCCL:
            devices = share_of_gpus(self._gpus, node, status.procs_per_node)
        threads = threads_per_process(status.nodes * status.procs_per_node)
        other = self._pods.one_of_gang(status.bookkeeping.incarnations.default)
        attached = self._terminal.rank if self._terminal else None
        if other is not None:
            return Machine(work, other.ports, threads, devices, attached), other.log.parent
        return Machine(work, self._free_ports(), threads, devices, attached), self._run.logs_of(status.attempt)

    def _free_ports(self) -> Ports:
        """Ports for a new gang: the ports of the job's spec, but free ports in place of any that are taken."""
        network = self._job.status.network
        assert network.master_port is not None, "an attempt was started"
        assert network.status_port is not None, "an attempt was started"
        assert network.control_port is not None, "an attempt was started"
        wanted = (network.master_port, network.status_port, network.control_port)
        self._held = []  # Release the ports of the last gang, so that the new gang can take them.
        self._held = [Port(number) for number in wanted]
        pairs = ((number, port.number) for number, port in zip(wanted, self._held, strict=True))
        moved = {number: instead for number, instead in pairs if instead != number}
        if moved:
            are = "ports {} are" if len(moved) > 1 else "port {} is"
            message = f"{are.format(enumerated(moved))} taken; using {enumerated(moved.values())}"
            self._tell(Event(warning=False, reason=ASIDE, message=message))
        return Ports(*(port.number for port in self._held))

    def _notice(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._tell(Event(warning=False, reason="Notice", message=text))
