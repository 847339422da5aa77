"""What exists of a run: its job, and what its trainer has recorded."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ddpjob_operator.api import BadInputError, DDPJob
from ddpjob_operator.api.contract import Env
from ddpjob_operator.local import RunDirectory
from ddpjob_operator.local.files import read_json

from .records import NAME, SEEN_NAME, Records, read
from .stacks import Stack, stacks

PLACES = ("", "metrics/", "volumes/*/metrics/", "volumes/*/*/metrics/", "volumes/*/*/*/metrics/")
"""Where the file can be: in the directory of the metrics, of the checkpoints, or of a run, whose volumes may have the
checkpoints in a directory of theirs. They may also be elsewhere, on a hostPath."""


@dataclass(frozen=True, slots=True)
class RunData:
    """A run, as far as it is known."""

    name: str
    job: DDPJob | None
    """None: there are only metrics, as on a cluster's volume."""
    recorded: Records
    carried_on: bool = True
    """Whether a process runs the unfinished job."""
    stacks: Sequence[Stack] = ()
    """What its ranks were doing when it hung."""
    printed: Records = field(default_factory=Records)
    """What its program has printed about its progress."""


def find(directory: Path) -> RunData:
    """The run in a directory: that of a local run, of checkpoints, or of metrics.

    Raises:
        BadInputError: it holds none of these, or nothing that can be read.
    """
    run = RunDirectory(directory)
    job = run.load()
    files = {name: _files(directory, run, name) for name in (NAME, SEEN_NAME)}
    if job is None and not any(files.values()):
        raise BadInputError(f"{directory} holds neither a run (job.json) nor metrics ({NAME}, {SEEN_NAME})")
    newest = (max(some, key=lambda file: file.stat().st_mtime) for some in files.values() if some)
    known = (recorded for file in newest if (recorded := read(file)).starts)
    records = next(known, None)
    if job is None and records is None:
        listed = ", ".join(str(file) for some in files.values() for file in some)
        raise BadInputError(f"no line of {listed} says when a run started, so there is nothing to report")
    name = job.metadata.name if job else directory.resolve().name
    stuck = stacks(directory, _checkpoints(run))
    return RunData(name, job, records or Records(), run.lock.holder() is not None, stuck)


def _files(directory: Path, run: RunDirectory, name: str) -> list[Path]:
    files = [file for place in PLACES for file in directory.glob(f"{place}{name}") if file.is_file()]
    return files + [file for place in _checkpoints(run) if (file := place / "metrics" / name).is_file()]


def _checkpoints(run: RunDirectory) -> Iterator[Path]:
    """Where the pods that still exist were told to save."""
    for file in run.pods.glob("*/process.json"):
        with suppress(
            BadInputError, ValueError, TypeError, KeyError, AttributeError, RecursionError
        ):  # It may be damaged.
            if directory := read_json(file)["env"].get(Env.CHECKPOINT_DIR):
                yield Path(directory)
