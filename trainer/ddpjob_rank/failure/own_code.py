"""The program's own code: the frames of an error that belong to it, and the statements of a file."""

import ast
import traceback
from pathlib import Path

from .whose import is_of_a_library, is_ours


def own_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The frames that belong to the program's own code, the outermost first."""
    frames = traceback.extract_tb(error.__traceback__)
    return [frame for frame in frames if not is_ours(frame.filename) and not is_of_a_library(frame.filename)]


def place_of(error: BaseException) -> str:
    """The file and the line of the innermost frame in the program's own code; empty if there is none."""
    own = own_frames(error)
    return f"{own[-1].filename}:{own[-1].lineno}" if own else ""


def statements_of(file: str) -> list[ast.stmt]:
    """The statements of a file that are outside functions and classes; empty if it cannot be read or parsed."""
    try:
        return ast.parse(Path(file).read_bytes()).body
    # The last two mean that the code is nested too deeply.
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []
