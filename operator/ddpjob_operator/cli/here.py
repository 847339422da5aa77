"""Carries out a command on this machine, or passes it on to the part for clusters. Imports all commands."""

import argparse
from collections.abc import Callable

from ddpjob_operator.api import BadInputError
from ddpjob_operator.local import NoRunError, Runs

from .checkpoint import checkpoint
from .completion import script
from .counterparts import refuse
from .describe import FULL
from .export import export
from .from_history import COMMANDS
from .from_history import call as from_history
from .init import init
from .logs import logs, which_of
from .ls import ls
from .phrases import Rest
from .prune import prune
from .remove import remove
from .report import report
from .run import run
from .status import stacks, status, watch
from .stop import stop
from .target import if_on_cluster, on_cluster, runs_of
from .validate import validate
from .version import version

HERE_ALONE = frozenset({"run", "init", "validate", "report", "export", "ls", "prune", "stop", "rm", "completion"})
"""Commands that only work on this machine, except `run --on`."""


def here_or_there(arguments: argparse.Namespace) -> int | Rest:
    """Runs a command for one name; returns its exit code, or a function to call after all names are processed."""
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
    "describe": lambda arguments, runs: status(runs, arguments.name, FULL),
    "export": lambda arguments, _: export(arguments),
    "ls": lambda arguments, runs: ls(runs, arguments.output, arguments.state),
    "prune": lambda arguments, _: prune(arguments),
    "stop": lambda arguments, runs: stop(runs, arguments.name),
    "rm": lambda arguments, runs: remove(runs, arguments.name),
    "delete": lambda arguments, runs: remove(runs, arguments.name),
    "logs": _logs,
    "debug": _debug,
    "checkpoint": lambda arguments, runs: checkpoint(runs, arguments.name, wait=arguments.wait == "true"),
    "report": lambda arguments, runs: report(runs, arguments.name, arguments.output, arguments.others),
}
"""The functions that carry out commands on this machine; other commands are refused."""


def _is_for_cluster(arguments: argparse.Namespace) -> bool:
    if arguments.command in HERE_ALONE:
        return False
    return arguments.command in {"submit", "hold"} or on_cluster(arguments)
