"""Runs the pods of one job as processes of this machine, and keeps the state of the pods in files."""

import contextlib
import errno
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import psutil

from ddpjob_operator.api.contract import CHECKPOINT_REQUEST_FILE, LONGEST_REQUEST, Env, ExitCode, Label
from ddpjob_operator.engine import DeletePod, Exit, Manifest, Pod

from . import container
from .files import Lock, read_json, tail, write_json, write_whole
from .machine import processes_of
from .process_spec import TERMINATION_LOG, Machine, Ports, address_of, annotations, translate
from .run_directory import RunDirectory

MESSAGE_BYTES = 4096
LOG_TAIL_BYTES = 2048
DEFAULT_GRACE_SECONDS = 30

BY_AN_ERROR = frozenset({ExitCode.APPLICATION_ERROR, ExitCode.BAD_INPUT})
"""The exit codes of Python and of our ranks after an exception, such as an OSError because a disk is full."""
WHOLE_TRACEBACK = re.compile(r"^Traceback .{0,80}\n(?: .*\n)+\S.*\Z", re.MULTILINE)


@dataclass(frozen=True)
class LocalPod:
    """The directory of one pod.

    pod.json            the pod's manifest, as it would be sent to a cluster
    process.json        command, environment, working directory and log of the pod's process
    delete.json         a request to end the process and remove the pod
    stop.json           a request to end the process and keep the pod
    started.json        exists if the container was started; `main` is the pid of the pod's process, once that runs
    exit.json           how the pod's process ended
    """

    directory: Path

    @property
    def manifest(self) -> Manifest:
        """The pod as it was created."""
        manifest: Manifest = read_json(self.directory / "pod.json")
        return manifest

    @property
    def ports(self) -> Ports:
        """The ports on which the pod's gang listens, from the pod's environment."""
        env = self._process["env"]
        return Ports(*(int(env[name]) for name in (Env.MASTER_PORT, Env.STATUS_PORT, Env.CONTROL_PORT)))

    @property
    def log(self) -> Path:
        """The file to which the pod's output is appended."""
        return Path(self._process["log"])

    @property
    def lock(self) -> Lock:
        """The lock that the pod's container holds while it runs."""
        return Lock(self.directory / "lock")

    @property
    def started(self) -> bool:
        """Whether the container has been started."""
        return (self.directory / "started.json").exists()

    @property
    def running(self) -> bool:
        """Whether the pod's process is running."""
        return "main" in (read_json(self.directory / "started.json") or {}) and not self.ended

    @property
    def deleting(self) -> bool:
        """Whether the pod should end and be removed."""
        return (self.directory / "delete.json").exists()

    @property
    def stopped(self) -> bool:
        """Whether the pod should end and be kept."""
        return (self.directory / "stop.json").exists()

    @property
    def ended(self) -> bool:
        """Whether the pod's process has ended and its exit is recorded."""
        return (self.directory / "exit.json").exists()

    @property
    def lost(self) -> bool:
        """Whether the pod's container was killed from outside, so that the exit of its process was not recorded."""
        return self.started and self.lock.holder() is None and not self.ended

    def observed(self) -> Pod:
        """The pod in the form that the engine needs."""
        manifest = self.manifest
        labels, running = manifest["metadata"]["labels"], self.running
        return Pod(
            name=self.directory.name,
            uid=manifest["metadata"]["uid"],
            node=int(labels[Label.NODE]),
            incarnation=int(labels[Label.INCARNATION]),
            running=running,
            exit=self._exit(),
            deleting=self.deleting,
            stopped=self.stopped,
            node_name=platform.node() or "this machine",
            created_at=datetime.fromtimestamp((self.directory / "pod.json").stat().st_mtime, UTC),
            address=address_of(manifest) if running else None,
            checkpoint_request=self.checkpoint_request,
        )

    @property
    def checkpoint_request(self) -> str:
        """The last request for a checkpoint that the pod's supervisor can read; empty if there was none."""
        return tail(self.request_file, LONGEST_REQUEST)

    @property
    def request_file(self) -> Path:
        """The file with the last request for a checkpoint."""
        return annotations(self.directory) / CHECKPOINT_REQUEST_FILE

    def _exit(self) -> Exit | None:
        ended = read_json(self.directory / "exit.json")
        if ended is None:
            return None
        return Exit(
            code=ended["code"],
            reason=ended["reason"],
            message=ended["message"] or self._last_words(ended["code"], full=ended.get("full", False)),
            finished_at=datetime.fromtimestamp(ended["finishedAt"], UTC),
        )

    def _last_words(self, code: int, *, full: bool) -> str:
        """The termination message; after a failure without one, the end of the log, as with FallbackToLogsOnError.

        If the disk was `full`, not only the message but also the end of the log may be missing. Then returns the
        error that Python prints about a full disk, unless the exit code or a complete traceback shows another reason.
        """
        message = tail(self.directory / TERMINATION_LOG, MESSAGE_BYTES)
        if message or code == 0:
            return message
        log = tail(self.log, LOG_TAIL_BYTES, self._process["logStart"])
        if full and code in BY_AN_ERROR and not WHOLE_TRACEBACK.search(log):
            return f"OSError: {OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.directory))}"
        return log

    @property
    def _process(self) -> dict[str, Any]:
        """The contents of process.json."""
        process: dict[str, Any] = read_json(self.directory / "process.json")
        return process


class RankTerminal(Protocol):
    """A terminal for one rank."""

    rank: int

    def open_terminal(self, log: Path) -> int:
        """The descriptor of the terminal, whose output is also appended to the log from now on."""
        ...


class Pods:
    """All pods of a run.

    `changed` is called when a pod has started or ended, from other threads.
    """

    def __init__(self, run: RunDirectory, changed: Callable[[], None], terminal: RankTerminal | None = None) -> None:
        self._run = run
        self._changed = changed
        self._terminal = terminal
        self._watched: set[Path] = set()

    def observe(self) -> tuple[Pod, ...]:
        """All pods except lost pods, in the form that the engine needs."""
        return tuple(pod.observed() for pod in self._all() if not pod.lost)

    def create(self, manifest: Manifest, machine: Machine, logs: Path) -> list[str]:
        """Creates a pod, unless it exists, and starts its process. Returns notices for the user."""
        directory = self._run.pods / manifest["metadata"]["name"]
        if (directory / "pod.json").exists():
            return []
        process = translate(manifest, self._run, directory, machine)
        for needed in (directory, *process.needed):
            needed.mkdir(parents=True, exist_ok=True)
        pod = LocalPod(directory)
        logs.mkdir(parents=True, exist_ok=True)
        log = logs / f"node-{manifest['metadata']['labels'][Label.NODE]}.log"
        output = {"log": str(log), "logStart": log.stat().st_size if log.exists() else 0}
        command = {"argv": process.argv, "env": process.env, "cwd": str(process.directory)}
        write_json(directory / "process.json", command | output)
        manifest["metadata"]["uid"] = directory.name  # Unique: names of pods are never reused.
        write_json(directory / "pod.json", manifest)
        self._start(pod, process.env)
        return process.notices

    def resume(self, *, starting: bool) -> None:
        """Takes over the pods of an earlier `ddpjob run`: starts the pods that never started, and watches the others.

        If `starting` is false, the job is to stop, so pods that never started are removed instead.
        """
        for pod in self._all():
            never_started = not pod.started and not pod.deleting
            if pod.lost or (never_started and not starting and pod.lock.holder() is None):
                self._remove(pod)
            elif never_started:
                self._start(pod, read_json(pod.directory / "process.json")["env"])
            elif not pod.ended:
                if pod.deleting or pod.stopped:
                    self._signal(pod)  # The earlier `ddpjob run` may have been killed before it sent this signal.
                _in_background(self._report_end, pod)

    def one_of_gang(self, incarnation: int) -> LocalPod | None:
        """Any pod of this or a later incarnation; None if the gang has no pods yet."""
        for pod in self._all():
            if int(pod.manifest["metadata"]["labels"][Label.INCARNATION]) >= incarnation:
                return pod
        return None

    def status_port(self, name: str) -> int:
        """The port on which a pod's supervisor serves its status."""
        return LocalPod(self._run.pods / name).ports.status

    def delete(self, action: DeletePod) -> None:
        """Asks a pod to end; it is removed afterwards. The action's grace period, if any, replaces the pod's."""
        pod = LocalPod(self._run.pods / action.name)
        if not pod.directory.exists():
            return
        spec = pod.manifest["spec"]
        grace = action.grace_period_seconds
        seconds = spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS) if grace is None else grace
        write_json(pod.directory / "delete.json", {"gracePeriodSeconds": seconds})
        self._signal(pod)

    def stop(self, name: str) -> None:
        """Asks a pod to end within its own grace period. The pod is not removed."""
        pod = LocalPod(self._run.pods / name)
        if not pod.directory.exists() or pod.stopped:
            return
        grace = pod.manifest["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS)
        write_json(pod.directory / "stop.json", {"gracePeriodSeconds": grace})
        self._signal(pod)

    def request_checkpoint(self, name: str, request: str) -> None:
        """Writes a request for a checkpoint to the file that a pod's supervisor reads."""
        pod = LocalPod(self._run.pods / name)
        if pod.directory.exists():
            pod.request_file.parent.mkdir(exist_ok=True)
            write_whole(pod.request_file, request)

    def terminate(self) -> None:
        """Asks every pod to end within the default grace period, without writing to disk."""
        for pod in self._all():
            self._signal(pod)

    def wait(self) -> None:
        """Blocks until no container of a pod is running."""
        for pod in self._all():
            pod.lock.wait()

    def kill(self) -> None:
        """Kills every pod that has not ended."""
        for pod in self._all():
            if not pod.ended:
                self.delete(DeletePod(pod.directory.name, "", 0))

    def remove_gone(self, seen: tuple[Pod, ...]) -> None:
        """Removes lost pods, and deleted pods that never started or whose exit is in `seen`."""
        ended = {pod.name for pod in seen if pod.deleting and pod.exit is not None}
        for pod in self._all():
            never_started = pod.deleting and not pod.started and pod.lock.holder() is None
            if pod.directory.name in ended or pod.lost or never_started:
                self._remove(pod)
                self._changed()

    def _signal(self, pod: LocalPod) -> None:
        """Sends SIGTERM to a pod's container, which then reads delete.json or stop.json."""
        pod.lock.signal(signal.SIGTERM)
        self._changed()

    def _all(self) -> list[LocalPod]:
        return [LocalPod(file.parent) for file in sorted(self._run.pods.glob("*/pod.json"))]

    def _remove(self, pod: LocalPod) -> None:
        """Kills the remaining processes of a pod, and deletes its directory, but not its log."""
        labels = pod.manifest["metadata"]["labels"]
        variables = {
            Env.UID: labels[Label.JOB_UID],
            Env.NODE_RANK: labels[Label.NODE],
            Env.INCARNATION: labels[Label.INCARNATION],
        }
        if not pod.ended:
            while processes := processes_of(variables):
                for process in processes:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.kill()
                psutil.wait_procs(processes, timeout=1)
        shutil.rmtree(pod.directory)

    def _start(self, pod: LocalPod, env: dict[str, str]) -> None:
        reading, writing = os.pipe()
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", container.__file__, str(pod.directory)],
            env=env,
            stdin=self._terminal.open_terminal(pod.log)
            if self._terminal and _is_attached(env)
            else subprocess.DEVNULL,
            stdout=writing,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(writing)
        _in_background(self._report_from_start, pod, process, reading)

    def _report_from_start(self, pod: LocalPod, process: subprocess.Popen[bytes], started: int) -> None:
        with os.fdopen(started) as pipe:
            pipe.read()
        self._changed()
        process.wait()
        self._report_end(pod)

    def _report_end(self, pod: LocalPod) -> None:
        pod.lock.wait()
        self._changed()


def _is_attached(env: Mapping[str, str]) -> bool:
    """Whether the rank that gets a terminal is one of the node with this environment."""
    rank = env.get(Env.ATTACH)
    return rank is not None and int(rank) // int(env[Env.NPROC_PER_NODE]) == int(env[Env.NODE_RANK])


def _in_background(what: Callable[..., None], *arguments: object) -> None:
    """Calls `what` in a thread, so that it can wait for an event of a pod without polling."""
    threading.Thread(target=what, args=arguments, daemon=True).start()
