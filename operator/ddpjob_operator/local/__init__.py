"""The process adapter: the same engine, with processes of this machine for pods."""

from .differences import as_here, differences
from .machine import choose_backend, visible_gpus
from .opening import open_job
from .run_directory import RUNS, RunDirectory, find_run, find_runs
from .runner import Runner, check_runs_here

__all__ = [
    "RUNS",
    "RunDirectory",
    "Runner",
    "as_here",
    "check_runs_here",
    "choose_backend",
    "differences",
    "find_run",
    "find_runs",
    "open_job",
    "visible_gpus",
]
