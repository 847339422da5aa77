"""Runs the command that the parsed arguments name."""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from ddpjob_operator.api import BadInputError
from ddpjob_operator.text import visible

from .main import BAD_INPUT
from .phrases import INTERRUPTED, Rest, about_a_file

T = TypeVar("T")

UNREAD = 1
FAILED = 1
"""Exit code if a command failed for one or more of its names. As in kubectl, the other names are still processed."""


SHOW_ALL = frozenset({"top", "dashboard"})
"""Commands for jobs here, on a cluster and in a history at once."""


def call(arguments: argparse.Namespace) -> int:
    """Runs the command that the arguments name, and returns its exit code."""
    try:
        results = [_answer(partial(_call, single)) for single in each(arguments)]
        codes = [result if isinstance(result, int) else _answer(result) for result in results]
        if sys.stdout is not None:  # It is None in `ddpjob ls >&-`.
            sys.stdout.flush()
        return codes[0] if len(codes) == 1 else FAILED * any(codes)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        from .screen import drop_output  # noqa: PLC0415  Importing rich is slow.

        # The reader closed the pipe, as `head` does.
        drop_output()
        return UNREAD
    except OSError as error:
        from .screen import complain, drop_output, is_of_output  # noqa: PLC0415

        if not is_of_output(error):
            raise
        drop_output()
        complain(f"error: cannot write: {error.strerror}")
        return FAILED


def _check_working_directory() -> None:
    """Checks that the working directory exists, because relative paths are resolved from it.

    Raises:
        BadInputError: the working directory was removed.
    """
    try:
        Path.cwd()
    except OSError as error:
        raise BadInputError(f"cannot use the current directory ({error.strerror}); cd to another one") from None


def each(arguments: argparse.Namespace) -> list[argparse.Namespace]:
    """Copies of the arguments, one for each distinct name that the command was given."""
    given = vars(arguments)
    names = dict.fromkeys(given.get("names", ()))
    return [argparse.Namespace(**given | {"name": name}) for name in names] or [arguments]


def _answer(do: Callable[[], T]) -> T | int:
    try:
        return do()
    except BadInputError as error:
        message = str(error)
    except OSError as error:
        if not isinstance(error.filename, str):
            raise  # The error names no file, so it is not the user's mistake.
        message = about_a_file(error)
    print(f"error: {visible(message)}", file=sys.stderr)
    return BAD_INPUT


def _call(arguments: argparse.Namespace) -> int | Rest:
    """Runs a command for one name; returns its exit code, or a function to call after all names are processed."""
    _check_working_directory()
    return load(arguments)(arguments)


def load(arguments: argparse.Namespace) -> Callable[[argparse.Namespace], int | Rest]:
    """Imports what the command needs, and returns the function that carries it out."""
    if arguments.command == "run" and arguments.on is not None:
        from .cluster import call as on_held_nodes  # noqa: PLC0415  Each tenth of a second of imports is waited for.

        return on_held_nodes
    if arguments.command in SHOW_ALL and (arguments.history is not None or arguments.reader_image is None):
        if arguments.command == "top":
            from .top import top  # noqa: PLC0415

            return top
        from .dashboard import dashboard  # noqa: PLC0415

        return dashboard
    from .here import here_or_there  # noqa: PLC0415

    return here_or_there
