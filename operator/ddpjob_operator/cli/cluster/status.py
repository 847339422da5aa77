"""`ddpjob status [NAME]` of a cluster's jobs, in the words of local mode."""

import json
from datetime import UTC, datetime

from ddpjob_operator.cli.describe import describe
from ddpjob_operator.cli.screen import Screen
from ddpjob_operator.cli.status import COLUMNS, row, tabulate
from ddpjob_operator.cli.words import age
from ddpjob_operator.client import Document, Jobs, RefusedError, as_job, when

from .life import unnoticed

EVENTS = 10
"""So many of the last events are shown."""


def status(jobs: Jobs, name: str | None, *, as_json: bool, everywhere: bool) -> int:
    """Prints one job in full, or a line for each.

    Raises:
        BadInputError: there is no such job.
        ClusterError: the cluster does not do its part.
    """
    if name is None:
        return _list(jobs, as_json=as_json, everywhere=everywhere)
    document = jobs.get(name)
    if as_json:
        print(json.dumps(document, indent=2))
        return 0
    screen = Screen()
    job = as_job(document)
    where = f"{job.metadata.namespace} of context {jobs.cluster.context}"
    describe(screen, job, datetime.now(UTC), Namespace=where)
    if not job.status.message:
        screen.print(f"\n{unnoticed(job)}")
    _tell_events(screen, jobs, document)
    return 0


def _list(jobs: Jobs, *, as_json: bool, everywhere: bool) -> int:
    documents = jobs.all(everywhere=everywhere)
    if as_json:
        print(json.dumps(documents, indent=2))
        return 0
    if not documents:
        where = "any namespace" if everywhere else f"namespace {jobs.cluster.namespace}"
        print(f"no DDPJobs in {where} of {jobs.cluster}; start one with: ddpjob submit FILE")
        return 0
    columns = ("NAMESPACE", *COLUMNS) if everywhere else COLUMNS
    tabulate(columns, [_row(document, everywhere=everywhere) for document in documents])
    return 0


def _row(document: Document, *, everywhere: bool) -> tuple[str, ...]:
    job = as_job(document)
    cells = row(job, _age(document["metadata"]["creationTimestamp"]))
    return (job.metadata.namespace, *cells) if everywhere else cells


def _tell_events(screen: Screen, jobs: Jobs, document: Document) -> None:
    try:
        events = jobs.events(document)[-EVENTS:]
    except RefusedError as error:  # What is above is worth having without them.
        screen.print(f"Events are not shown: {error}")
        return
    if events:
        screen.print("Events:")
    for event in events:
        text = f"  {event['type']:<20}{'':<7}{_age(when(event)):<6}{event['reason']}: {event['message']}"
        screen.print(text)


def _age(moment: str) -> str:
    return age(datetime.fromisoformat(moment))
