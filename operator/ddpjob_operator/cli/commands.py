"""Runs the command that the parsed arguments name."""

import argparse
import contextlib
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from ddpjob_operator.api import BadInputError
from ddpjob_operator.local import NoRunError, Runs
from ddpjob_operator.text import visible

from .checkpoint import checkpoint
from .completion import script
from .counterparts import refuse
from .export import export
from .from_history import COMMANDS
from .from_history import call as from_history
from .init import init
from .logs import logs, which_of
from .ls import ls
from .main import BAD_INPUT
from .phrases import INTERRUPTED, Rest, about_a_file
from .prune import prune
from .remove import remove
from .report import report
from .run import run
from .screen import drop_output, is_of_output
from .status import stacks, status, watch
from .stop import stop
from .target import if_on_cluster, on_cluster, runs_of
from .validate import validate
from .version import version

T = TypeVar("T")

UNREAD = 1
FAILED = 1
"""Exit code if a command failed for one or more of its names. As in kubectl, the other names are still processed."""


HERE_ALONE = frozenset({"run", "init", "validate", "report", "export", "ls", "prune", "stop", "rm", "completion"})
"""Commands that only work on this machine, except `run --on`."""


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
        # The reader closed the pipe, as `head` does.
        drop_output()
        return UNREAD
    except OSError as error:
        if not is_of_output(error):
            raise
        drop_output()
        with contextlib.suppress(OSError):
            print(f"error: cannot write: {error.strerror}", file=sys.stderr, flush=True)
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
    if arguments.command == "version":
        return version(arguments)
    if getattr(arguments, "history", None) is not None and arguments.command in (*COMMANDS, "ls"):
        return from_history(arguments)
    if arguments.command == "ls" and arguments.name is not None:
        raise BadInputError(
            f"ls {arguments.name}: a name goes with --history; ddpjob status {arguments.name} shows a run"
        )
    if getattr(arguments, "uid", None) is not None:
        raise BadInputError("--uid chooses among jobs of one name in a history; use it with --history")
    if getattr(arguments, "reader_image", None) is not None:
        raise BadInputError(
            "--reader-image is for the pod that reads a claim; it goes with --history pvc://CLAIM/PATH"
        )
    if _is_for_cluster(arguments):
        from .cluster import call  # noqa: PLC0415  Importing the client is slow.

        return call(arguments)
    runs = runs_of(arguments)
    try:
        return HERE.get(arguments.command, _refuse)(arguments, runs)
    except NoRunError as error:
        raise BadInputError(f"{error}{if_on_cluster(arguments)}") from None


def _status(arguments: argparse.Namespace, runs: Runs) -> int:
    if arguments.watch:
        watch(runs, arguments.name)
    if arguments.stacks:
        return stacks(runs, arguments.name)
    return status(runs, arguments.name, arguments.output)


def _logs(arguments: argparse.Namespace, runs: Runs) -> int:
    return logs(runs, arguments.name, which_of(arguments), follow=arguments.follow)


def _debug(arguments: argparse.Namespace, runs: Runs) -> int:
    return stacks(runs, arguments.name) if arguments.stacks else _refuse(arguments, runs)


def _refuse(arguments: argparse.Namespace, runs: Runs) -> int:
    return refuse(runs, arguments.name, arguments.command)


HERE: dict[str, Callable[[argparse.Namespace, Runs], int]] = {
    "run": run,
    "init": lambda arguments, _: init(arguments),
    "completion": lambda arguments, _: script(arguments.shell),
    "validate": lambda arguments, _: validate(arguments.files),
    "status": _status,
    "export": lambda arguments, _: export(arguments),
    "ls": lambda arguments, runs: ls(runs, arguments.output, arguments.state),
    "prune": lambda arguments, _: prune(arguments),
    "stop": lambda arguments, runs: stop(runs, arguments.name),
    "rm": lambda arguments, runs: remove(runs, arguments.name),
    "delete": lambda arguments, runs: remove(runs, arguments.name),
    "logs": _logs,
    "debug": _debug,
    "checkpoint": lambda arguments, runs: checkpoint(runs, arguments.name, wait=arguments.wait == "true"),
    "report": lambda arguments, runs: report(runs, arguments.name, arguments.output),
}
"""The functions that carry out commands on this machine; other commands are refused."""


def _is_for_cluster(arguments: argparse.Namespace) -> bool:
    if arguments.command == "run" and arguments.on is not None:
        return True
    if arguments.command in HERE_ALONE:
        return False
    return arguments.command in {"submit", "hold"} or on_cluster(arguments)
