"""A run in one HTML page, from what it has left in files.

Needs the extra `report`. Imports api and local.
"""

from .found import Found, find
from .page import render
from .recorded import Entry, Recorded, Start

__all__ = ["Entry", "Found", "Recorded", "Start", "find", "render"]
