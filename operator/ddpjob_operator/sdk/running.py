"""Runs a job on this machine, as `ddpjob run` does, and returns its result."""

import os
import signal
import sys
import threading
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from ddpjob_operator.api import DDPJob, Incident
from ddpjob_operator.cli.program import refuse_options
from ddpjob_operator.cli.run import Ended, run_to_its_end
from ddpjob_operator.cli.screen import Screen
from ddpjob_operator.cli.summary import advice
from ddpjob_operator.cli.target import runs_of
from ddpjob_operator.local import REQUEST_SIGNAL, RunDirectory, tail

from .failures import JobFailed, failure
from .functions import Function, program_of
from .public_calls import public_call
from .results import result_of

FilePath = str | os.PathLike[str]

HANDLED = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP),
    *(signal.SIGUSR1, signal.SIGUSR2, REQUEST_SIGNAL),
)
"""The signals that a run handles."""
LOG_BYTES = 1 << 16
"""How much of the end of a log is searched for a traceback."""


@public_call
def run(
    target: FilePath | Function | None = None,
    arguments: Mapping[str, Any] | None = None,
    *,
    args: Sequence[object] = (),
    module: str | None = None,
    nodes: int | None = None,
    procs_per_node: int | None = None,
    name: str | None = None,
    env: Mapping[str, object] | None = None,
    checkpoint: str | None = None,
    history: str | None = None,
    max_restarts: int | None = None,
    start_method: Literal["warm", "cold"] | None = None,
    run_dir: FilePath | None = None,
    on: str | None = None,
    source: FilePath | None = None,
    include: Sequence[FilePath] = (),
    pip: Sequence[str] = (),
    requirements: FilePath | None = None,
    namespace: str | None = None,
    context: str | None = None,
    kubeconfig: FilePath | None = None,
    quiet: bool = False,
) -> Any:
    """Runs a function or a script on this machine, as the command `ddpjob run` does, and returns its result.

        from mymodel import train

        result = ddpjob.run(train, {"lr": 0.1}, procs_per_node=2)

    Each rank calls the function, and what rank 0 returns is the result. A script sets its result with `set_result`.
    The run is that of the command: `ddpjob status` and `ddpjob logs` find it, and failures are restarted. Ctrl-C
    lets it save and stop. On held nodes, `result = ddpjob.run(train, {"lr": 0.1}, on="dev")` does the same as `ddpjob
    run --on dev`.

    Args:
        target: A function, a script, or a YAML file with one DDPJob.
        arguments: The function's arguments by name. They are sent as JSON.
        args: The arguments of the script or module or, without both, a command and its arguments.
        module: A Python module to run instead of a script.
        nodes: How many nodes to simulate on this machine; 1 if it is left out.
        procs_per_node: Processes per node; one per GPU, else 1, if it is left out.
        name: The run's name. If it is left out, it is made from the name of the function or script.
        env: Variables for the ranks. With `on`, they are added to those of the hold.
        checkpoint: A directory or URL where checkpoints are saved.
        history: A directory or URL where logs, incidents and progress are kept.
        max_restarts: Restarts before the run fails; 6 if it is left out.
        start_method: `warm` or `cold`, as for the command.
        run_dir: Where runs are kept; `ddpjob-runs` if it is left out.
        on: The job whose nodes `ddpjob hold` holds, to run there instead of on this machine. The options above, from
            `nodes` on, are those of the hold then, except `env`.
        source: With `on`: a folder to send, except for what its .gitignore excludes.
        include: With `on`: files of the folder to send, whatever their names and contents look like.
        pip: With `on`: packages to install there before the ranks begin, once for each set of packages.
        requirements: With `on`: a requirements file with such packages.
        namespace: With `on`: the job's namespace, if it is not the context's.
        context: With `on`: a context of the kubeconfig, if it is not the current one.
        kubeconfig: With `on`: the kubeconfig, if it is not the one that kubectl uses.
        quiet: Whether to print nothing.

    Raises:
        BadInputError: There is no such program, ranks cannot call the function, or an argument is wrong.
        RankFailed: A rank has failed.
        JobFailed: The run has failed for another reason.
        ClusterError: With `on`: the cluster cannot be reached, or refuses.
        KeyboardInterrupt: The run was stopped. `ddpjob run --resume` goes on with it.
    """
    folder = None if source is None else Path(source)
    packed, path = program_of(target, arguments, args, source=folder, here=on is None)
    given = Namespace(
        command="run",
        target=path,
        program=[str(argument) for argument in args] or None,
        module=module,
        nodes=nodes,
        procs_per_node=procs_per_node,
        name=name,
        env=[f"{key}={value}" for key, value in (env or {}).items()],
        checkpoint=checkpoint,
        history=history,
        max_restarts=max_restarts,
        start_method=start_method,
        run_dir=None if run_dir is None else Path(run_dir),
        resume=None,
        fresh=False,
        detach=False,
        attach=None,
        dry_run=False,
        output=None,
        on=on,
        source=folder,
        include=[Path(each) for each in include],
        pip=[*pip],
        requirements=None if requirements is None else Path(requirements),
        watch=None,
        namespace=namespace,
        context=context,
        kubeconfig=None if kubeconfig is None else Path(kubeconfig),
    )
    if on is not None:
        from .holding import run_on  # noqa: PLC0415  A run on this machine needs no cluster's client.

        return run_on(given, packed, quiet=quiet)
    only_there = ("source", "include", "pip", "requirements", "namespace", "context", "kubeconfig")
    refuse_options(given, only_there, "is for on=JOB")
    # In a notebook, stdout claims to be a terminal, but cannot overwrite what it shows.
    screen = Screen(quiet=quiet, force_terminal=None if sys.stdout is sys.__stdout__ else False)
    with _signals_as_before():
        ended = run_to_its_end(given, runs_of(given), packed, screen)
    assert isinstance(ended, Ended), "it was not detached"
    status = ended.job.status
    if status.succeeded:
        return result_of(ended.job, run=ended.directory)
    if not status.finished:
        name = ended.job.metadata.name
        raise KeyboardInterrupt(f"{name} was stopped; go on with: ddpjob {ended.directory.resume}")
    raise _failure(ended.job, ended.directory)


@contextmanager
def _signals_as_before() -> Iterator[None]:
    """Restores the handlers of signals: a run sets its own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in HANDLED}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def _failure(job: DDPJob, directory: RunDirectory) -> JobFailed:
    def log(incident: Incident) -> list[str]:
        gang = max((gang for gang in directory.gangs() if gang <= incident.attempt), default=1)
        return tail(directory.logs_of(gang) / f"node-{incident.node}.log", LOG_BYTES).splitlines()

    return failure(job, "\n".join(advice(job)), log)
