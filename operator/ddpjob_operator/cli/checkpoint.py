"""`ddpjob checkpoint NAME` on this machine: makes a run save now, and go on."""

import sys
import time
import uuid

from ddpjob_operator.api import BadInputError, DDPJobStatus, RequestState
from ddpjob_operator.local import Runs, find_run
from ddpjob_operator.text import visible

from .invocation import itself

POLL_SECONDS = 0.1
NOT_SAVED = 1
"""The exit code if there is no checkpoint."""


def checkpoint(runs: Runs, name: str, *, wait: bool) -> int:
    """Requests a checkpoint of a run. With `wait`, returns once it is complete, or it is clear that it will not be.

    Raises:
        BadInputError: there is no such run, it has finished, or no `ddpjob run` is in charge of it.
    """
    run = find_run(runs, name)
    job = run.load()
    assert job is not None, "find_run found its file"
    check_unfinished(name, job.status)
    if run.lock.holder() is None:
        go_on = f"{itself()} {run.resume}"
        raise BadInputError(f"no ddpjob run is in charge of {name} to pass the request on; go on with: {go_on}")
    before = job.status
    run.request_checkpoint(new_request())
    if not wait:
        return tell_requested(name, f"{itself()} status {name}")
    while True:
        ended = run.lock.holder() is None  # This is read first: `ddpjob run` writes the last status before it ends.
        job = run.load() or job
        if (code := tell_outcome(name, before, job.status)) is not None:
            return code
        if ended:
            raise BadInputError(f"ddpjob run ended before {name} had saved")
        time.sleep(POLL_SECONDS)


def new_request() -> str:
    """A word that differs from all former requests."""
    return str(uuid.uuid4())


def check_unfinished(name: str, status: DDPJobStatus) -> None:
    """Checks that a job may still save.

    Raises:
        BadInputError: it has finished.
    """
    if status.finished:
        raise BadInputError(f"{name} has {status.state.lower()}, so there is nothing to save")


def tell_requested(name: str, look: str) -> int:
    """Prints that a checkpoint was requested, and the command that shows the outcome."""
    print(f"{name}: requested a checkpoint; see the outcome with: {look}", flush=True)
    return 0


def tell_outcome(name: str, before: DDPJobStatus, now: DDPJobStatus) -> int | None:
    """Prints the outcome of a request, and returns the exit code; None while there is no outcome.

    `before` is the status before the request. The outcome of a later request counts too: its checkpoint is not older.
    """
    known, asked = before.requested_checkpoint, now.requested_checkpoint
    if asked is None or (known is not None and known.request == asked.request):
        return None
    if asked.state == RequestState.SAVED:
        print(f"{name}: the checkpoint of step {asked.step} is complete", flush=True)
        return 0
    if asked.state == RequestState.NOT_SAVED:
        print(f"error: {name}: not saved: {visible(asked.message)}", file=sys.stderr)
        return NOT_SAVED
    return None
