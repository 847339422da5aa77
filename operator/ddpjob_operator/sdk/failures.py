"""The errors of a job's end, as a tree.

    JobFailed           the job has failed
    └── RankFailed      because a rank failed first

A user's mistake is a BadInputError, and a cluster that does not answer or refuses is a ClusterError, as for the
command; the text of each is the one that the command prints.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from ddpjob_operator.api import DDPJob, DDPJobStatus, Incident
from ddpjob_operator.api.reasons import FROM_OUTSIDE
from ddpjob_operator.text import visible

from .tracebacks import last_traceback


class JobFailed(Exception):  # noqa: N818  The job has failed, not the program that reads this.
    """The job has failed.

        try:
            job.result()
        except ddpjob.JobFailed as failed:
            print(failed.name, failed.status.reason, failed.hint)

    `Job.result` raises it.
    """

    name: str
    """The job's name."""
    status: DDPJobStatus
    """The job's last status."""
    hint: str
    """What to do next; empty if DDPJob has no advice."""


class RankFailed(JobFailed):
    """The job has failed because a rank has failed.

        try:
            job.result()
        except ddpjob.RankFailed as failed:
            print(failed.rank, failed.node_name, failed.step, failed.cause)
            print(failed.remote_traceback)

    The attributes describe the rank that failed first. If the log has a traceback, it is shown with the error.
    """

    rank: int | None
    """The rank that failed first; None if only its node is known."""
    node: int
    """The number of its node in the job."""
    node_name: str | None
    """The Kubernetes node that its pod ran on; None if it is unknown."""
    pod: str
    """The name of its pod."""
    attempt: int
    """The attempt that the failure ended."""
    step: int | None
    """The last step that the rank had finished; None if it is unknown."""
    cause: str
    """Why it failed, in one word, such as `Application` or `OutOfMemory`."""
    exit_code: int | None
    """The exit code of its process; None if it is unknown."""
    remote_traceback: str
    """The last traceback in its log; empty if the log has none, or is gone with its pod."""


Failure = TypeVar("Failure", bound=JobFailed)


def failure(job: DDPJob, hint: str, log: Callable[[Incident], Sequence[str]]) -> JobFailed:
    """The error of a failed job: a RankFailed, unless the job has failed although no rank has.

    `log` returns the last lines of the log of the rank in an incident.
    """
    name, status, incident = job.metadata.name, job.status, job.status.last_incident
    message = f"{name} has failed: {visible(status.message)}"
    if incident is None or status.reason in FROM_OUTSIDE:
        return _described(JobFailed(message), name, status, hint)
    return _described(_rank_failed(message, incident, log(incident)), name, status, hint)


def failure_on_hold(job: DDPJob, message: str, incident: Incident | None, log: Sequence[str]) -> JobFailed:
    """The error of a program that has failed on a held job. `log` is the end of its output on the incident's node."""
    said = f"the program on {job.metadata.name} has failed: {message}"
    error = JobFailed(said) if incident is None else _rank_failed(said, incident, log)
    return _described(error, job.metadata.name, job.status, "")


def _rank_failed(message: str, incident: Incident, log: Sequence[str]) -> RankFailed:
    """The error of a rank, whose last traceback is taken from the end of its log."""
    error = RankFailed(message)
    error.rank, error.node, error.node_name = incident.rank, incident.node, incident.node_name
    error.pod, error.attempt, error.step = incident.pod, incident.attempt, incident.step
    error.cause, error.exit_code = str(incident.cause), incident.exit_code
    error.remote_traceback = last_traceback(log)
    if error.remote_traceback:
        shown = "\n".join(map(visible, error.remote_traceback.splitlines()))
        error.add_note(f"\nIn the log of {incident.pod}:\n\n{shown}\n")
    return error


def _described(error: Failure, name: str, status: DDPJobStatus, hint: str) -> Failure:
    error.name, error.status, error.hint = name, status, hint
    if hint:
        error.add_note(hint)
    return error
