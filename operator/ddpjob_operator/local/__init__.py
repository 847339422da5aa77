"""The engine's adapter for one machine. It runs pods as processes of this machine."""

from .files import Lock, tail
from .lifecycle import end_ranks, open_job, remove_run, stop_job
from .local_spec import differences, spec_for_this_machine
from .look import look, page_of, status_page
from .machine import choose_backend, visible_gpus
from .registry import (
    NoRunError,
    Runs,
    all_runs,
    find_run,
    find_runs,
    known_runs,
    names_in_use,
    register,
    registered,
    unregister,
)
from .run_directory import CODE, REQUEST_SIGNAL, RESULTS, RUNS, RunDirectory
from .runner import ASIDE, Runner, check_runs_here

__all__ = [
    "ASIDE",
    "CODE",
    "REQUEST_SIGNAL",
    "RESULTS",
    "RUNS",
    "Lock",
    "NoRunError",
    "RunDirectory",
    "Runner",
    "Runs",
    "all_runs",
    "check_runs_here",
    "choose_backend",
    "differences",
    "end_ranks",
    "find_run",
    "find_runs",
    "known_runs",
    "look",
    "names_in_use",
    "open_job",
    "page_of",
    "register",
    "registered",
    "remove_run",
    "spec_for_this_machine",
    "status_page",
    "stop_job",
    "tail",
    "unregister",
    "visible_gpus",
]
