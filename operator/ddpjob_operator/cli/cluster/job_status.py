"""`ddpjob status [NAME]` for jobs on a cluster, in the format of local mode."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

from ddpjob_operator.api import BadInputError, ConditionType, DDPJob
from ddpjob_operator.api.words import age
from ddpjob_operator.cli.describe import FULL, describe, describe_ranks, describe_spec
from ddpjob_operator.cli.invocation import itself
from ddpjob_operator.cli.rank_stacks import print_stacks
from ddpjob_operator.cli.screen import Screen
from ddpjob_operator.cli.status import WIDE
from ddpjob_operator.cli.table import COLUMNS, Growing, Row, row, tabulate
from ddpjob_operator.client import ClusterError, Document, Jobs, RefusedError, as_job, when
from ddpjob_operator.engine import pod_name
from ddpjob_operator.text import one_line
from ddpjob_operator.view_model import Around, JobKey, JobRow, Origin, job_row, rank_rows, without_secrets

from .claim_place import where_history_is
from .life import UNNOTICED_SECONDS, unnoticed
from .pod_view import pod_seen, pods_and_page

DEFAULT = "default"
EVENTS = 10
"""Only this many of the latest events are shown."""


def status(jobs: Jobs, name: str | None, output: str | None = None, *, everywhere: bool) -> int:
    """Prints one job in full, or a line for each job if `name` is None; `everywhere` means in all namespaces.

    Raises:
        BadInputError: there is no such job, or `output` is `wide` without a name.
        ClusterError: the cluster cannot be reached, or does not fulfil a request.
    """
    as_json, full = output == "json", output == FULL
    wide = full or output == "wide"
    if name is None:
        if wide:
            raise BadInputError(WIDE)
        return _list(jobs, as_json=as_json, everywhere=everywhere)
    document = jobs.get(name)
    if as_json:
        print(json.dumps(document, indent=2))
        return 0
    screen = Screen()
    job = as_job(document)
    where = {"Namespace": f"{job.metadata.namespace} of context {jobs.cluster.context}", **_run_by(job, wide=wide)}
    describe(screen, job, datetime.now(UTC), Around(_made(document), where, _links(job)), wide=wide)
    if why := unnoticed(job):
        screen.print(f"\n{why}")
    if full:
        describe_spec(screen, job)
        _describe_ranks(screen, jobs, document, job)
    _tell_events(screen, jobs, document, "" if wide else job.status.message)
    return 0


def _run_by(job: DDPJob, *, wide: bool) -> dict[str, str]:
    """The job's class, if it has one, and the operator that runs it, if that is of interest."""
    status, class_name = job.status, job.metadata.class_name
    runs_as = (status.class_name or "") if status.operator and status.start_time else class_name
    later = "" if runs_as == class_name or status.finished else f"; {class_name or DEFAULT} once it is suspended"
    operator = {"Operator": status.operator} if status.operator and (wide or runs_as or later) else {}
    return {**({"Class": f"{runs_as or DEFAULT}{later}"} if runs_as or later else {}), **operator}


def _describe_ranks(screen: Screen, jobs: Jobs, document: Document, job: DDPJob) -> None:
    pods, page, problem = pods_and_page(jobs, document, job)
    if problem:
        screen.print(f"What single ranks do is not shown: {problem}")
    describe_ranks(screen, () if job.status.finished else rank_rows(job, page, map(pod_seen, pods)))


def stacks(jobs: Jobs, name: str | None) -> int:
    """Prints what each rank of a job is doing now. If `name` is None, there must be only one job.

    Raises:
        BadInputError: there is no such job, or it is not running.
        ClusterError: the cluster cannot be reached, or does not fulfil a request; or the user is not allowed to
            forward ports to pods.
    """
    document = jobs.only() if name is None else jobs.get(name)
    print_stacks(Screen(), jobs.look(document))
    return 0


def watch(jobs: Jobs, name: str | None, *, everywhere: bool) -> int:
    """Prints a line for the job `name`, or for each job if `name` is None, and a new line whenever a job has changed.

    Raises:
        BadInputError: there is no such job.
        ClusterError: the cluster cannot be reached, or does not fulfil a request.
        KeyboardInterrupt: the user pressed Ctrl-C; without that, `watch` does not end.
    """
    if name is not None:
        jobs.get(name)
    table = Growing(_columns(everywhere=everywhere))
    with _allowed(jobs, everywhere=everywhere):
        for documents in jobs.watch_all(name, everywhere=everywhere):
            read = [(document, as_job(document)) for document in documents]
            table.show({job.metadata.uid: _row(document, job, everywhere=everywhere) for document, job in read})
    return 0


@contextmanager
def _allowed(jobs: Jobs, *, everywhere: bool) -> Iterator[None]:
    """If the API server refuses to list the jobs of all namespaces, explains which right the user lacks.

    Raises:
        ClusterError: the user lacks the right.
    """
    try:
        yield
    except RefusedError as error:
        if not (everywhere and error.forbidden):
            raise
        raise ClusterError(
            f"{jobs.cluster} does not let you see the jobs of all namespaces: you need the right to list "
            "ddpjobs in the whole cluster (a ClusterRoleBinding to ddpjob-view). For one namespace: "
            f"{itself()} status -n NAMESPACE"
        ) from None


def _list(jobs: Jobs, *, as_json: bool, everywhere: bool) -> int:
    with _allowed(jobs, everywhere=everywhere):
        documents = jobs.all(everywhere=everywhere)
    if as_json:
        print(json.dumps(documents, indent=2))
        return 0
    if not documents:
        where = "any namespace" if everywhere else f"namespace {jobs.cluster.namespace}"
        print(f"no DDPJobs in {where} of {jobs.cluster}; start one with: ddpjob submit FILE")
        return 0
    read = [(document, as_job(document)) for document in documents]
    columns, rows = _columns(everywhere=everywhere), [_row(*one, everywhere=everywhere) for one in read]
    classes = [job.metadata.class_name for _, job in read]
    if any(classes):  # It stands before the message, which is last.
        columns = (*columns[:-1], "CLASS", columns[-1])
        rows = [(*cells[:-1], name, cells[-1]) for cells, name in zip(rows, classes, strict=True)]
    tabulate(columns, rows)
    return 0


def _columns(*, everywhere: bool) -> Row:
    return ("NAMESPACE", *COLUMNS) if everywhere else COLUMNS


def _row(document: Document, job: DDPJob, *, everywhere: bool) -> Row:
    now = datetime.now(UTC)
    cells = row(row_there(document, job, now), now)
    return (job.metadata.namespace, *cells) if everywhere else cells


def row_there(document: Document, job: DDPJob, now: datetime) -> JobRow:
    """What a table shows of the job in a document at the time `now`."""
    metadata, made = job.metadata, _made(document)
    shown = job_row(job, JobKey(Origin.CLUSTER, metadata.namespace, metadata.name, metadata.uid), now, made)
    why = unnoticed(job) if (now - made).total_seconds() > UNNOTICED_SECONDS else ""
    return replace(shown, message=why, why=why) if why else shown


def _links(job: DDPJob) -> dict[str, str | None]:
    """The commands that print a job's logs and forward the port of its status page, and where its history is."""
    status, flags = job.status, f"-n {job.metadata.namespace}"
    port = status.network.status_port
    pod = pod_name(job, 0, status.bookkeeping.incarnations.of(0))
    served = status.is_true(ConditionType.RUNNING) and status.bookkeeping.supervised and port
    # A shell takes the address as a comment, so the line can be copied as a whole.
    forward = f"kubectl port-forward {flags} pod/{pod} {port}  # http://127.0.0.1:{port}/" if served else None
    logs = f"{itself()} logs {job.metadata.name} {flags}" if status.attempt else None
    return {"Logs": logs, "History": where_history_is(job) if status.attempt else None, "Status page": forward}


def _tell_events(screen: Screen, jobs: Jobs, document: Document, told: str) -> None:
    """Prints the latest events, without messages that are part of `told`."""
    try:
        events = jobs.events(document)[-EVENTS:]
    except RefusedError as error:  # The state, printed above, is useful even without events.
        screen.print(f"Events are not shown: {error}")
        return
    if events:
        screen.print("Events:")
    for event in events:
        since = age(datetime.fromisoformat(when(event)), datetime.now(UTC))
        # Kubernetes omits fields that are empty.
        kind, reason, said = (event.get(text, "") for text in ("type", "reason", "message"))
        message = "" if said in told else f": {said}"
        screen.entry(one_line(f"  {kind:<9}{since:<6}"), one_line(without_secrets(f"{reason}{message}")))


def _made(document: Document) -> datetime:
    return datetime.fromisoformat(document["metadata"]["creationTimestamp"])
