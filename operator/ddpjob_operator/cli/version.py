"""`ddpjob version`: of this command and, if a cluster is named, of what runs there."""

import argparse
from importlib.metadata import version as version_of

from .phrases import Rest
from .target import means_cluster


def version(arguments: argparse.Namespace) -> int | Rest:
    """Prints the versions; 1 if the cluster does not say."""
    print(f"Client Version: {version_of('ddpjob')}", flush=True)
    if arguments.client or not means_cluster(arguments):
        return 0
    from .cluster import call  # noqa: PLC0415  Its client takes longer to import than all the rest.

    return call(arguments)
