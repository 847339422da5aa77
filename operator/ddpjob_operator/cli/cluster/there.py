"""The functions that carry out commands on a cluster, except `run --on`."""

import argparse
from collections.abc import Callable

from ddpjob_operator.api import BadInputError
from ddpjob_operator.api.words import counted
from ddpjob_operator.cli.describe import FULL
from ddpjob_operator.cli.logs import which_of
from ddpjob_operator.cli.mistakes import A_NUMBER
from ddpjob_operator.cli.phrases import Rest
from ddpjob_operator.client import Cluster, ClusterError, Jobs, NoNamespaceError, RefusedError

from .change import cancel, resume, scale, suspend
from .cluster_version import version
from .debug import debug
from .delete import delete
from .hold import hold
from .job_checkpoint import checkpoint
from .job_logs import logs
from .job_status import stacks, status, watch
from .submit import submit


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
    return debug(Jobs(cluster), given.name, given.rank, given.program, node=given.node)


COMMANDS: dict[str, Callable[[Cluster, argparse.Namespace], int | Rest]] = {
    "submit": _submit,
    "hold": hold,
    "status": _status,
    "describe": lambda cluster, given: status(Jobs(cluster), given.name, FULL, everywhere=False),
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
