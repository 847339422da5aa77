"""`ddpjob completion SHELL`, and the words that a shell offers at TAB: commands, flags, files and names of jobs."""

import argparse
import os
from collections.abc import Callable, Iterable
from contextlib import suppress

from .invocation import PROGRAM

SHELLS = ("bash", "zsh", "fish")
ASKED = "_ARGCOMPLETE"
"""The variable through which a shell asks."""
Names = Callable[..., Iterable[str]]
"""Which names the arguments ask for."""
ANSWER_SECONDS = 1.0
"""Someone who has pressed TAB does not wait longer for a cluster."""


def script(shell: str) -> int:
    """Prints what makes a shell complete the command."""
    from argcomplete.shell_integration import shellcode  # noqa: PLC0415  Only who completes needs it.

    print(shellcode([PROGRAM], shell=shell))
    return 0


def answer(parser: argparse.ArgumentParser) -> None:
    """Tells a shell what may stand at its user's cursor, and ends the process, if a shell has asked."""
    if ASKED in os.environ:
        import argcomplete  # noqa: PLC0415

        argcomplete.autocomplete(parser, always_complete_options=False)


def runs(parsed_args: argparse.Namespace, **_: object) -> Iterable[str]:
    """Names of this machine's runs."""
    from ddpjob_operator.local import names_in_use  # noqa: PLC0415  Slow to import, and wanted at TAB alone.

    from .target import run_directory  # noqa: PLC0415

    return sorted(names_in_use(run_directory(parsed_args)))


def jobs(parsed_args: argparse.Namespace, **_: object) -> Iterable[str]:
    """Names of runs on this machine and of jobs on a cluster, or of what the flags say."""
    from .target import CLUSTER_FLAGS, LOCAL_FLAGS, given, in_time  # noqa: PLC0415

    names = {*(() if given(parsed_args, CLUSTER_FLAGS) else runs(parsed_args))}
    if not given(parsed_args, LOCAL_FLAGS):
        with suppress(Exception):  # A TAB is no place for errors: whatever it is, the command itself will say it.
            names |= {*in_time(lambda: _of_cluster(parsed_args), ANSWER_SECONDS)}
    return sorted(names)


def _of_cluster(given: argparse.Namespace) -> list[str]:
    from ddpjob_operator.client import Jobs, connect  # noqa: PLC0415  It takes longer to import than all the rest.

    found = Jobs(connect(given.kubeconfig, given.context, given.namespace)).all()
    return [job["metadata"]["name"] for job in found]
