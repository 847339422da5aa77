"""Reads what a job's supervisors have kept for when its pods are gone, in a directory or an object store.

Whoever can write there may have written anything, so all that is read is bounded, and is only shown. Imports api.
"""

from .job_history import (
    JobHistory,
    JobIdentity,
    KeptLine,
    ManyJobsError,
    find_history,
    is_of_one_job,
    is_written_by,
)
from .job_index import MOST_JOBS, KeptJob, Unreadable, kept_jobs, namespaces_of
from .places import HistoryPlace, PlaceError, open_place
from .pruning import Retention, Stock

__all__ = [
    "MOST_JOBS",
    "HistoryPlace",
    "JobHistory",
    "JobIdentity",
    "KeptJob",
    "KeptLine",
    "ManyJobsError",
    "PlaceError",
    "Retention",
    "Stock",
    "Unreadable",
    "find_history",
    "is_of_one_job",
    "is_written_by",
    "kept_jobs",
    "namespaces_of",
    "open_place",
]
