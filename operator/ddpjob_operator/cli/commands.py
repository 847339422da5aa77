"""What the `ddpjob` command does with its arguments."""

import argparse
import os
import sys

from ddpjob_operator.api import BadInputError

from .arguments import parser
from .elsewhere import refuse
from .logs import Which, logs
from .report import report
from .run import run
from .status import status
from .where import called_by_kubectl, on_cluster, run_directory
from .words import INTERRUPTED

BAD_INPUT = 2
UNREAD = 1


def call() -> int:
    """Runs the command that the arguments name, and returns its exit code."""
    arguments = parser("kubectl ddpjob" if called_by_kubectl() else "ddpjob").parse_args()
    try:
        return _call(arguments)
    except BadInputError as error:
        print(f"error: {error}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has enough of it, as `head` does.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD


def _call(arguments: argparse.Namespace) -> int:
    command = arguments.command
    if _is_for_cluster(arguments):
        from .cluster import call  # noqa: PLC0415  Its client takes longer to import than all the rest.

        return call(arguments)
    runs = run_directory(arguments)
    match command:
        case "run":
            return run(arguments.file, runs, fresh=arguments.fresh)
        case "status":
            return status(runs, arguments.name, as_json=arguments.output == "json")
        case "logs":
            which = Which(arguments.rank, arguments.attempt, previous=arguments.previous)
            return logs(runs, arguments.name, which, follow=arguments.follow)
        case "report":
            return report(runs, arguments.name, arguments.output)
        case _:
            return refuse(runs, arguments.name, command)


def _is_for_cluster(arguments: argparse.Namespace) -> bool:
    if arguments.command in ("run", "report"):
        return False
    return arguments.command == "submit" or on_cluster(arguments)
