"""A run on one HTML page, from the files that it has left.

Needs the extra `report`. Imports api and local.
"""

from .page import render
from .records import Record, Records, Start
from .run_data import RunData, find

__all__ = ["Record", "Records", "RunData", "Start", "find", "render"]
