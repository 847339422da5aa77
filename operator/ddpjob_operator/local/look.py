"""Requests from the supervisor of a run's rank 0: what each rank is doing, and its status page."""

from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Any

from ddpjob_operator.api import BadInputError, DDPJob
from ddpjob_operator.engine import LARGEST_ANSWER, pod_name
from ddpjob_operator.text.foreign_json import parsed

from .process_spec import address_of
from .processes import LocalPod
from .run_directory import RunDirectory

ANSWER_SECONDS = 15.0
QUOTED_BYTES = 400
"""If an answer contains no stacks, this many bytes of it are quoted."""
NO_ANSWER = (OSError, HTTPException, ValueError)
"""What a request raises if nobody answers, or if the answer is no JSON; Python cannot read JSON that is too deep."""


def look(run: RunDirectory) -> Any:
    """Requests the supervisor's document about what each rank is doing now.

    Raises:
        BadInputError: no process of the run is running, or its supervisor does not answer.
    """
    name, job = run.root.name, run.load()
    first = None if job is None else _rank_0(run, job)
    if first is None:
        raise BadInputError(f"{name} is not running, so it has no stacks")
    try:
        return _answer(first, "/stacks")
    except NO_ANSWER as error:
        raise BadInputError(f"{name} has no supervisor that shows stacks: {error or type(error).__name__}") from None


def page_of(run: RunDirectory, job: DDPJob) -> Any:
    """The document of the status page of rank 0's supervisor; None if there is none that answers."""
    first = _rank_0(run, job) if job.status.bookkeeping.supervised else None
    try:
        return None if first is None else _answer(first, "/status")
    except NO_ANSWER:
        return None


def _answer(place: tuple[str, int], path: str) -> Any:
    """The JSON that a supervisor answers."""
    with closing(HTTPConnection(*place, timeout=ANSWER_SECONDS)) as connection:
        connection.request("GET", path)
        with connection.getresponse() as response:  # Of a server that closes, the connection does not close it.
            answer = response.read(LARGEST_ANSWER)
    if response.status != HTTPStatus.OK:
        raise ValueError(answer[:QUOTED_BYTES].decode(errors="replace").strip())
    return parsed(answer)


def status_page(run: RunDirectory, job: DDPJob) -> str | None:
    """The URL of the page, for people, of rank 0's supervisor; None if no supervisor is running."""
    first = _rank_0(run, job) if job.status.bookkeeping.supervised else None
    return f"http://{first[0]}:{first[1]}/" if first else None


def _rank_0(run: RunDirectory, job: DDPJob) -> tuple[str, int] | None:
    """The address and the status port of rank 0's present pod; None if the pod is not running."""
    pod = LocalPod(run.pods / pod_name(job, 0, job.status.bookkeeping.incarnations.of(0)))
    # Check the lock first: a killed pod may leave damaged files, and another program may use its port by now.
    if pod.lock.holder() is None or not pod.running:
        return None
    return address_of(pod.manifest), pod.ports.status
