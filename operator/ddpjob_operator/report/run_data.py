"""Finds the data of a run: its job, and the records of its training."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from ddpjob_operator.api import BadInputError, DDPJob, Incident
from ddpjob_operator.api.contract import Env
from ddpjob_operator.api.git_state import GitState
from ddpjob_operator.api.spec import is_url
from ddpjob_operator.api.words import listed
from ddpjob_operator.local import RunDirectory
from ddpjob_operator.local.files import read_json
from ddpjob_operator.local.record_files import NAME, SEEN_NAME, read
from ddpjob_operator.view_model import Records

from .stacks import Stack, stacks

PLACES = ("", "metrics/", "volumes/*/metrics/", "volumes/*/*/metrics/", "volumes/*/*/*/metrics/")
"""Where to look for records in a directory of metrics, of checkpoints, or of a run. In a run, checkpoints may be in a
subdirectory of a volume. Checkpoints on a hostPath are found through the pods' environment instead."""


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """A program that was run on a held job, as the job's history tells. Others have written the texts."""

    attempt: int
    began: datetime | None
    ended: datetime | None
    """None if it still runs, or was lost with its node."""
    name: str
    """The script or module, without its arguments."""
    code: str
    """The first digits of the digest of its files."""
    by: str
    """Who ran it, as the command of that person says."""
    end: str
    """How it ended, in words."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What a history tells of a job, which may be gone."""

    began: datetime | None
    ended: datetime | None
    """The times of its first and its last event."""
    world: str
    """The job's size, in words."""
    result: str
    """How rank 0's supervisor ended, as `ended` events have it; empty if it has not ended."""
    incidents: Sequence[Incident]
    git: GitState | None
    """What the job was submitted from, if that is known."""
    programs: Sequence[ProgramRun] = ()
    """The programs that were run on a held job, the oldest first."""


@dataclass(frozen=True, slots=True)
class LastLines:
    """What the rank that failed first in the last incident had printed last."""

    attempt: int
    who: str
    """The rank, or the node if several ranks share its log, in words: `rank 1`."""
    lines: Sequence[str]


@dataclass(frozen=True, slots=True)
class RunData:
    """The known data of a run."""

    name: str
    job: DDPJob | None
    """The job; None if there are only metrics, as on a volume of a cluster."""
    recorded: Records
    created: datetime | None = None
    """When the job was created, if that is known."""
    carried_on: bool = True
    """Whether a `ddpjob run` is running the job."""
    stacks: Sequence[Stack] = ()
    """The ranks' stacks at the time when the run hung."""
    printed: Records = field(default_factory=Records)
    """Records made from the progress lines that the program printed."""
    kept: Kept | None = None
    """What its history tells; None if there is none."""
    last_lines: LastLines | None = None
    """None if nothing has failed, or if there is no log."""

    @property
    def incidents(self) -> Sequence[Incident]:
        """The known incidents: those of the job, or else those in its history."""
        return self.job.status.incidents if self.job else self.kept.incidents if self.kept else ()

    @property
    def with_losses(self) -> Records:
        """The records in which the loss is: those of its training or, if they have none, those of its log."""
        return self.recorded if self.recorded.has("loss") or not self.printed.starts else self.printed

    @property
    def last_incident(self) -> Incident | None:
        """The incident that ended the latest attempt."""
        return max(self.incidents, key=lambda incident: incident.attempt, default=None)


def find(directory: Path) -> RunData:
    """Finds the data of a run in the directory of a local run, of checkpoints or of metrics.

    Raises:
        BadInputError: the directory is none of these, or contains no record of a start.
    """
    run = RunDirectory(directory)
    job = run.load()
    files = {name: _files(directory, run, name) for name in (NAME, SEEN_NAME)}
    if job is None and not any(files.values()):
        raise BadInputError(f"{directory} holds neither a run (job.json) nor metrics ({NAME}, {SEEN_NAME})")
    newest = (
        max(files_of_name, key=lambda file: file.stat().st_mtime) for files_of_name in files.values() if files_of_name
    )
    known = (recorded for file in newest if (recorded := read(file)).starts)
    records = next(known, None)
    if job is None and records is None:
        names = listed([file for files_of_name in files.values() for file in files_of_name])
        raise BadInputError(f"no line of {names} says when a run started, so there is nothing to report")
    name = job.metadata.name if job else directory.resolve().name
    stored_stacks = stacks(directory, _checkpoints(run))
    return RunData(name, job, records or Records(), run.made, run.lock.holder() is not None, stored_stacks)


def _files(directory: Path, run: RunDirectory, name: str) -> list[Path]:
    files = [file for place in PLACES for file in directory.glob(f"{place}{name}") if file.is_file()]
    return files + [file for place in _checkpoints(run) if (file := place / "metrics" / name).is_file()]


def _checkpoints(run: RunDirectory) -> Iterator[Path]:
    """The checkpoint directories that the environments of existing pods name."""
    for file in run.pods.glob("*/process.json"):
        with suppress(BadInputError, ValueError, TypeError, KeyError, AttributeError):  # The file may be damaged.
            directory = read_json(file)["env"].get(Env.CHECKPOINT_DIR)
            if directory and not is_url(directory):
                yield Path(directory)
