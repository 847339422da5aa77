"""Whether a command is about a run of this machine or about a job of a cluster.

A flag decides: `--run-dir` is this machine; `--namespace`, `--all-namespaces`, `--context` and `--kubeconfig` are a
cluster, and so is `kubectl ddpjob`. Without a flag a run in the run directory goes first: that of the given name or,
without a name, any. Else it is the cluster of the kubeconfig, if there is one.
"""

import argparse
import os
import sys
from pathlib import Path

from ddpjob_operator.api import BadInputError
from ddpjob_operator.local import RUNS, find_runs

CHANGES = frozenset({"suspend", "resume", "scale"})
"""Only a cluster does this; of a run of this machine there is something else to say."""
PLUGIN = "kubectl-ddpjob"
"""Under this name on PATH kubectl finds it, as `kubectl ddpjob`."""


def called_by_kubectl() -> bool:
    """Whether this is `kubectl ddpjob`."""
    return Path(sys.argv[0]).stem == PLUGIN


def run_directory(arguments: argparse.Namespace) -> Path:
    """Where the runs of this machine are kept."""
    return getattr(arguments, "run_dir", None) or Path(os.environ.get("DDPJOB_RUN_DIR", RUNS))


def on_cluster(arguments: argparse.Namespace) -> bool:
    """Whether the command is for a cluster. Says so where it is for this machine and both are possible.

    Raises:
        BadInputError: the flags say both.
    """
    flags, run_dir = cluster_flags(arguments), getattr(arguments, "run_dir", None)
    if flags and run_dir:
        raise BadInputError(f"--run-dir is for runs of this machine and {flags[0]} for a cluster; give one of them")
    if flags or run_dir:
        return bool(flags)
    if called_by_kubectl():
        return True
    runs = find_runs(run_directory(arguments))
    if not (arguments.name in runs if arguments.name else runs):
        return _has_kubeconfig() or arguments.command in CHANGES
    if _has_kubeconfig():
        print(f"On this machine ({run_directory(arguments)}); for the cluster add --namespace", file=sys.stderr)
    return False


def cluster_flags(arguments: argparse.Namespace) -> list[str]:
    """Those of the given flags that only make sense for a cluster."""
    names = ("namespace", "all_namespaces", "context", "kubeconfig")
    return [f"--{name.replace('_', '-')}" for name in names if getattr(arguments, name, None)]


def _has_kubeconfig() -> bool:
    """As kubectl looks for it; the client that reads it is slow to import."""
    named = os.environ.get("KUBECONFIG") or "~/.kube/config"
    return any(Path(file).expanduser().is_file() for file in named.split(os.pathsep) if file)
