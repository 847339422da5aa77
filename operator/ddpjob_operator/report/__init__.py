"""A run in one HTML page, from what it has left in files.

Needs the extra `report`. Imports api and local.
"""

from .page import render
from .records import Entry, Recorded, Start
from .run_data import Found, find

__all__ = ["Entry", "Found", "Recorded", "Start", "find", "render"]
