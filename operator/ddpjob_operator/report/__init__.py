"""Renders a report of a run as one HTML page, from the files in the run's directory.

Needs the extra `report`. Imports api and local.
"""

from .page import render
from .run_data import Kept, LastLines, ProgramRun, RunData, find

__all__ = ["Kept", "LastLines", "ProgramRun", "RunData", "find", "render"]
