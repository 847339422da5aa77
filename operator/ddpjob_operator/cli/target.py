"""Whether a command is about a run on this machine or about a job on a cluster.

A flag says it: `--local` or `--run-dir`, or `--cluster`, `--namespace`, `--all-namespaces`, `--context` or
`--kubeconfig`; `kubectl ddpjob` is a cluster. Without a flag it is the place that has a job of that name or, without
a name, any. If both have one, the command asks for a flag, whatever it would do.
"""

import argparse
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from ddpjob_operator.api import BadInputError
from ddpjob_operator.local import RUNS, find_runs, names_in_use
from ddpjob_operator.text import visible

from .invocation import called_by_kubectl

CHANGES = frozenset({"suspend", "resume", "scale", "delete"})
"""A name of no run on this machine means a cluster, even if no kubeconfig names one."""
LOCAL_FLAGS = ("local", "run_dir")
CLUSTER_FLAGS = ("cluster", "namespace", "all_namespaces", "context", "kubeconfig")
T = TypeVar("T")

ANSWER_SECONDS = 3.0
"""Someone who asks for a run on this machine does not wait longer for a cluster that may be unreachable."""


def run_directory(arguments: argparse.Namespace) -> Path:
    """Where the runs on this machine are kept."""
    return getattr(arguments, "run_dir", None) or Path(os.environ.get("DDPJOB_RUN_DIR", RUNS))


def on_cluster(arguments: argparse.Namespace) -> bool:
    """Whether the command is for a cluster.

    Raises:
        BadInputError: the flags say both, or no flag says which and both have what is named.
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
    runs = run_directory(arguments)
    if not (arguments.name in names_in_use(runs) if arguments.name else find_runs(runs)):
        return _has_kubeconfig() or arguments.command in CHANGES
    if _has_kubeconfig():
        _check_only_here(arguments)
    return False


def means_cluster(arguments: argparse.Namespace) -> bool:
    """Whether a cluster is named, for a command that is not about a job."""
    return bool(given(arguments, CLUSTER_FLAGS)) or called_by_kubectl() or _has_kubeconfig()


def _check_only_here(arguments: argparse.Namespace) -> None:
    """Checks whether the cluster has it too. If the cluster does not say, a line says so.

    Raises:
        BadInputError: it has.
    """
    from .cluster import where_there  # noqa: PLC0415  Its client takes longer to import than all the rest.

    there: str | Exception | None
    try:
        there = in_time(lambda: where_there(arguments.name), ANSWER_SECONDS)
    except Exception as error:  # noqa: BLE001  Whatever it is, it does not concern a run on this machine.
        there = error
    runs = run_directory(arguments)
    if isinstance(there, Exception):
        said = f"cannot tell whether the cluster has it too: {visible(str(there))}"
        print(f"On this machine ({runs}); {said}", file=sys.stderr)
    elif there is not None:
        both = f"{arguments.name} is a run on" if arguments.name else "there are runs on"
        raise BadInputError(f"{both} this machine ({runs}) and in {there}: say which, with --local or --cluster")


def in_time(ask: Callable[[], T], seconds: float) -> T:
    """A cluster's answer, if it comes in time.

    Raises:
        TimeoutError: there is none yet.
        Exception: whatever asking raises.
    """
    answer: Future[T] = Future()

    def put() -> None:
        try:
            answer.set_result(ask())
        except Exception as error:  # noqa: BLE001  It is raised where it was asked for.
            answer.set_exception(error)

    threading.Thread(target=put, daemon=True).start()
    try:
        return answer.result(seconds)
    except TimeoutError:
        raise TimeoutError(f"it has not answered within {seconds:.0f} s") from None


def given(arguments: argparse.Namespace, flags: tuple[str, ...]) -> list[str]:
    """Those of these flags that were given."""
    return [f"--{flag.replace('_', '-')}" for flag in flags if getattr(arguments, flag, None)]


def _has_kubeconfig() -> bool:
    """As kubectl looks for it; the client that reads it is slow to import."""
    named = os.environ.get("KUBECONFIG") or "~/.kube/config"
    return any(_is_file(Path(file).expanduser()) for file in named.split(os.pathsep) if file)


def _is_file(path: Path) -> bool:
    """Not one that this user cannot look at, which keeps nobody from a run on this machine."""
    try:
        return path.is_file()
    except OSError:
        return False
