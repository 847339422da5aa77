"""Renders a report of a run, or of several, as one HTML page, from the files in the run's directory.

Needs the extra `report`. Imports api and local.
"""

from .comparison import MOST_RUNS, compare
from .page import render
from .run_data import Kept, LastLines, ProgramRun, RunData, find

__all__ = ["MOST_RUNS", "Kept", "LastLines", "ProgramRun", "RunData", "compare", "find", "render"]
