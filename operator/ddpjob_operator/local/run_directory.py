"""The directory with all files of a local run. Each job has one directory, in formats that people can read."""

import contextlib
import os
import secrets
import shutil
import signal
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ddpjob_operator.api import BadInputError, DDPJob
from ddpjob_operator.api.contract import SECRET_KEY
from ddpjob_operator.api.option_names import option

from .files import Lock, read_json, write_json

RUNS = "ddpjob-runs"
CODE = "code"
RESULTS = "results"
REQUEST_SIGNAL = signal.SIGURG
"""Makes `ddpjob run` look for a request. A process that does not handle this signal ignores it."""


@dataclass(frozen=True)
class RunDirectory:
    """The files of one job.

    job.json            the DDPJob, with its status
    service.json        the master's Service
    begun.json          the program or the YAML file from which the run was started
    work.json           the ranks' working directory
    request.json        the last request for a checkpoint
    attached.json       the rank that has the terminal, or had it last
    pods/<pod>/         a directory for each pod that was not removed
    logs/attempt-<n>/   node-<m>.log of the gang that was created for attempt n; restarts in place append to it
    metrics/            progress, recorded by the supervisor of rank 0
    results/            a large result, if the run keeps no history
    code/               the files of a program that was given to `ddpjob.run` as a function
    secrets/            the secret with which the job's supervisors recognize each other
    output.log          the output of `ddpjob run --detach`
    volumes/            directories that pods share, or that outlive the pods
    lock                a lock file, held by the `ddpjob run` that runs the job
    """

    root: Path

    @property
    def job_file(self) -> Path:
        """The file with the DDPJob."""
        return self.root / "job.json"

    @property
    def service_file(self) -> Path:
        """The file with the master's Service."""
        return self.root / "service.json"

    @property
    def pods(self) -> Path:
        """Directory of the pods' directories."""
        return self.root / "pods"

    @property
    def logs(self) -> Path:
        """Directory of the logs."""
        return self.root / "logs"

    @property
    def metrics(self) -> Path:
        """Directory of the progress that the supervisor of rank 0 records."""
        return self.root / "metrics"

    @property
    def results(self) -> Path:
        """Directory of a large result, if the run keeps no history."""
        return self.root / RESULTS

    @property
    def output(self) -> Path:
        """The file for the output of `ddpjob run --detach`."""
        return self.root / "output.log"

    @property
    def volumes(self) -> Path:
        """Directory of the volumes that outlive pods."""
        return self.root / "volumes"

    @property
    def work(self) -> Path | None:
        """The ranks' working directory; None until it is set."""
        known = self._known("work.json")
        return Path(known["directory"]) if known else None

    def work_in(self, directory: Path) -> None:
        """Sets the ranks' working directory."""
        write_json(self.root / "work.json", {"directory": str(directory)})

    @property
    def begun(self) -> dict[str, str]:
        """What the run was started from: its `program` or its YAML `file`; empty if there is no job yet.

        begun.json is written before job.json. If job.json is missing, begun.json is ignored.
        """
        return self._known("begun.json") if self.job_file.exists() else {}

    def begin(self, **what: str) -> None:
        """Stores what the run was started from, as `program=` or `file=`."""
        write_json(self.root / "begun.json", what)

    @property
    def resume(self) -> str:
        """The arguments with which `ddpjob` goes on with the run; the rank that had the terminal gets it again."""
        attached = self._known("attached.json")
        return f"run --resume {self.root.name}" + (f" --attach {attached['rank']}" if attached else "")

    @property
    def checkpoint_request(self) -> str:
        """The last request for a checkpoint; empty if there was none since the job was created."""
        return self._known("request.json").get("checkpoint", "")

    def request_checkpoint(self, request: str) -> None:
        """Requests a checkpoint from the process that runs the job."""
        write_json(self.root / "request.json", {"checkpoint": request})
        self.lock.signal(REQUEST_SIGNAL)

    def forget_request(self) -> None:
        """Deletes a request that was made to an earlier job."""
        (self.root / "request.json").unlink(missing_ok=True)

    def attach(self, rank: int | None) -> None:
        """Stores which rank has the terminal; None if no rank has."""
        file = self.root / "attached.json"
        if rank is None:
            file.unlink(missing_ok=True)
        else:
            write_json(file, {"rank": str(rank)})

    def _known(self, name: str) -> dict[str, str]:
        """The JSON object of strings in the run's file `name`; empty if the file does not exist.

        Raises:
            BadInputError: the file is damaged.
        """
        try:
            known: object = read_json(self.root / name) or {}
        except ValueError:
            known = None
        if isinstance(known, dict) and all(isinstance(value, str) for value in known.values()):
            return known
        raise BadInputError(f"{self.root / name} is damaged. Remove the run with: ddpjob rm {self.root.name}")

    @property
    def code(self) -> Path:
        """Directory of the files of a program that exists only there."""
        return self.root / CODE

    def write_code(self, files: Mapping[str, bytes]) -> None:
        """Writes the files of a program; `files` are their contents by their relative paths."""
        self.code.mkdir(mode=0o700, exist_ok=True)
        for name, content in files.items():
            file = self.code / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)

    @property
    def secrets(self) -> Path:
        """Directory of the job's secret."""
        return self.root / "secrets"

    @property
    def lock_file(self) -> Path:
        """The lock file, which every run directory has."""
        return self.root / "lock"

    @property
    def lock(self) -> Lock:
        """The lock that is held by the process that runs the job."""
        return Lock(self.lock_file)

    @property
    def running(self) -> bool:
        """Whether a process is running the job, or a process of one of its pods still exists."""
        return self.lock.holder() is not None or self.left_behind

    @property
    def left_behind(self) -> bool:
        """Whether a process of one of the pods exists. If no process is running the job, it was left behind."""
        return any(Lock(pod / "lock").holder() is not None for pod in self.pods.glob("*"))

    def logs_of(self, attempt: int) -> Path:
        """Directory of the logs of the gang that was created for this attempt. Restarts in place append to them."""
        return self.logs / f"attempt-{attempt}"

    def gangs(self) -> list[int]:
        """The attempts for which a gang was created, in ascending order."""
        names = (directory.name.removeprefix("attempt-") for directory in self.logs.glob("attempt-*"))
        return sorted(int(name) for name in names if name.isdecimal())

    def make_secret(self) -> None:
        """Creates the job's secret, a file that only its owner can read, unless it exists."""
        file, new = self.secrets / SECRET_KEY, self.secrets / f".{SECRET_KEY}"
        if file.exists():
            return
        self.secrets.mkdir(mode=0o700, exist_ok=True)
        new.unlink(missing_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as content:
            content.write(secrets.token_hex())
        new.rename(file)

    @property
    def made(self) -> datetime | None:
        """When the job was created, which is when its secret was written; None if the job never started."""
        try:
            return datetime.fromtimestamp((self.secrets / SECRET_KEY).stat().st_mtime, UTC)
        except OSError:
            return None

    def load(self) -> DDPJob | None:
        """The job as it was last written; None if there is no file.

        Raises:
            BadInputError: the file does not contain a DDPJob, for example after a power failure.
        """
        try:
            document: dict[str, Any] | None = read_json(self.job_file)
            return None if document is None else DDPJob.from_dict(document)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
            problem = f"{self.job_file} is damaged or from another version: it holds no DDPJob"
            # A directory without a lock file is perhaps not a run, so do not advise removing it.
            own = self.lock_file.exists()
            raise BadInputError(
                f"{problem}. Remove the run with: ddpjob rm {self.root.name}" if own else problem
            ) from None

    def save(self, job: DDPJob) -> None:
        """Writes the job to its file."""
        write_json(self.job_file, job.to_document())

    def create(self) -> None:
        """Creates the directories that do not exist.

        Raises:
            BadInputError: the directories cannot be created.
        """
        try:
            self.volumes.mkdir(parents=True, exist_ok=True)
            for directory in (self.pods, self.logs, self.metrics):
                directory.mkdir(exist_ok=True)
                # Programs may print secrets. Earlier releases let everyone read these directories.
                directory.chmod(0o700)
            self.lock_file.touch()
        except OSError as error:
            raise BadInputError(
                f"cannot write the run directory {self.root}: {error.strerror}; choose another with"
                f" {option('run-dir')}"
            ) from None

    def discard_unused(self) -> None:
        """Removes the directory if it has no job, logs or volumes, because its job was not started after all."""
        if self.job_file.exists():
            return
        shutil.rmtree(self.code, ignore_errors=True)
        with contextlib.suppress(OSError):  # A directory that is not empty stays, and so does everything after it.
            for directory in (self.volumes, self.logs, self.pods, self.metrics):
                directory.rmdir()
            for file in (self.root / "begun.json", self.root / "work.json", self.output, self.lock_file):
                file.unlink(missing_ok=True)
            self.root.rmdir()

    def claim(self) -> Lock | None:
        """Creates the directory of a new job and takes its lock. Returns None if it already has a job or is locked.

        Raises:
            BadInputError: the directory cannot be created.
        """
        self.create()
        lock = self.lock
        if not lock.acquire():
            return None
        if self.job_file.exists():
            lock.release()
            return None
        return lock


def new_uid() -> str:
    """A uid for a new job."""
    return str(uuid.uuid4())
