"""What there is of a run: its job, and what its trainer has recorded."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ddpjob_operator.api import BadInputError, DDPJob
from ddpjob_operator.api.contract import Env
from ddpjob_operator.local import RunDirectory
from ddpjob_operator.local.files import read_json

from .recorded import NAME, Recorded, read

PLACES = ("", "metrics/", "volumes/*/metrics/", "volumes/*/*/metrics/", "volumes/*/*/*/metrics/")
"""Where the file can be: in the directory of the metrics, of the checkpoints, or of a run, whose volumes may have the
checkpoints in a directory of theirs. They may also be elsewhere, on a hostPath."""


@dataclass(frozen=True, slots=True)
class Found:
    """A run, as far as it is known."""

    name: str
    job: DDPJob | None
    """None: there are only metrics, as on a volume of a cluster."""
    recorded: Recorded
    carried_on: bool = True
    """Whether a job that is not finished is in somebody's hands."""


def find(directory: Path) -> Found:
    """The run in a directory: that of a local run, of checkpoints, or of metrics.

    Raises:
        BadInputError: it holds none of these.
    """
    run = RunDirectory(directory)
    job = run.load()
    files = [file for place in PLACES for file in directory.glob(f"{place}{NAME}")]
    files += [file for checkpoints in _checkpoints(run) if (file := checkpoints / "metrics" / NAME).is_file()]
    if job is None and not files:
        raise BadInputError(f"{directory} holds neither a run (job.json) nor metrics ({NAME})")
    newest = max(files, key=lambda file: file.stat().st_mtime, default=None)
    name = job.metadata.name if job else directory.resolve().name
    return Found(name, job, read(newest) if newest else Recorded(), run.lock.holder() is not None)


def _checkpoints(run: RunDirectory) -> Iterator[Path]:
    """Where the pods that are still there were told to save."""
    for file in run.pods.glob("*/process.json"):
        if directory := read_json(file)["env"].get(Env.CHECKPOINT_DIR):
            yield Path(directory)
