"""`ddpjob completion SHELL`, and the completions at TAB: commands, flags, files and names of jobs."""

import argparse
import os
from collections.abc import Callable, Iterable
from contextlib import suppress

from .invocation import PROGRAM

SHELLS = ("bash", "zsh", "fish")
ASKED = "_ARGCOMPLETE"
"""The environment variable that a shell sets when it asks for completions."""
Names = Callable[..., Iterable[str]]
"""A completer: a function that returns the names that fit the parsed arguments."""
ANSWER_SECONDS = 1.0
"""How long completion at TAB waits for a cluster."""


def script(shell: str) -> int:
    """Prints the script that makes a shell complete `ddpjob`."""
    from argcomplete.shell_integration import shellcode  # noqa: PLC0415  Only completion needs it.

    print(shellcode([PROGRAM], shell=shell))
    return 0


def answer(parser: argparse.ArgumentParser) -> None:
    """Prints completions and ends the process, if a shell has called `ddpjob` to get them."""
    if ASKED in os.environ:
        import argcomplete  # noqa: PLC0415

        argcomplete.autocomplete(parser, always_complete_options=False)


def runs(parsed_args: argparse.Namespace, **_: object) -> Iterable[str]:
    """Names of the runs on this machine."""
    from ddpjob_operator.local import all_runs  # noqa: PLC0415  Slow to import, and only needed at TAB.

    from .target import runs_of  # noqa: PLC0415

    with suppress(Exception):  # TAB must print no errors: the command itself reports them when it runs.
        return sorted({run.root.name for run in all_runs(runs_of(parsed_args))})
    return []


def jobs(parsed_args: argparse.Namespace, **_: object) -> Iterable[str]:
    """Names of the runs on this machine and of the jobs on a cluster, unless the flags choose only one of the two."""
    from .target import CLUSTER_FLAGS, LOCAL_FLAGS, given, in_time  # noqa: PLC0415

    names = {*(() if given(parsed_args, CLUSTER_FLAGS) else runs(parsed_args))}
    if not given(parsed_args, LOCAL_FLAGS):
        with suppress(Exception):  # TAB must print no errors: the command itself reports them when it runs.
            names |= {*in_time(lambda: _of_cluster(parsed_args), ANSWER_SECONDS)}
    return sorted(names)


def _of_cluster(given: argparse.Namespace) -> list[str]:
    from ddpjob_operator.client import Jobs, connect  # noqa: PLC0415  Importing the client is slow.

    found = Jobs(connect(given.kubeconfig, given.context, given.namespace)).all()
    return [job["metadata"]["name"] for job in found]
