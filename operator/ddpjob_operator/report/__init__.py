"""A run in one HTML page, from what it has left in files.

Needs the extra `report`. Imports api and local.
"""

from .found import Found, find
from .page import render

__all__ = ["Found", "find", "render"]
