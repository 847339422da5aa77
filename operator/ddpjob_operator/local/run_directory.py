"""Where a local run keeps everything: one directory per job, which a person can look into."""

import os
import secrets
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ddpjob_operator.api import BadInputError, DDPJob
from ddpjob_operator.api.contract import SECRET_KEY

from .files import Lock, read_json, write_json

RUNS = "ddpjob-runs"


@dataclass(frozen=True)
class RunDirectory:
    """The files of one job.

    job.json            the object, with its status
    service.json        the master's Service
    begun.json          the program or the YAML file that it is a run of
    work.json           the directory in which the ranks work
    pods/<pod>/         one directory per pod that was not deleted
    logs/attempt-<n>/   node-<m>.log of the gang that was made for that attempt, restarts in place included
    metrics/            what the supervisor of rank 0 records of progress
    secrets/secret by which the job's supervisors recognize each other
    output.log the output of a `ddpjob run --detach`
    volumes/            what pods share and what outlives them
    lock held by the `ddpjob run` that runs the job
    """

    root: Path

    @property
    def job_file(self) -> Path:
        """The object."""
        return self.root / "job.json"

    @property
    def service_file(self) -> Path:
        """The Service."""
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
        """Directory of what the supervisor of rank 0 records."""
        return self.root / "metrics"

    @property
    def output(self) -> Path:
        """The output of a run without a terminal."""
        return self.root / "output.log"

    @property
    def volumes(self) -> Path:
        """Directory of the volumes that outlive pods."""
        return self.root / "volumes"

    @property
    def work(self) -> Path | None:
        """Where the ranks work; None until it is set."""
        known = self._known("work.json")
        return Path(known["directory"]) if known else None

    def work_in(self, directory: Path) -> None:
        """Sets where the ranks work."""
        write_json(self.root / "work.json", {"directory": str(directory)})

    @property
    def begun(self) -> dict[str, str]:
        """What it is a run of: `program`, or the YAML `file`; empty until it is set.

        It is set before the job is written: if the process was killed in between, there is nothing to keep.
        """
        return self._known("begun.json") if self.job_file.exists() else {}

    def begin(self, **what: str) -> None:
        """Sets what it is a run of."""
        write_json(self.root / "begun.json", what)

    def _known(self, name: str) -> dict[str, str]:
        """What a file of the run says, by name; empty if it is not there.

        Raises:
            BadInputError: it is damaged.
        """
        try:
            known: object = read_json(self.root / name) or {}
        except (ValueError, RecursionError):
            known = None
        if isinstance(known, dict) and all(isinstance(value, str) for value in known.values()):
            return known
        raise BadInputError(f"{self.root / name} is damaged. Remove the run with: ddpjob rm {self.root.name}")

    @property
    def secrets(self) -> Path:
        """Directory of the job's secret."""
        return self.root / "secrets"

    @property
    def lock_file(self) -> Path:
        """Every run directory has it."""
        return self.root / "lock"

    @property
    def lock(self) -> Lock:
        """Held by the process that runs the job."""
        return Lock(self.lock_file)

    @property
    def running(self) -> bool:
        """Whether a process runs the job, or has been left behind by it."""
        locks = (self.lock, *(Lock(pod / "lock") for pod in self.pods.glob("*")))
        return any(lock.holder() is not None for lock in locks)

    def logs_of(self, attempt: int) -> Path:
        """The logs of the gang that was made for this attempt; restarts in place go on in the same files."""
        return self.logs / f"attempt-{attempt}"

    def gangs(self) -> list[int]:
        """The attempts for which a gang was made, in their order."""
        names = (directory.name.removeprefix("attempt-") for directory in self.logs.glob("attempt-*"))
        return sorted(int(name) for name in names if name.isdecimal())

    def make_secret(self) -> None:
        """Creates the job's secret, unless it exists: a file that only its owner can read."""
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
        """When the job began: its secret is as old, whatever became of it since. None if it never has."""
        try:
            return datetime.fromtimestamp((self.secrets / SECRET_KEY).stat().st_mtime, UTC)
        except OSError:
            return None

    def load(self) -> DDPJob | None:
        """The job as it was last written; None if there is none.

        Raises:
            BadInputError: the file does not contain one, as after a disk or a power failure.
        """
        try:
            document: dict[str, Any] | None = read_json(self.job_file)
            return None if document is None else DDPJob.from_dict(document)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
            what = f"{self.job_file} is damaged or from another version: it holds no DDPJob"
            own = self.lock_file.exists()  # Else it may be a directory of anything.
            raise BadInputError(f"{what}. Remove the run with: ddpjob rm {self.root.name}" if own else what) from None

    def save(self, job: DDPJob) -> None:
        """Writes the job, replacing what was there."""
        write_json(self.job_file, job.to_document())

    def create(self) -> None:
        """Makes the directories.

        Raises:
            BadInputError: they cannot be made here.
        """
        try:
            self.volumes.mkdir(parents=True, exist_ok=True)
            for directory in (self.pods, self.logs, self.metrics):
                directory.mkdir(exist_ok=True)
                directory.chmod(
                    0o700
                )  # Programs print what others must not see. Earlier releases left these directories open.
            self.lock_file.touch()
        except OSError as error:
            message = f"cannot write the run directory {self.root}: {error.strerror}; choose another with --run-dir"
            raise BadInputError(message) from None

    def claim(self) -> Lock | None:
        """Creates the directory of a new job and takes its lock; None if one exists or is just being created.

        Raises:
            BadInputError: it cannot be made here.
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
