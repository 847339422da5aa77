"""Decides whether `ddpjob run` runs a new job or the one in the run directory, and prepares the directory."""

import shutil
from collections.abc import Callable
from pathlib import Path

from ddpjob_operator.api import BadInputError, DDPJob, DDPJobSpec, DDPJobStatus
from ddpjob_operator.api.contract import FORMER_VERSION
from ddpjob_operator.api.job import renewed
from ddpjob_operator.api.rules import FIXED
from ddpjob_operator.engine import Event

from .processes import Pods
from .run_directory import RunDirectory, new_uid
from .runner import Runner

Tell = Callable[[Event], None]


def open_job(run: RunDirectory, wanted: DDPJob, gpus: list[str], tell: Tell, *, fresh: bool) -> DDPJob:
    """Returns the job to run, with the spec of `wanted`. The caller must hold the run directory's lock.

    An unfinished job goes on. A failed job starts again from its checkpoints. A job that has succeeded is returned
    unchanged, so that it does not run again. `fresh` deletes the earlier job, its logs and its checkpoints.

    Raises:
        BadInputError: an older release of DDPJob, with a former version of the CRD, started the job, and it has not
            finished.
    """
    known = run.load()
    if known is not None:
        _check_version(run, known)
    if known is not None and fresh:
        stop_job(run, known, gpus, tell)
        _forget(run)
        known = None
    _choose_directory(run, tell, anew=known is None)
    if known is None:
        return _new(wanted)
    if not known.status.finished:
        return _gone_on(run, known, wanted, gpus, tell)
    if known.status.succeeded:
        return known
    _set_aside(run, known)
    job = _new(wanted)
    run.save(job)  # If nothing is started after all, the run must still be found by its name.
    return job


def _check_version(run: RunDirectory, known: DDPJob) -> None:
    if known.status.former and not known.status.finished:
        name = run.root.name
        raise BadInputError(
            f"{name} was started by a release with {FORMER_VERSION} of the DDPJob type, and this release "
            f"cannot go on with it. Its files are in {run.root}. Copy what you need, then remove the run: "
            f"ddpjob rm {name}"
        )


def _choose_directory(run: RunDirectory, tell: Tell, *, anew: bool) -> None:
    """Sets the ranks' working directory to the one in which the run was first started, so that they find their files.

    If that directory is missing, or `anew` is set, the ranks run in the current directory, as with torchrun.
    """
    here, known = Path.cwd(), None if anew else run.work
    if known == here:
        return
    if known is not None and known.is_dir():
        tell(_notice(f"the ranks run in {known}, where this run was first started; to start a new run here: --fresh"))
        return
    if known is not None:
        tell(_notice(f"the ranks run in {here}, because {known}, where this run was first started, no longer exists"))
    run.work_in(here)


def _notice(text: str) -> Event:
    return Event(warning=False, reason="Notice", message=text)


def _new(wanted: DDPJob) -> DDPJob:
    metadata = wanted.metadata.model_copy(update={"uid": new_uid()})
    return wanted.model_copy(update={"metadata": metadata, "status": DDPJobStatus()})


def _gone_on(run: RunDirectory, known: DDPJob, wanted: DDPJob, gpus: list[str], tell: Tell) -> DDPJob:
    """Gives the known job the wanted spec, and its trace context and git commit, as far as they are known.

    Stops the job first if this change is not allowed while it runs.
    """
    if stops_first(known.spec, wanted.spec):
        known = stop_job(run, known, gpus, tell)
    changed = known.spec != wanted.spec
    generation = known.metadata.generation + changed
    annotations = renewed(known.metadata.annotations, wanted.metadata.annotations)
    metadata = known.metadata.model_copy(update={"generation": generation, "annotations": annotations})
    return known.model_copy(update={"metadata": metadata, "spec": wanted.spec})


def stops_first(known: DDPJobSpec, wanted: DDPJobSpec) -> bool:
    """Whether a rule forbids this change of the spec while processes are running.

    A job whose `spec.suspend` is true counts as running too, because it may still have processes.
    """
    before, after = ({**spec.to_dict(), "suspend": False} for spec in (known, wanted))
    return any(rule.broken(after, before) for rule in FIXED if rule.local)


def stop_job(run: RunDirectory, known: DDPJob, gpus: list[str], tell: Tell) -> DDPJob:
    """Suspends a job; returns it when its processes have saved and ended. The caller must hold the directory's lock.

    Raises:
        BadInputError: an older release of DDPJob, with a former version of the CRD, started the job, and it has not
            finished.
    """
    _check_version(run, known)
    suspended = known.spec.model_copy(update={"suspend": True})
    runner = Runner(run, known.model_copy(update={"spec": suspended}), gpus, tell)
    runner.run()
    return runner.job


def end_ranks(run: RunDirectory) -> None:
    """Ends the processes of a run without writing to its directory. Returns when no process is left."""
    pods = Pods(run, lambda: None)
    pods.terminate()
    pods.wait()


def remove_run(run: RunDirectory) -> None:
    """Removes a run's directory, but not the targets of links in it. The caller must hold the directory's lock.

    job.json is deleted near the end. If the removal crashes before that, the run can still be found and removed.
    """
    last = (run.job_file, run.lock_file)
    for entry in set(run.root.iterdir()) - set(last):
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    for file in last:
        file.unlink()
    run.root.rmdir()


def _forget(run: RunDirectory) -> None:
    for directory in (run.pods, run.logs, run.volumes):
        shutil.rmtree(directory)
    shutil.rmtree(run.secrets, ignore_errors=True)
    run.service_file.unlink(missing_ok=True)
    run.forget_request()
    run.job_file.unlink()
    run.create()


def _set_aside(run: RunDirectory, known: DDPJob) -> None:
    """Moves the old job's logs and status to `former-<uid>`, to make room for a new job of the same name.

    job.json is moved last, so that the next call completes the work of a call that crashes.
    """
    aside = run.root / f"former-{known.metadata.uid[:8]}"
    aside.mkdir(exist_ok=True)
    if not (aside / "logs").exists():
        run.logs.rename(aside / "logs")
    shutil.rmtree(run.pods)
    shutil.rmtree(run.secrets, ignore_errors=True)
    run.service_file.unlink(missing_ok=True)
    run.forget_request()
    run.job_file.rename(aside / "job.json")
    run.create()
