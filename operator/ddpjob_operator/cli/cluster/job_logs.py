"""`ddpjob logs NAME` for a job on a cluster: the output of its ranks, merged and prefixed as in local mode."""

import shlex
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import starmap

from ddpjob_operator.api import BadInputError, DDPJob
from ddpjob_operator.api.spec import is_url
from ddpjob_operator.api.words import listed
from ddpjob_operator.cli.from_history import print_logs
from ddpjob_operator.cli.invocation import itself
from ddpjob_operator.cli.phrases import (
    NEVER_RAN,
    check_node,
    failed_first,
    incident_of,
    nothing_ran,
    say,
    span_of_attempts,
)
from ddpjob_operator.cli.run_logs import Line, Which, attempt_of, shown_last
from ddpjob_operator.client import ClusterError, Document, JobPod, Jobs, as_job, of_attempt, present, previous_attempt
from ddpjob_operator.engine import called, history_of
from ddpjob_operator.history import find_history, open_place

from .claim_place import claim_of, why_no_history
from .life import Life, unnoticed
from .pod_logs import EVERYTHING, FOLLOWED, PodLogs

POLL_SECONDS = 0.2


def logs(jobs: Jobs, name: str | None, which: Which, *, follow: bool) -> int:
    """Prints the logs of the present pods, or those of an earlier attempt whose pods still exist.

    Everything else, such as a message about what the job is waiting for, goes to stderr.

    Raises:
        BadInputError: there is no such job, rank, node or attempt.
        ClusterError: the cluster cannot be reached, or does not fulfil a request.
    """
    document = jobs.get(name) if name else jobs.only()
    job = as_job(document)
    which = which.of_job(job, lambda rank: jobs.node_of_rank(document, jobs.pods(document), rank))
    if which.past:
        try:
            attempt, left = past_pods(job, jobs.pods(document), which)
        except BadInputError:
            if (code := _kept(job, which)) is not None:
                return code
            raise
        return _print(jobs, job, left, which, attempt)
    node = which.node
    check_node(job.metadata.name, node, job.status.nodes or job.spec.nodes)
    pods = jobs.pods(document)
    if follow and not job.status.finished:
        for line in followed_lines(jobs, document, pods, which, say):
            print(line, flush=True)
        return 0
    if not pods and (code := _kept(job, which)) is not None:
        return code
    found = present(pods, job.status)
    if node is None and found:
        _miss_first(job, found)
    return _print(jobs, job, [pod for pod in found if node is None or pod.node == node], which)


def _kept(job: DDPJob, which: Which) -> int | None:
    """Prints the logs that the job's history has; returns None if there is none, or this command cannot read it."""
    identity = job.metadata
    path = history_of(job)
    if path is None or nothing_ran(job.status):
        return None
    if not is_url(path):
        address = claim_of(job, path)
        # The path is its author's text, and the reader's shell is going to read it.
        where = shlex.quote(address or "")
        command = f"{itself()} logs {identity.namespace}/{identity.name} --history {where} --uid {identity.uid}"
        how = f"read it with: {command}" if address else "copy it, and read it with --history"
        say(f"its history is on a volume, at {path}; {how}")
        return None
    try:
        found = find_history(open_place(path), identity.namespace, identity.name, identity.uid)
        code = print_logs(found, which)
    except BadInputError as error:
        say(str(error))
        return None
    for problem in found.problems:
        say(problem)
    return code


def _miss_first(job: DDPJob, pods: list[JobPod]) -> None:
    """If the pod of the rank that failed first no longer exists, reports that its log is missing.

    For example, the pod may have been deleted because it was still running when the job failed.
    """
    first = incident_of(job.status, job.status.attempt)
    if not job.status.finished or first is None or first.cause in NEVER_RAN:
        return
    if first.node not in {pod.node for pod in pods}:
        say(f"{called(job)} {first.node} failed first, but its pod is gone, and its log with it")


def past_pods(job: DDPJob, pods: list[JobPod], which: Which) -> tuple[int, list[JobPod]]:
    """The requested attempt, and its pods that still exist and have a log, limited to the requested node, if any.

    Raises:
        BadInputError: there are none.
    """
    status = job.status
    started = [pod for pod in pods if pod.started]
    attempt = previous_attempt(started, status) if which.attempt is None else which.attempt
    found = of_attempt(started, status, attempt)
    wanted = [pod for pod in found if which.node is None or pod.node == which.node]
    if wanted:
        return attempt, wanted
    if found:
        nodes = listed([pod.node for pod in found])
        raise BadInputError(f"no log of node {which.node} is left of attempt {attempt}; there is {nodes}")
    if which.attempt is not None:
        spans = sorted({(pod.attempt, pod.last_attempt(status)) for pod in started})
        attempts = listed([*starmap(span_of_attempts, spans)])
        raise BadInputError(f"no log of attempt {attempt} is left; there is {attempts}")
    if nothing_ran(status):
        raise BadInputError(_nothing(job))
    ended = f" Its end: {status.last_incident.message}" if status.last_incident else ""
    raise BadInputError(f"no pod of a previous attempt is left, and its log went with it.{ended}")


def _print(jobs: Jobs, job: DDPJob, pods: list[JobPod], which: Which, attempt: int | None = None) -> int:
    """Prints the log of each pod, that of the node that failed first at the top; returns 1 if a log cannot be read.

    With `attempt`, prints only the lines of that attempt. (A pod's log continues through restarts in place.)
    """
    code, status = 0, job.status
    for pod in sorted(pods, key=lambda pod: pod.node != failed_first(status, attempt or pod.last_attempt(status))):
        try:
            for moment, shown in lines_of(jobs, job, pod, which, attempt):
                print(_line(job, pod, which.shown(moment, shown)))
        except ClusterError as error:
            code = 1
            say(f"{called(job)} {pod.node}: {error}")
    waits_for = unnoticed(job) or job.status.message
    without = [str(pod.node) for pod in pods if not pod.started]
    if without:
        yet = "" if job.status.finished else " yet"
        say(f"no log{yet} of {called(job)} {', '.join(without)}: {waits_for}")
    if not pods:
        gone = "its pods are gone, and their logs with them"
        if history_of(job) is None:
            gone = f"{gone}. No history is kept: {why_no_history(job)}"
        message = gone if job.status.finished else f"no log yet: {waits_for}"
        say(_nothing(job) if nothing_ran(job.status) else message)
    return code


def lines_of(
    jobs: Jobs, job: DDPJob, pod: JobPod, which: Which, attempt: int | None = None
) -> Iterable[tuple[str, str]]:
    """The lines of a pod's log, or only those of one attempt, each with its time.

    Raises:
        ClusterError: the log cannot be read.
    """
    return _read(jobs, pod, which) if attempt is None else _of(attempt, jobs, job, pod, which)


def _read(jobs: Jobs, pod: JobPod, which: Which) -> Iterator[tuple[str, str]]:
    """The lines of a pod's log as a terminal finally shows them, each with its time."""
    log = jobs.log(pod, tail=which.tail, since_seconds=which.since_seconds) if pod.has_log else ()
    return ((moment, shown) for moment, text in log if (shown := shown_last(text)) is not None)


def _of(attempt: int, jobs: Jobs, job: DDPJob, pod: JobPod, which: Which) -> Iterable[tuple[str, str]]:
    """The lines of one attempt in a pod's log.

    The limits of `which` on lines and time are applied here: a kubelet would apply them to the log of all attempts.
    """
    since, present = "", pod.attempt
    if which.since_seconds is not None:
        first = next(_read(jobs, pod, Which(since_seconds=which.since_seconds)), None)
        if first is None:
            return ()
        since, _ = first
    kept: deque[tuple[str, str]] = deque(maxlen=which.tail)
    for moment, text in _read(jobs, pod, EVERYTHING):
        present = attempt_of(text, present, job.status.attempt)
        if present == attempt and moment >= since:
            kept.append((moment, text))
    return kept


def _nothing(job: DDPJob) -> str:
    """The message for a job that has no log because it never started a program."""
    return f"nothing has started{'' if job.status.finished else ' yet'}: {unnoticed(job) or job.status.message}"


def followed_lines(
    jobs: Jobs, document: Document, pods: list[JobPod], which: Which, say: Callable[[str], None]
) -> Iterator[Line]:
    """Yields lines as they arrive, until the job ends. `say` is called with what the job waits for, if it waits.

    Raises:
        ClusterError: the job was deleted, or the cluster cannot be reached any more.
    """
    life, node = Life(jobs, document), which.node
    if node is None and life.job.spec.nodes > FOLLOWED:
        say(f"nodes 0 to {FOLLOWED - 1} of {life.job.spec.nodes}; each other node has to be followed by its number")
    nodes = range(FOLLOWED) if node is None else (node,)
    stream = PodLogs(jobs, document, nodes, called(life.job), which)
    incarnations = life.job.status.bookkeeping.incarnations
    former = [pod for pod in pods if pod.incarnation < incarnations.of(pod.node)]
    stream.follow(skipped=former, begun=[pod for pod in pods if pod.started])
    try:
        while True:
            over = life.over
            if over:
                stream.settle()
            yield from stream.lines()
            if stream.problem:
                raise stream.problem
            if over:
                return
            for event in life.news(POLL_SECONDS):
                if event.reason == "Notice":
                    say(event.message)
    finally:
        life.stop()
        stream.stop()


def _line(job: DDPJob, pod: JobPod, text: str) -> Line:
    return Line(pod.node, pod.attempt, text, called(job))
