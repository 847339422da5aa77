"""`ddpjob hold NAME`: creates a job whose pods run the programs that `ddpjob run --on NAME` sends."""

import argparse
import dataclasses

from ddpjob_operator.api import BadInputError, DDPJob
from ddpjob_operator.cli.invocation import itself
from ddpjob_operator.cli.screen import Screen
from ddpjob_operator.cli.traced import trace_context_here, with_trace
from ddpjob_operator.client import Cluster, ExistsError, Jobs

from .parcel import hold_parcel
from .submit import create_or_replace, printed, size_of


def hold(cluster: Cluster, given: argparse.Namespace) -> int:
    """Creates the job, or with --dry-run only checks it.

    Raises:
        BadInputError: an option is wrong, or a job of this name exists already.
        ClusterError: the cluster cannot be reached, or does not fulfil a request.
    """
    if given.output and not given.dry_run:
        raise BadInputError(f"-o {given.output} works only with --dry-run; add it")
    parcel = hold_parcel(given, cluster.namespace)
    parcel = dataclasses.replace(parcel, document=with_trace(parcel.document, trace_context_here()))
    screen, words = Screen(), f"{given.name} -n {cluster.namespace}"
    run, end = f"{itself()} run --on {words} SCRIPT", f"{itself()} delete {words}"
    for line in () if given.output else parcel.told:
        screen.print(line)
    try:
        made = create_or_replace(Jobs(cluster), parcel, given, screen)
    except ExistsError as error:
        raise BadInputError(f"{error}. If it is held, run a program on it: {run}; or end it first: {end}") from None
    if given.output:
        print(printed(parcel, given.output), end="")
        return 0
    size = size_of(DDPJob.from_dict(parcel.document).spec)
    where = f"namespace {cluster.namespace} of context {cluster.context}"
    if made is None:
        screen.print(f"{given.name}: {size}, can be held in {where}; nothing was created")
        return 0
    screen.print(f"{given.name}: {size}, held in {where}")
    screen.print(f"Run a program on it with: {run}")
    screen.print(f"End it with: {end}")
    return 0
