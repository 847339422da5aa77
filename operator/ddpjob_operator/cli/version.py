"""`ddpjob version`: the version of this command and, if a cluster is named, of its operator and CRD."""

import argparse
from importlib.metadata import version as version_of

from .phrases import Rest
from .target import means_cluster


def version(arguments: argparse.Namespace) -> int | Rest:
    """Prints the versions; returns 1 if the cluster does not answer."""
    print(f"Client Version: {version_of('ddpjob')}", flush=True)
    if arguments.client or not means_cluster(arguments):
        return 0
    from .cluster import call  # noqa: PLC0415  Importing the client is slow.

    return call(arguments)
