"""`ddpjob ls --history`: the jobs that have a history in a directory or an object store, the newest first."""

import json
import sys
from datetime import UTC, datetime
from itertools import islice

from ddpjob_operator.api import BadInputError
from ddpjob_operator.api.words import age
from ddpjob_operator.history import MOST_JOBS, HistoryPlace, Unreadable, is_of_one_job, kept_jobs, namespaces_of

from .table import beginning, tabulate

LEAST_OF_UID = 8
"""How many characters of a uid are shown on a narrow terminal: enough for --uid."""
COLUMNS = ("NAMESPACE", "NAME", "RESULT", "AGE", "BEGAN", "UID")


def list_jobs(
    place: HistoryPlace, namespace: str | None, name: str | None, output: str | None, unreadable: Unreadable
) -> int:
    """Prints a line for each job, or for each job of a name; `output` may be `json`.

    Raises:
        BadInputError: There is no job.
        PlaceError: The place cannot be read.
    """
    if is_of_one_job(place):
        raise BadInputError(f"{place} is the folder of one job: see it with ddpjob status --history {place}")
    found = kept_jobs(place, [namespace]) if namespace else kept_jobs(place, namespaces_of(place), unreadable)
    newest = [*islice(found, MOST_JOBS + 1)]
    jobs = [job for job in newest[:MOST_JOBS] if name in {None, job.name}]
    if not jobs:
        wanted = f" of a job named {name}" if name else ""
        raise BadInputError(f"{place} lists no history{wanted}{f' in namespace {namespace}' if namespace else ''}")
    if output == "json":
        fields = ("namespace", "name", "uid", "result")
        print(json.dumps([{field: getattr(job, field) for field in fields} | {"began": job.moment} for job in jobs]))
    else:
        now = datetime.now(UTC)
        rows = [
            (
                job.namespace,
                job.name,
                job.result,
                age(datetime.fromtimestamp(job.began, UTC), now),
                job.moment,
                job.uid,
            )
            for job in jobs
        ]
        tabulate(COLUMNS, rows, fit=beginning, least=LEAST_OF_UID)
    if len(newest) > MOST_JOBS:
        print(f"ddpjob: there are more jobs; only the newest {MOST_JOBS:,} were looked at", file=sys.stderr)
    return 0
