"""Keeps a directory of links to this user's runs, so that a run can be found by its name from any directory."""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ddpjob_operator.api import BadInputError
from ddpjob_operator.api.option_names import option
from ddpjob_operator.api.words import listed

from .run_directory import RunDirectory


@dataclass(frozen=True)
class Runs:
    """Where to look for runs: in a directory and, unless the user named that directory, among the registered runs."""

    directory: Path
    named: bool = False

    def __str__(self) -> str:
        return str(self.directory)


def registry() -> Path:
    """The directory of the links. It is in the state directory of the XDG Base Directory Specification."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "ddpjob" / "runs"


def register(run: RunDirectory) -> None:
    """Adds a link to a run. If this fails, other commands find the run only if --run-dir names its directory."""
    link = _link(run)
    with contextlib.suppress(OSError):
        link.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        link.symlink_to(run.root)


def unregister(run: RunDirectory) -> None:
    """Removes the link to a run."""
    with contextlib.suppress(OSError):  # registered() removes links without a target.
        _link(run).unlink()


def registered() -> Iterator[RunDirectory]:
    """The registered runs that still exist. Removes the links to runs that no longer exist."""
    try:
        links = sorted(registry().iterdir())
    except OSError:  # There are no links yet, or the directory cannot be read.
        return
    for link in links:
        try:
            if not link.exists():
                link.unlink(missing_ok=True)
                continue
            is_run = (link / "job.json").exists()
        except PermissionError:
            is_run = True  # The user is no longer allowed to read the run. The code that loads the run reports this.
        if is_run:
            yield RunDirectory(link.readlink())


class NoRunError(BadInputError):
    """There is no such run on this machine."""


def find_runs(runs: Path) -> dict[str, RunDirectory]:
    """The runs under a directory, by name."""
    return {file.parent.name: RunDirectory(file.parent) for file in sorted(runs.glob("*/job.json"))}


def known_runs(runs: Runs) -> list[RunDirectory]:
    """The runs under a directory or, if it has none and was not named, all registered runs.

    Raises:
        BadInputError: the directory was named, and does not exist.
    """
    return [*find_runs(runs.directory).values()] or [*_elsewhere(runs)]


def all_runs(runs: Runs) -> list[RunDirectory]:
    """The runs under a directory and, if it was not named, all registered runs.

    Raises:
        BadInputError: the directory was named, and does not exist.
    """
    every = (*_elsewhere(runs), *find_runs(runs.directory.absolute()).values())
    return [*{run.root: run for run in every}.values()]


def _elsewhere(runs: Runs) -> Iterator[RunDirectory]:
    if not runs.named:
        yield from registered()
    elif not runs.directory.is_dir():
        raise BadInputError(f"{option('run-dir', runs)}: there is no such directory")


def find_run(runs: Runs, name: str | None) -> RunDirectory:
    """The run `name`, under `runs` or, if `runs` was not named, among the registered runs. None: the only run.

    Raises:
        NoRunError: there is no such run.
        BadInputError: there are several such runs; or `runs` was named, and does not exist.
    """
    known = known_runs(runs)
    named = known if name is None else [run for run in known if run.root.name == name]
    if name is not None and not named:
        named = [run for run in _elsewhere(runs) if run.root.name == name]
    if len(named) == 1:
        return named[0]
    if not known and (name is None or not runs.named):
        raise NoRunError(f"no runs under {runs}; start one with: ddpjob run FILE")
    if not named:
        others = f"; there is {listed(_names(known))}" if known else ""
        raise NoRunError(f"no run named {name} under {runs}{others}")
    if name is None:
        raise BadInputError(f"which run? {listed(_names(known))}")
    places = listed(sorted(str(run.root.parent) for run in named))
    raise BadInputError(f"there are several runs named {name}; say which with --run-dir and one of {places}")


def names_in_use(runs: Path) -> frozenset[str]:
    """The names of existing runs, which a new run cannot have: names are unique across all directories."""
    return frozenset(find_runs(runs)) | {run.root.name for run in registered()}


def _link(run: RunDirectory) -> Path:
    root = run.root.absolute()
    return registry() / f"{root.name}-{hashlib.sha256(str(root).encode()).hexdigest()[:8]}"


def _names(runs: list[RunDirectory]) -> list[str]:
    return [run.root.name for run in runs]
