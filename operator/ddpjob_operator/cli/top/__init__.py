"""`ddpjob top`: all jobs on one screen, those on this machine and those on a cluster."""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from ddpjob_operator.api import BadInputError
from ddpjob_operator.cli.from_history import check_flags, opened
from ddpjob_operator.cli.screen import Screen
from ddpjob_operator.cli.table import beginning, folded, tabulate
from ddpjob_operator.cli.target import CLUSTER_FLAGS, LOCAL_FLAGS, given, means_cluster, runs_of
from ddpjob_operator.client import ClusterError, Jobs, connect
from ddpjob_operator.text import one_line
from ddpjob_operator.view_model import newest_first

from .drawing import cells, columns_for, summary
from .feeds import Feed, JobsHere, JobsThere, KeptJobs, NoCluster, all_rows

__all__ = ["feeds_of", "top"]

UNREACHED = 1


def top(arguments: argparse.Namespace) -> int:
    """Shows all jobs until the user leaves or, with --once, prints a line for each.

    Raises:
        BadInputError: flags contradict each other; or the screen needs a library that is not installed.
    """
    with feeds_of(arguments) as feeds:
        return _shown(arguments, feeds)


def _shown(arguments: argparse.Namespace, feeds: Sequence[Feed]) -> int:
    if arguments.once:
        return _once(feeds)
    if not Screen().is_terminal:
        raise BadInputError("ddpjob top needs a terminal; --once prints a line for each job")
    try:
        from .app import TopApp  # noqa: PLC0415  Textual is slow to import, and may be missing.
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("textual"):
            raise
        raise BadInputError("ddpjob top needs the extra `ui`: install ddpjob[ui]; --once works without it") from None
    TopApp(feeds, arguments).run()
    return 0


@contextmanager
def feeds_of(arguments: argparse.Namespace) -> Iterator[list[Feed]]:
    """The sources of jobs that the flags choose: a history alone, or this machine and a cluster.

    Raises:
        BadInputError: flags contradict each other, or the history cannot be read.
    """
    if arguments.history is None:
        yield _live_feeds(arguments)
        return
    check_flags(arguments)
    with opened(arguments, arguments.namespace, None) as place:
        yield [KeptJobs(place, arguments.namespace)]


def _live_feeds(arguments: argparse.Namespace) -> list[Feed]:
    """The sources of jobs that the flags choose: without any flag, this machine and, if there is one, a cluster."""
    local, cluster = given(arguments, LOCAL_FLAGS), given(arguments, CLUSTER_FLAGS)
    feeds: list[Feed] = [JobsHere(runs_of(arguments))] if local or not arguments.cluster else []
    if cluster or (not local and means_cluster(arguments)):
        try:
            jobs = Jobs(connect(arguments.kubeconfig, arguments.context, arguments.namespace))
            feeds.append(JobsThere(jobs, everywhere=arguments.all_namespaces))
        except (ClusterError, BadInputError) as error:
            if cluster or not feeds:  # Otherwise nobody has asked for the cluster, and there are still the runs.
                raise
            feeds.append(NoCluster(one_line(str(error))))
    return feeds


def _once(feeds: Sequence[Feed]) -> int:
    screen, code = Screen(), 0
    for feed in feeds:
        try:
            feed.fetch()
        except (ClusterError, BadInputError) as error:
            screen.print(f"Jobs are missing: {error}")
            code = UNREACHED
    now = datetime.now(UTC)
    rows = sorted(all_rows(feeds, now), key=newest_first)
    columns = columns_for(screen.width if screen.is_terminal else 1 << 20)
    screen.print(summary(rows))
    if rows:
        tabulate(columns, [cells(row, columns, now) for row in rows], fit=folded if screen.is_terminal else beginning)
    return code
