"""Decides whether a command is for a run on this machine or for a job on a cluster.

Flags decide first: `--local` and `--run-dir` mean this machine; `--cluster`, `--namespace`, `--all-namespaces`,
`--context` and `--kubeconfig` mean a cluster, and so does `kubectl ddpjob`. Without a flag, the command is for the
place that has a job of the given name or, without a name, any job. If both places have one, the command fails
and asks for a flag.
"""

import argparse
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from ddpjob_operator.api import BadInputError
from ddpjob_operator.local import RUNS, Runs, find_run, find_runs, names_in_use
from ddpjob_operator.text import visible

from .invocation import called_by_kubectl

CHANGES = frozenset({"suspend", "resume", "scale", "checkpoint", "cancel", "delete"})
"""Commands that, in a pod and without a kubeconfig, are for the pod's cluster if no run here has the given name."""
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
LOCAL_FLAGS = ("local", "run_dir")
CLUSTER_FLAGS = ("cluster", "namespace", "all_namespaces", "context", "kubeconfig")
T = TypeVar("T")

ANSWER_SECONDS = 3.0
"""How long a command for a run on this machine waits for a cluster, which may be unreachable."""


def runs_of(arguments: argparse.Namespace) -> Runs:
    """Where the command looks for runs on this machine. A directory named with --run-dir is the only place."""
    if named := getattr(arguments, "run_dir", None):
        return Runs(named, named=True)
    return Runs(Path(os.environ.get("DDPJOB_RUN_DIR", RUNS)))


def on_cluster(arguments: argparse.Namespace) -> bool:
    """Whether the command is for a cluster.

    Raises:
        BadInputError: the flags contradict each other; or there is no flag, and both places have a job of this name.
    """
    here, there = given(arguments, LOCAL_FLAGS), given(arguments, CLUSTER_FLAGS)
    if here and there:
        raise BadInputError(
            f"{here[0]} is for runs on this machine and {there[0]} for a cluster; give only one of them"
        )
    if here or there:
        return bool(there)
    if called_by_kubectl():
        return True
    runs = runs_of(arguments)
    if not (arguments.name in names_in_use(runs.directory) if arguments.name else find_runs(runs.directory)):
        return _has_kubeconfig() or (arguments.command in CHANGES and _is_file(SERVICE_ACCOUNT))
    if _has_kubeconfig():
        _check_only_here(arguments)
    return False


def if_on_cluster(arguments: argparse.Namespace) -> str:
    """A sentence to add to an error: what to do if the job, which is not on this machine, is on a cluster."""
    either = hasattr(arguments, "cluster") and not given(arguments, LOCAL_FLAGS)
    return ". If the job is on a cluster, set KUBECONFIG, or give --kubeconfig" if either and arguments.name else ""


def means_cluster(arguments: argparse.Namespace) -> bool:
    """Whether a command that is not about a job should contact a cluster: if a flag or a kubeconfig names one."""
    return bool(given(arguments, CLUSTER_FLAGS)) or called_by_kubectl() or _has_kubeconfig()


def _check_only_here(arguments: argparse.Namespace) -> None:
    """Checks that the cluster has no job of this name. If the cluster does not answer, says so and goes on.

    Raises:
        BadInputError: the cluster has a job of this name too.
    """
    from .cluster import location_of_job  # noqa: PLC0415  Importing the client is slow.

    there: str | Exception | None
    try:
        there = in_time(lambda: location_of_job(arguments.name), ANSWER_SECONDS)
    except Exception as error:  # noqa: BLE001  No error of the cluster may stop a command for this machine.
        there = error
    runs = runs_of(arguments)
    if isinstance(there, Exception):
        problem = f"cannot tell whether the cluster has it too: {visible(str(there))}"
        print(f"On this machine ({runs}); {problem}", file=sys.stderr)
    elif there is not None:
        both = f"{arguments.name} is a run on" if arguments.name else "there are runs on"
        with suppress(BadInputError):  # Several runs have this name.
            runs = Runs(find_run(runs, arguments.name).root.parent)
        which = (
            "say which, with --local or --cluster" if hasattr(arguments, "local") else "for that one add --cluster"
        )
        raise BadInputError(f"{both} this machine ({runs}) and in {there}: {which}")


def in_time(ask: Callable[[], T], seconds: float) -> T:
    """The result of `ask`, which runs in a thread, if it comes within `seconds`.

    Raises:
        TimeoutError: `ask` has not returned in time.
        Exception: any error that `ask` raises.
    """
    answer: Future[T] = Future()

    def put() -> None:
        try:
            answer.set_result(ask())
        except Exception as error:  # noqa: BLE001  answer.result() raises it in the caller's thread.
            answer.set_exception(error)

    threading.Thread(target=put, daemon=True).start()
    try:
        return answer.result(seconds)
    except TimeoutError:
        raise TimeoutError(f"it has not answered within {seconds:.0f} s") from None


def given(arguments: argparse.Namespace, flags: tuple[str, ...]) -> list[str]:
    """The flags among `flags` that the user has given, as they are typed."""
    return [f"--{flag.replace('_', '-')}" for flag in flags if getattr(arguments, flag, None)]


def _has_kubeconfig() -> bool:
    """Whether kubectl would find a kubeconfig. Using the client for this would be slow, because of its imports."""
    named = os.environ.get("KUBECONFIG") or "~/.kube/config"
    return any(_is_file(Path(file).expanduser()) for file in named.split(os.pathsep) if file)


def _is_file(path: Path) -> bool:
    """Whether a path is a file; False if this user is not allowed to look, so that local commands still work."""
    try:
        return path.is_file()
    except OSError:
        return False
