"""`ddpjob stop NAME`: lets a run on this machine save and stop. Its files are kept, so that it can go on later."""

import errno
import signal

from ddpjob_operator.api import BadInputError
from ddpjob_operator.engine import Event
from ddpjob_operator.local import RunDirectory, Runs, end_ranks, find_run, stop_job
from ddpjob_operator.text import one_line

from .invocation import itself
from .phrases import how_to_resume

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def stop(runs: Runs, name: str) -> int:
    """Stops a run, and returns when none of its processes is left.

    Raises:
        BadInputError: there is no such run, another user or machine is running it, or it was started again
            meanwhile.
    """
    run = find_run(runs, name)
    if run.lock.holder():
        run.lock.signal(signal.SIGINT)
        run.lock.wait()
    try:
        _stop_what_goes_on(run)
    except OSError as error:
        if error.errno not in FULL:
            raise
        end_ranks(run)
        why = f"{error.strerror}: {error.filename}"
        print(f"{name}: none of its processes runs any more, but its status cannot be written: {why}.")
        print("Make room, and then")
        print(f"resume it with: {itself()} {run.resume}")
        print(f"or remove it with: {itself()} rm {name}")
        return 0
    job = run.load()
    assert job is not None, "find_run found its file"
    print(f"{name}: {job.status.state}. {one_line(job.status.message)}")
    if not job.status.finished:
        print(*how_to_resume(f"{itself()} {run.resume}", job.status), sep="\n")
    return 0


def _stop_what_goes_on(run: RunDirectory) -> None:
    """Stops the processes that a killed `ddpjob run` has left behind."""
    lock, job = run.lock, run.load()
    if job is None or job.status.finished:
        return
    if not lock.acquire():
        raise BadInputError(f"{run.root.name} was started again meanwhile (process {lock.holder()})")
    try:
        stop_job(run, job, [], _tell)
    finally:
        lock.release()


def _tell(event: Event) -> None:
    print(f"ddpjob: {one_line(event.message)}")
