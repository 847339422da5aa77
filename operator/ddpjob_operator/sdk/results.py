"""Reads the result of a job that has succeeded: from its status or, if it is large, from its history."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ddpjob_operator.api import BadInputError, DDPJob
from ddpjob_operator.cli.cluster.kept import opened_place
from ddpjob_operator.client import Cluster
from ddpjob_operator.engine import history_of
from ddpjob_operator.history import HistoryPlace, is_written_by, open_place
from ddpjob_operator.local import RunDirectory
from ddpjob_operator.text.foreign_json import parsed

MOST_BYTES = (1 << 20) + (1 << 16)
"""The largest file with a result: the result itself, and a line about its writer."""


def result_of(job: DDPJob, cluster: Cluster | None = None, run: RunDirectory | None = None) -> Any:
    """A job's result; None if it has set none.

    `cluster` is where the job has run; None for this machine, where `run` is its directory.

    Raises:
        BadInputError: It is in a history that cannot be read.
        ClusterError: It is on a volume claim, and the cluster cannot be reached, or refuses.
    """
    status = job.status
    if status.result is not None:
        return _parsed(job, status.result, "its status")
    if status.result_place is None:
        return None
    with _place(job, cluster, run) as place:
        content = place.read(status.result_place, MOST_BYTES)
    where = f"{place}/{status.result_place}"
    if content is None:
        raise BadInputError(f"the result of {job.metadata.name} is no longer in {where}")
    head, _, record = content.partition(b"\n")
    if not is_written_by(_parsed(job, head, where), {"uid": job.metadata.uid}):
        raise BadInputError(f"{where} is not the result of {job.metadata.name}")
    kept = _parsed(job, record, where)
    return kept.get("result") if isinstance(kept, dict) else None


def _place(job: DDPJob, cluster: Cluster | None, run: RunDirectory | None) -> AbstractContextManager[HistoryPlace]:
    """The place with the job's history or, without one, with the run's result."""
    if cluster is not None:
        return opened_place(cluster, job)
    path = history_of(job) or (None if run is None else str(run.results))
    if path is None:
        raise BadInputError(f"the result of {job.metadata.name} is in no history")
    return nullcontext(open_place(path))


def _parsed(job: DDPJob, content: str | bytes, where: str) -> Any:
    try:
        return parsed(content)
    except ValueError:
        raise BadInputError(f"{where} holds no result of {job.metadata.name} that can be read") from None
