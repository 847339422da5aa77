"""The commands that talk to a cluster, and how each of them finds it."""

import argparse
import sys
from collections.abc import Callable

from ddpjob_operator.api import BadInputError
from ddpjob_operator.cli.logs import which_of
from ddpjob_operator.client import Cluster, ClusterError, Jobs, connect

from .change import resume, scale, suspend
from .cluster_version import version
from .delete import delete
from .job_logs import logs
from .job_status import status, watch
from .submit import submit

__all__ = ["call", "where_there"]

FAILED = 1


def call(arguments: argparse.Namespace) -> int:
    """Runs the command that the arguments name and returns the exit code: 1 if the cluster does not do its part.

    Raises:
        BadInputError: the arguments or the file are wrong.
    """
    try:
        cluster = connect(arguments.kubeconfig, arguments.context, arguments.namespace)
        return COMMANDS[arguments.command](cluster, arguments)
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED


def where_there(name: str | None) -> str | None:
    """Where the cluster of the kubeconfig has a job of that name or, without one, any; None if there is none.

    Raises:
        ClusterError: the cluster does not tell.
    """
    try:
        cluster = connect()
    except (BadInputError, ClusterError):
        return None  # The kubeconfig names no cluster.
    return f"namespace {cluster.namespace} of {cluster}" if Jobs(cluster).has(name) else None


def _submit(cluster: Cluster, given: argparse.Namespace) -> int:
    return submit(cluster, given)


def _status(cluster: Cluster, given: argparse.Namespace) -> int:
    as_json, everywhere = given.output == "json", given.all_namespaces
    if given.watch:
        return watch(Jobs(cluster), given.name, everywhere=everywhere)
    return status(Jobs(cluster), given.name, as_json=as_json, everywhere=everywhere)


def _logs(cluster: Cluster, given: argparse.Namespace) -> int:
    return logs(Jobs(cluster), given.name, which_of(given), follow=given.follow)


COMMANDS: dict[str, Callable[[Cluster, argparse.Namespace], int]] = {
    "submit": _submit,
    "status": _status,
    "logs": _logs,
    "version": lambda cluster, _: version(cluster),
    "suspend": lambda cluster, given: suspend(Jobs(cluster), given.name),
    "resume": lambda cluster, given: resume(Jobs(cluster), given.name),
    "scale": lambda cluster, given: scale(Jobs(cluster), given.name, given.nodes),
    "delete": lambda cluster, given: delete(Jobs(cluster), given.name, wait=given.wait == "true"),
}
