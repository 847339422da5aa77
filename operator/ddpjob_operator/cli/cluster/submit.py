"""`ddpjob submit FILE`: creates a DDPJob on a cluster; with `--wait`, shows it until it ends, as in local mode."""

import argparse
import dataclasses
import json
import sys
from pathlib import Path

from ddpjob_operator.api import BadInputError, DDPJob, DDPJobSpec
from ddpjob_operator.api.contract import FINISHED
from ddpjob_operator.api.job_file import JobFile, parse, read, written
from ddpjob_operator.api.option_names import option, this_call
from ddpjob_operator.api.spec import is_gpu
from ddpjob_operator.api.words import counted, world
from ddpjob_operator.cli import program
from ddpjob_operator.cli.checkout import git_state, with_git_state
from ddpjob_operator.cli.invocation import itself
from ddpjob_operator.cli.packed import PackedProgram
from ddpjob_operator.cli.phrases import INTERRUPTED, exit_code
from ddpjob_operator.cli.screen import Screen, drop_output, ignoring_closed_output
from ddpjob_operator.cli.summary import advise, summarise
from ddpjob_operator.cli.traced import trace_context_here, with_trace
from ddpjob_operator.client import Cluster, Document, ExistsError, Jobs
from ddpjob_operator.client.submission import check, replace, send
from ddpjob_operator.engine import lost_with_pods

from .change import unfinished
from .new_code import replace_in_place
from .parcel import Parcel, parcel
from .shown_job import ShownJob

OF_A_PROGRAM = (
    *("module", "env", "max_restarts", "start_method", "nodes", "gpus_per_node", "procs_per_node", "name"),
    *(
        "env_from",
        "source",
        "source_registry",
        "include",
        "pip",
        "requirements",
        "image",
        "cpu",
        "memory",
        "volume",
        "image_volume",
        "checkpoint",
        "history",
        "queue",
        "class_name",
    ),
)
"""Options that describe a program, and cannot be combined with a YAML file."""

UNREAD = 1
"""Exit code if the reader closed the output, as `head` does."""


def submit(cluster: Cluster, given: argparse.Namespace) -> int:
    """Creates the job of a YAML file or a program; with --wait, the exit code is the job's own.

    Raises:
        BadInputError: the file, the program or an option is wrong, or a job of this name exists already.
        ClusterError: the cluster cannot be reached, or does not fulfil a request.
    """
    if given.output and not given.dry_run:
        raise BadInputError(f"-o {given.output} works only with --dry-run; add it")
    check_in_place(given)
    cluster, parcel = parcel_of(cluster, given)
    jobs, screen = Jobs(cluster), Screen()
    job = DDPJob.from_dict(parcel.document)
    for line in () if given.output else parcel.told:
        screen.print(line)
    try:
        made = create_or_replace(jobs, parcel, given, screen)
    except ExistsError as error:
        raise BadInputError(f"{error}. {_instead(parcel.file, job)}") from None
    if given.output:
        print(printed(parcel, given.output), end="")
        return 0
    size = size_of(job.spec)
    where = f"namespace {cluster.namespace} of context {cluster.context}"
    if made is None:
        screen.print(f"{job.metadata.name}: {size}, can be submitted to {where}")
        screen.print(f"It would get a Service and {counted(job.spec.nodes, 'pod')}; nothing was created")
        warn_of_losses(screen, job)
        return 0
    if not given.in_place:  # Otherwise the size is that of the job, which the arguments need not repeat.
        screen.print(f"{job.metadata.name}: {size}, submitted to {where}")
        warn_of_losses(screen, job)
    if given.wait:
        return _wait(jobs, made, screen)
    say_how_to_go_on(screen, job.metadata.name, cluster)
    return 0


def check_in_place(given: argparse.Namespace) -> None:
    """Checks whether the options with which code is replaced in place go together.

    Raises:
        BadInputError: they do not.
    """
    if given.in_place and not given.replace:
        raise BadInputError(f"{option('in-place')} belongs to {option('replace')}: give both")
    if given.in_place and given.dry_run:
        raise BadInputError("--in-place cannot be tried with --dry-run")


def parcel_of(
    cluster: Cluster, given: argparse.Namespace, packed: PackedProgram | None = None
) -> tuple[Cluster, Parcel]:
    """The parcel to send, with this process's trace context, and the cluster with the namespace to which it is sent.

    `packed` is the program, if the arguments do not name it.

    Raises:
        BadInputError: the file, the program or an option is wrong.
    """
    cluster, parcel = _parcel(cluster, given, packed)
    document = with_git_state(parcel.document, git_state(_folder(parcel, given, packed)))
    return cluster, dataclasses.replace(parcel, document=with_trace(document, trace_context_here()))


def _folder(parcel: Parcel, given: argparse.Namespace, packed: PackedProgram | None = None) -> Path:
    """The folder that the program or the YAML file comes from; if it is only in an image, the working directory."""
    if packed is not None and given.source is None:
        return packed.origin
    file = parcel.file or (Path(given.target) if given.target is not None else None)
    return given.source or (file.parent if file is not None and file.is_file() else Path())


def _parcel(cluster: Cluster, given: argparse.Namespace, packed: PackedProgram | None) -> tuple[Cluster, Parcel]:
    if packed is not None:
        return cluster, parcel(given, cluster.namespace, packed)
    if given.file_too is None and given.target != "-" and program.is_program(given):
        return cluster, parcel(given, cluster.namespace)
    file = Path(given.file_too or given.target)
    _refuse_options(given, file)
    job_file = parse(sys.stdin.read(), "the input") if str(file) == "-" else read(file)
    cluster = _in_namespace(cluster, job_file, given.namespace)
    metadata = {**job_file.document["metadata"], "namespace": cluster.namespace}
    if annotations := metadata.get("annotations"):  # Drop the mark that a copy of a finished job has.
        metadata["annotations"] = {key: text for key, text in annotations.items() if key != FINISHED}
    others = (
        f"{kind} in {file} is not submitted; create it with: kubectl apply -f {file}" for kind in job_file.others
    )
    return cluster, Parcel({**job_file.document, "metadata": metadata}, None, told=tuple(others), file=file)


def size_of(spec: DDPJobSpec) -> str:
    """The job's size; only its number of nodes, if only the operator can tell which resources are GPUs."""
    counted_there = spec.procs_per_node is None and any("/" in name and not is_gpu(name) for name in spec.resources)
    return counted(spec.nodes, "node") if counted_there else world(spec.nodes, spec.resolved_procs_per_node())


def create_or_replace(jobs: Jobs, parcel: Parcel, given: argparse.Namespace, screen: Screen) -> Document | None:
    """Creates the job or, with --replace, changes it. Returns its object; None in a dry run."""
    name = parcel.document["metadata"]["name"]
    if given.in_place:
        return replace_in_place(jobs, parcel, given, ("program", *OF_A_PROGRAM), screen)
    found = unfinished(jobs, name)[0] if given.replace and jobs.has(name) else None
    if given.dry_run:
        check(jobs, parcel.document, parcel.code, found)
        return None
    parcel.push()
    if found is None:
        return send(jobs, parcel.document, parcel.code)
    try:
        return replace(jobs, found, parcel.document, parcel.code, screen.print)
    except KeyboardInterrupt:
        resume = f"{itself()} resume {name} -n {jobs.cluster.namespace}"
        screen.print(f"\n{name} may still be suspended; repeat {this_call()} or, to go on as before: {resume}")
        raise


def printed(parcel: Parcel, output: str) -> str:
    """The objects that would be created, in a form that `kubectl apply -f -` accepts."""
    made = [part for part in (parcel.code, parcel.document) if part is not None]
    if output == "yaml":
        return "---\n".join(map(written, made))
    whole = made[0] if len(made) == 1 else {"apiVersion": "v1", "kind": "List", "items": made}
    return json.dumps(whole, indent=4) + "\n"


def _refuse_options(given: argparse.Namespace, file: Path) -> None:
    """Refuses options whose values belong in the YAML file.

    Raises:
        BadInputError: one of these options is given.
    """
    is_yaml = file.suffix in program.YAML or not file.is_file()
    kind = "says what to run: edit it instead" if is_yaml else "is not a script, whose name ends with .py"
    why = f"is for programs; {file} {kind}"
    if given.file_too and given.target is not None:
        raise BadInputError(f"--filename {why}")
    program.refuse_options(given, ("program", *OF_A_PROGRAM), why)


def _instead(file: Path | None, job: DDPJob) -> str:
    """What to do if a job of this name already exists."""
    name, flags = job.metadata.name, f"-n {job.metadata.namespace}"
    look, first = f"Look at it: {itself()} status {name} {flags}.", f"first: {itself()} delete {name} {flags}"
    if file is None:
        beside = "To run the new job beside it, use --name; to replace it, use --replace"
        return f"{look} {beside}. To run the existing job again, {first}"
    return f"{look} Change it: kubectl apply {flags} -f {file}. To run it again, {first}"


def warn_of_losses(screen: Screen, job: DDPJob) -> None:
    """Warns if the job's checkpoints are deleted with its pods, because that can cost hours of training."""
    if lost := lost_with_pods(job.spec):
        screen.print(f"If it is suspended, preempted or restarted with new pods, it starts over: {lost}")


def _in_namespace(cluster: Cluster, job_file: JobFile, given: str | None) -> Cluster:
    """The cluster with the job's namespace. As with kubectl, the file and --namespace must agree.

    Raises:
        BadInputError: they differ.
    """
    own = job_file.document["metadata"].get("namespace")
    if own and given and own != given:
        raise BadInputError(f"metadata.namespace is {own} and {option('namespace')} is {given}; they must agree")
    return dataclasses.replace(cluster, namespace=own or cluster.namespace)


def _wait(jobs: Jobs, made: Document, screen: Screen) -> int:
    """Shows the job until it ends, the user presses Ctrl-C, or the output is closed; returns the exit code."""
    shown = ShownJob.on(screen, jobs, made)
    name = made["metadata"]["name"]
    try:
        shown.follow()
    except KeyboardInterrupt:
        shown.display.leave_if_blocked(INTERRUPTED)
        with ignoring_closed_output():
            screen.print(f"\n{name} goes on in the cluster")
            say_how_to_go_on(screen, name, jobs.cluster)
        return INTERRUPTED
    life, display = shown.life, shown.display
    if not life.over:
        drop_output()
        return UNREAD
    saved = display.progress.saved.values.get("checkpoint") if display.progress.saved else None
    flags = f" -n {jobs.cluster.namespace}"
    summarise(screen, life.job, display.progress, checkpoint=saved, logs=f"{itself()} logs {name}{flags}")
    advise(screen, life.job, flags)
    return exit_code(life.job.status)


def say_how_to_go_on(screen: Screen, name: str, cluster: Cluster) -> None:
    """Prints the commands that watch and that stop a job."""
    words = f"{name} -n {cluster.namespace}"
    screen.print(f"Watch it with: {itself()} logs {words} --follow")
    screen.print(f"Stop it with: {itself()} delete {words}")
