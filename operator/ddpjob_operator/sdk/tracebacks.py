"""Finds a traceback in the last lines of a log, and shows one in a notebook."""

import re
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from itertools import takewhile
from types import TracebackType
from typing import TypeVar

BEGIN = re.compile(r"(\[rank\d{1,6}\]: ?|)Traceback \(most recent call last\):")
"""The first line of a traceback, with what torch.distributed puts before each of its lines."""
CELL = re.compile(r'  File "(?:[^"]*/)?ddpjob_cells/([^"/]{1,64})\.py", line ')
"""The beginning of a frame's line, if the frame is in a cell of a notebook. The rest is the same in both forms."""
OURS = "/ddpjob_operator/sdk/"
MOST_LINES = 40
"""How many lines of an exception's message are taken."""

Raised = TypeVar("Raised", bound=Exception)


def last_traceback(lines: Sequence[str]) -> str:
    """The last traceback, with its exception; empty if there is none.

    Further lines of the exception's message belong to it if they have torch's prefix, too, or are indented. Other
    lines may be those of another rank, which writes to the same log.
    """
    begins = [(index, found[1]) for index, line in enumerate(lines) if (found := BEGIN.match(line))]
    if not begins:
        return ""
    begin, prefix = begins[-1]
    own = [line.removeprefix(prefix) for line in lines[begin:] if line.startswith(prefix.rstrip())]
    frames = 1 + sum(1 for _ in takewhile(_continues, own[1:]))
    message = own[frames + 1 : frames + MOST_LINES]
    trace = [*own[: frames + 1], *(message if prefix else takewhile(_continues, message))]
    return "\n".join(CELL.sub(r"  Cell \1, line ", line) for line in trace)


def as_in_notebook(error: BaseException) -> list[str]:
    """A traceback as IPython shows it, without DDPJob's own frames; only IPython calls this.

    It ends with the caller's line. The error's notes, such as the traceback of a rank, follow.
    """
    shell = import_module("IPython").get_ipython()
    trace = _of_callers(error.__traceback__)
    shown: list[str] = shell.InteractiveTB.structured_traceback(type(error), error, trace)
    text = "\n".join(shown)
    # Older versions of IPython do not show notes.
    return [*shown, *(note for note in getattr(error, "__notes__", ()) if note.strip() not in text)]


def at_callers_line(error: Raised) -> Raised:
    """An error of Python's own, whose traceback ends in a notebook with the caller's line, as those of our errors."""
    error._render_traceback_ = partial(as_in_notebook, error)  # type: ignore[attr-defined]
    return error


def _of_callers(trace: TracebackType | None) -> TracebackType | None:
    """The frames before the first one of DDPJob; all if there is none before it."""
    if trace is None or OURS in trace.tb_frame.f_code.co_filename:
        return None
    return TracebackType(_of_callers(trace.tb_next), trace.tb_frame, trace.tb_lasti, trace.tb_lineno)


def _continues(line: str) -> bool:
    return not line or line[0].isspace()
