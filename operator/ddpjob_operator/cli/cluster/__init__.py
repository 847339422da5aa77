"""The commands that talk to a cluster, and how each of them finds it."""

import argparse
import sys

from ddpjob_operator.client import ClusterError, Jobs, connect

from .delete import delete
from .logs import logs
from .status import status
from .submit import submit

__all__ = ["call"]

FAILED = 1


def call(arguments: argparse.Namespace) -> int:
    """Runs the command that the arguments name and returns the exit code: 1 if the cluster does not do its part.

    Raises:
        BadInputError: the arguments or the file are wrong.
    """
    try:
        return _call(arguments)
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED


def _call(arguments: argparse.Namespace) -> int:
    cluster = connect(arguments.kubeconfig, arguments.context, arguments.namespace)
    match arguments.command:
        case "submit":
            file = arguments.file or arguments.file_too
            given = arguments.namespace
            return submit(cluster, file, given, wait=arguments.wait, dry_run=arguments.dry_run)
        case "delete":
            return delete(Jobs(cluster), arguments.name, wait=arguments.wait == "true")
        case "status":
            as_json, everywhere = arguments.output == "json", arguments.all_namespaces
            return status(Jobs(cluster), arguments.name, as_json=as_json, everywhere=everywhere)
        case _:
            jobs, which = Jobs(cluster), (arguments.name, arguments.rank)
            return logs(jobs, *which, follow=arguments.follow, previous=arguments.previous)
