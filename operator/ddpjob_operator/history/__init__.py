"""Reads what a job's supervisors have kept for when its pods are gone, in a directory or an object store.

Whoever can write there may have written anything, so all that is read is bounded, and is only shown. Imports api.
"""

from .job_history import JobHistory, JobIdentity, LogLine, find_history
from .places import HistoryPlace, PlaceError, open_place

__all__ = ["HistoryPlace", "JobHistory", "JobIdentity", "LogLine", "PlaceError", "find_history", "open_place"]
