"""The process adapter: the same engine, with processes of this machine for pods."""

from .machine import choose_backend, visible_gpus
from .opening import open_job
from .run_directory import RUNS, RunDirectory, find_run, find_runs
from .runner import Runner, check_runs_here

__all__ = [
    "RUNS",
    "RunDirectory",
    "Runner",
    "check_runs_here",
    "choose_backend",
    "find_run",
    "find_runs",
    "open_job",
    "visible_gpus",
]
