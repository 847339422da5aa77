"""`ddpjob run FILE`: a DDPJob on this machine, from its start or from where it stands, to its end."""

import signal
from pathlib import Path

from ddpjob_operator.api import Backend, BadInputError, DDPJob, State
from ddpjob_operator.api.manifest import read
from ddpjob_operator.engine import Event
from ddpjob_operator.local import (
    RunDirectory,
    Runner,
    check_runs_here,
    choose_backend,
    differences,
    open_job,
    visible_gpus,
)

from .display import Display
from .follow import Follower
from .progress import Progress
from .screen import Screen
from .summary import advise, summarise
from .words import INTERRUPTED, exit_code, file_path, itself, world, writer


def run(file: Path, runs: Path, *, fresh: bool) -> int:
    """Runs the job of a file and returns the exit code: the job's own.

    Raises:
        BadInputError: the file is wrong, the job is being run already, or the run directory cannot be written.
    """
    try:
        return _run(file, runs, fresh=fresh)
    except OSError as error:
        raise BadInputError(f"{error.strerror}: {error.filename}; nothing was started or stopped") from None


def _run(file: Path, runs: Path, *, fresh: bool) -> int:
    manifest = read(file)
    gpus = visible_gpus()
    backend, reason = choose_backend(manifest.job.spec, gpus)
    wanted = manifest.job.model_copy(update={"spec": manifest.job.spec.model_copy(update={"backend": backend})})
    directory = RunDirectory((runs / wanted.metadata.name).absolute())
    check_runs_here(directory, wanted)
    directory.create()
    lock = directory.lock
    if not lock.acquire():
        name = wanted.metadata.name
        raise BadInputError(
            f"{name} is running already (process {lock.holder()}); look at it with: {itself()} status {name}"
        )
    screen = Screen()
    follower = Follower(directory.logs, writer=writer(wanted.spec.resolved_procs_per_node()))
    display = Display(screen, follower)
    display.catch_up()
    others = (f"{kind} in {file} is not needed on this machine" for kind in manifest.others)
    for text in (*others, *differences(wanted.spec)):
        display.tell(Event(warning=False, reason="Notice", message=text))
    job = open_job(directory, wanted, gpus, display.tell, fresh=fresh)
    if not job.status.attempt:
        display.forget()
    if job.status.succeeded:
        return _succeeded_already(screen, job, manifest.job, file)
    _say_what_starts(screen, job, f"{backend.lower()} ({reason})", directory)
    runner = Runner(directory, job, gpus, display.tell)
    stopped = _carry_on(runner, display)
    _say_what_came_of_it(screen, runner.job, display.progress, directory, file)
    return INTERRUPTED if stopped else exit_code(runner.job.status)


def _succeeded_already(screen: Screen, job: DDPJob, wanted: DDPJob, file: Path) -> int:
    """Says so; who has edited the file meanwhile wants something else, and must not take that for done.

    Raises:
        BadInputError: the file is not that of the job that succeeded.
    """
    anew = f"Train anew with: {itself()} run --fresh {file}"
    before, now = job.spec.to_dict(), wanted.spec.to_dict()
    by_itself = {"suspend"} | ({"backend"} if wanted.spec.backend is Backend.AUTO else set())
    changed = [field for field in before | now if before.get(field) != now.get(field) and field not in by_itself]
    if changed:
        raise BadInputError(
            f"{job.metadata.name} has succeeded, and {file} has changed since: {', '.join(changed)}. {anew}"
        )
    screen.print(f"{job.metadata.name} has succeeded already. {anew}")
    return 0


def _carry_on(runner: Runner, display: Display) -> bool:
    """Runs the job to its end, or until it is stopped; True if it was stopped before its end."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: runner.interrupt())
    with display.following(lost=runner.interrupt, heard=lambda: runner.job.status):
        status = runner.run()
    return runner.interrupted and not status.finished


def _say_what_starts(screen: Screen, job: DDPJob, backend: str, directory: RunDirectory) -> None:
    nodes, procs = job.spec.nodes, job.spec.resolved_procs_per_node()
    again = f", going on from attempt {job.status.attempt}" if job.status.attempt else ""
    screen.print(f"{job.metadata.name}: {world(nodes, procs)}, backend {backend}{again}")
    screen.print(f"logs and checkpoints: {file_path(directory.root)}")


def _say_what_came_of_it(
    screen: Screen, job: DDPJob, progress: Progress, directory: RunDirectory, file: Path
) -> None:
    saved = progress.saved.values.get("checkpoint") if progress.saved else None
    checkpoint = file_path(Path(saved)) if saved else None
    summarise(screen, job, progress, checkpoint=checkpoint, logs=file_path(directory.logs))
    if job.status.state is State.SUSPENDED:
        screen.print(f"Go on with: {itself()} run {file}")
    advise(screen, job)
