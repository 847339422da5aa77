"""Connects to a cluster, and calls the function that carries out the command."""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from ddpjob_operator.api import BadInputError
from ddpjob_operator.api.words import counted
from ddpjob_operator.cli.logs import which_of
from ddpjob_operator.cli.mistakes import A_NUMBER
from ddpjob_operator.cli.phrases import Rest
from ddpjob_operator.client import Cluster, ClusterError, Jobs, NoNamespaceError, RefusedError, connect
from ddpjob_operator.text import visible

from .change import cancel, resume, scale, suspend
from .cluster_version import version
from .debug import debug
from .delete import delete
from .hold import hold
from .job_checkpoint import checkpoint
from .job_logs import logs
from .job_status import stacks, status, watch
from .run_on import run_on
from .submit import submit

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
    cluster = connect(arguments.kubeconfig, arguments.context, arguments.namespace)
    return COMMANDS[arguments.command](cluster, arguments)


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


def _submit(cluster: Cluster, given: argparse.Namespace) -> int:
    try:
        return submit(cluster, given)
    except NoNamespaceError as error:
        raise BadInputError(f"{error}{_not_nodes(given.namespace)}") from None
    except RefusedError as error:
        raise ClusterError(f"{error}{_not_nodes(given.namespace) if error.forbidden else ''}") from None


def _not_nodes(namespace: str | None) -> str:
    """A hint if the namespace given by -n is a number: with other tools, -n is a number of nodes or processes."""
    if namespace is None or not A_NUMBER.fullmatch(namespace):
        return ""
    return f"; -n is the namespace: for {counted(int(namespace), 'node')} give --nodes {namespace}"


def _status(cluster: Cluster, given: argparse.Namespace) -> int:
    if given.all_namespaces and (given.stacks or given.name):
        what = "a name" if given.name else "--stacks"
        raise BadInputError(f"-A {given.name or what}: {what} means one job; give its namespace: -n NAMESPACE")
    if given.watch:
        return watch(Jobs(cluster), given.name, everywhere=given.all_namespaces)
    if given.stacks:
        return stacks(Jobs(cluster), given.name)
    return status(Jobs(cluster), given.name, given.output, everywhere=given.all_namespaces)


def _logs(cluster: Cluster, given: argparse.Namespace) -> int:
    return logs(Jobs(cluster), given.name, which_of(given), follow=given.follow)


def _debug(cluster: Cluster, given: argparse.Namespace) -> int:
    if given.stacks:
        return stacks(Jobs(cluster), given.name)
    return debug(Jobs(cluster), given.name, given.rank, given.program)


COMMANDS: dict[str, Callable[[Cluster, argparse.Namespace], int | Rest]] = {
    "submit": _submit,
    "hold": hold,
    "run": run_on,
    "status": _status,
    "logs": _logs,
    "debug": _debug,
    "version": lambda cluster, _: version(cluster),
    "suspend": lambda cluster, given: suspend(Jobs(cluster), given.name),
    "resume": lambda cluster, given: resume(Jobs(cluster), given.name),
    "scale": lambda cluster, given: scale(Jobs(cluster), given.name, given.nodes),
    "cancel": lambda cluster, given: cancel(Jobs(cluster), given.name),
    "checkpoint": lambda cluster, given: checkpoint(Jobs(cluster), given.name, wait=given.wait == "true"),
    "delete": lambda cluster, given: delete(Jobs(cluster), given.name, wait=given.wait == "true"),
}
