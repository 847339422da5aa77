"""Connects to a cluster, and calls the function that carries out the command."""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from ddpjob_operator.api import BadInputError
from ddpjob_operator.cli.phrases import Rest
from ddpjob_operator.client import ClusterError, Jobs, connect
from ddpjob_operator.text import visible

__all__ = ["call", "location_of_job"]

FAILED = 1
T = TypeVar("T")


def call(arguments: argparse.Namespace) -> int | Rest:
    """Runs the command that the arguments name, and returns the exit code: 1 after a ClusterError.

    A command that takes several names may return a function instead, to be called once all names have been processed.

    Raises:
        BadInputError: the arguments or the file are wrong.
    """
    result = _told(partial(_call, arguments))
    return result if isinstance(result, int) else partial(_told, result)


def _call(arguments: argparse.Namespace) -> int | Rest:
    connected = partial(connect, arguments.kubeconfig, arguments.context, arguments.namespace)
    if arguments.command == "run":
        from .run_on import run_on  # noqa: PLC0415  Without the other commands, which take longer to import.

        return run_on(connected, arguments)
    from .there import COMMANDS  # noqa: PLC0415

    return COMMANDS[arguments.command](connected(), arguments)


def _told(do: Callable[[], T]) -> T | int:
    """The result of `do`. If `do` raises a ClusterError, prints the error and returns FAILED."""
    try:
        return do()
    except ClusterError as error:
        print(f"error: {visible(str(error))}", file=sys.stderr)
        return FAILED


def location_of_job(name: str | None) -> str | None:
    """The namespace and cluster of a job with this name (None: of any job), as text; None if there is none.

    Raises:
        ClusterError: the cluster does not answer.
    """
    try:
        cluster = connect()
    except BadInputError:
        return None  # The kubeconfig names no cluster.
    return f"namespace {cluster.namespace} of {cluster}" if Jobs(cluster).has(name) else None
