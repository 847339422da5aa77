"""`ddpjob logs NAME` of a cluster's job: what its ranks have written, merged and prefixed as in local mode."""

import sys

from ddpjob_operator.api import BadInputError, DDPJob
from ddpjob_operator.cli.follow import Line
from ddpjob_operator.cli.words import writer
from ddpjob_operator.client import ClusterError, Document, Jobs, Pod, as_job, present, previous

from .life import UNNOTICED, Life
from .pod_logs import FOLLOWED, PodLogs

POLL_SECONDS = 0.2


def logs(jobs: Jobs, name: str | None, rank: int | None, *, follow: bool, previous: bool) -> int:
    """Prints the logs of the present pods, or of those before them.

    What it waits for, and whatever else is not a line of a log, goes to standard error.

    Raises:
        BadInputError: there is no such job, rank or attempt.
        ClusterError: the cluster does not do its part.
    """
    document = jobs.get(name) if name else jobs.only()
    job = as_job(document)
    nodes = job.status.nodes or job.spec.nodes
    if rank is not None and not 0 <= rank < nodes:
        raise BadInputError(f"no rank {rank}; {job.metadata.name} has 0 to {nodes - 1}")
    pods = jobs.pods(document)
    if previous:
        return _print(jobs, job, _before(job, pods), rank)
    if follow and not job.status.finished:
        return _follow(jobs, document, pods, rank)
    return _print(jobs, job, present(pods), rank)


def _before(job: DDPJob, pods: list[Pod]) -> list[Pod]:
    found = previous(pods)
    if not found:
        ended = f" Its end: {job.status.last_failure.message}" if job.status.last_failure else ""
        raise BadInputError(f"no pod of a previous attempt is left, and its log went with it.{ended}")
    return found


def _print(jobs: Jobs, job: DDPJob, pods: list[Pod], rank: int | None) -> int:
    """Prints each log as far as it goes; 1 if one cannot be had."""
    wanted = [pod for pod in pods if rank is None or pod.rank == rank]
    code = 0
    for pod in wanted:
        try:
            for _, text in jobs.log(pod) if pod.started else ():
                print(_line(job, pod, text))
        except ClusterError as error:
            code = 1
            _say(f"rank {pod.rank}: {error}")
    waits_for = job.status.message or UNNOTICED
    without = [str(pod.rank) for pod in wanted if not pod.started]
    if without:
        _say(f"no log yet of rank {', '.join(without)}: {waits_for}")
    if not wanted:
        gone = "its pods are gone, and their logs with them"
        _say(gone if job.status.finished else f"no log yet: {waits_for}")
    return code


def _follow(jobs: Jobs, document: Document, pods: list[Pod], rank: int | None) -> int:
    """Prints lines as they come, until the job ends."""
    life = Life(jobs, document)
    if rank is None and life.job.spec.nodes > FOLLOWED:
        _say(f"ranks 0 to {FOLLOWED - 1} of {life.job.spec.nodes}; follow another one with --rank")
    ranks = range(FOLLOWED) if rank is None else (rank,)
    stream = PodLogs(jobs, document, ranks, writer(life.job.spec.resolved_procs_per_node()))
    stream.follow(skipped=previous(pods))
    while True:
        over = life.over
        if over:
            stream.settle()
        for line in stream.lines():
            print(line, flush=True)
        if stream.problem:
            raise stream.problem
        if over:
            return 0
        for event in life.news(POLL_SECONDS):
            if event.reason == "Notice":
                _say(event.message)


def _line(job: DDPJob, pod: Pod, text: str) -> Line:
    return Line(pod.rank, pod.incarnation, text, writer(job.spec.resolved_procs_per_node()))


def _say(text: str) -> None:
    print(f"ddpjob: {text}", file=sys.stderr, flush=True)
