"""Sends a job to a cluster, as `ddpjob submit` does."""

import os
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from ddpjob_operator.api import BadInputError, DDPJob
from ddpjob_operator.cli.cluster.submit import (
    check_in_place,
    create_or_replace,
    parcel_of,
    size_of,
    warn_of_losses,
)
from ddpjob_operator.cli.screen import Screen
from ddpjob_operator.client import ExistsError, Jobs, connect

from .functions import Function, program_of
from .handle import Job
from .public_calls import public_call

FilePath = str | os.PathLike[str]


@public_call
def submit(
    target: FilePath | Function | None = None,
    arguments: Mapping[str, Any] | None = None,
    *,
    args: Sequence[object] = (),
    module: str | None = None,
    nodes: int | None = None,
    gpus_per_node: int | None = None,
    procs_per_node: int | None = None,
    name: str | None = None,
    env: Mapping[str, object] | None = None,
    env_from: Sequence[str] = (),
    source: FilePath | None = None,
    source_registry: str | None = None,
    include: Sequence[FilePath] = (),
    pip: Sequence[str] = (),
    requirements: FilePath | None = None,
    image: str | None = None,
    cpu: str | None = None,
    memory: str | None = None,
    volumes: Sequence[str] = (),
    image_volumes: Sequence[str] = (),
    checkpoint: str | None = None,
    history: str | None = None,
    queue: str | None = None,
    class_name: str | None = None,
    max_restarts: int | None = None,
    start_method: Literal["warm", "cold"] | None = None,
    namespace: str | None = None,
    context: str | None = None,
    kubeconfig: FilePath | None = None,
    replace: bool = False,
    in_place: bool = False,
    quiet: bool = False,
) -> Job:
    """Sends a function, a script, a module, a command or a DDPJob to a cluster, as `ddpjob submit` does.

        job = ddpjob.submit("train.py", args=["--lr", 0.1], nodes=2, gpus_per_node=8)

    Only the script is sent, unless `source` names its folder. The arguments are the options of [`ddpjob
    submit`](command-line.md#ddpjob-submit). Each rank calls a function, and `Job.result` returns what rank 0 returns:

        from mymodel import train

        job = ddpjob.submit(train, {"lr": 0.1}, nodes=2, name="first-try")

    A function is sent with its file and the files below its folder that these import. [From
    Python](../how-to/run-from-python.md) tells what is sent of a notebook.

    Args:
        target: A function, a script, or a YAML file with one DDPJob, which takes none of the options that describe a
            program.
        arguments: The function's arguments by name: numbers, strings, lists and dicts of them, and what becomes these
            (scalars of NumPy, paths, dates), up to 1 MiB. Everyone who may see the job's ConfigMap can read them.
        args: The arguments of the script or module or, without both, a command and its arguments.
        module: A Python module of the image, or of `source`, to run instead of a script.
        nodes: How many nodes; 1 if it is left out.
        gpus_per_node: GPUs per node; none if it is left out.
        procs_per_node: Processes per node; one per GPU, else 1, if it is left out.
        name: The job's name. If it is left out, it is made from the script's name.
        env: Variables for the ranks. Everyone who may see the job can read them.
        env_from: Secrets whose keys become variables for the ranks.
        source: A folder to send, except for what its .gitignore excludes.
        source_registry: A repository of images through which the code is sent, such as
            `registry.example.com/team/code`; then it may have 64 MiB. Kubernetes 1.35 or later.
        include: Files of the folder to send, whatever their names and contents look like.
        pip: Packages to install in addition to those of the image.
        requirements: A requirements file with such packages.
        image: The pods' image, if it is not the administrator's choice.
        cpu: CPUs per node, such as `4` or `500m`.
        memory: Memory per node, such as `16Gi`.
        volumes: PersistentVolumeClaims to mount, each as `CLAIM:/path`.
        image_volumes: Images whose files to mount, each as `IMAGE:/path`.
        checkpoint: Where to save checkpoints: `CLAIM:/path`, or a URL such as `s3://BUCKET/PATH`.
        history: A directory or URL where logs, incidents and progress are kept for when the pods are gone; by default
            beside the checkpoints, if these outlive the pods. `off`: nowhere.
        queue: The Kueue queue that admits the job.
        class_name: The class of the job, which the operator of that class runs, such as `canary`.
        max_restarts: Restarts before the job fails; 6 if it is left out.
        start_method: `warm` or `cold`, as for the command.
        namespace: The namespace, if it is not the context's.
        context: A context of the kubeconfig, if it is not the current one.
        kubeconfig: The kubeconfig, if it is not the one that kubectl uses.
        replace: Whether to change the job of this name, if it exists: it is suspended, changed and resumed.
        in_place: With `replace`: only the code changes, and the ranks restart from the checkpoint in the same pods. A
            function's arguments are part of its code. Returns after the first step of the new code.
        quiet: Whether not to print what is sent, and where.

    Raises:
        BadInputError: There is no such program, ranks cannot call the function, an argument is wrong, or a job of
            this name exists already; with `in_place`, more than the code would change, or the new code has failed
            before its first step, and the job trains on with its former code.
        ClusterError: The cluster cannot be reached, or refuses.
        KeyboardInterrupt: Somebody has pressed Ctrl-C while the job stopped, or before the new code's first step.
    """
    folder = None if source is None else Path(source)
    packed, path = program_of(target, arguments, args, source=folder)
    file = Path(kubeconfig) if kubeconfig is not None else None
    given = Namespace(
        command="submit",
        target=path,
        file_too=None,
        program=[str(argument) for argument in args] or None,
        module=module,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        procs_per_node=procs_per_node,
        name=name,
        env=[f"{key}={value}" for key, value in (env or {}).items()],
        env_from=[*env_from],
        source=folder,
        source_registry=source_registry,
        include=[Path(each) for each in include],
        pip=[*pip],
        requirements=None if requirements is None else Path(requirements),
        image=image,
        cpu=cpu,
        memory=memory,
        volume=[*volumes],
        image_volume=[*image_volumes],
        checkpoint=checkpoint,
        history=history,
        queue=queue,
        class_name=class_name,
        max_restarts=max_restarts,
        start_method=start_method,
        namespace=namespace,
        dry_run=False,
        replace=replace,
        in_place=in_place,
    )
    check_in_place(given)
    cluster, parcel = parcel_of(connect(file, context, namespace), given, packed)
    job, jobs = DDPJob.from_dict(parcel.document), Jobs(cluster)
    screen = Screen(quiet=quiet)
    for line in parcel.told:
        screen.print(line)
    try:
        made = create_or_replace(jobs, parcel, given, screen)
    except ExistsError as error:
        raise BadInputError(
            f"{error}. Choose another name=…, replace it by replace=True, or look at it:"
            f" ddpjob.connect({job.metadata.name!r})"
        ) from None
    assert made is not None, "it is no dry run"
    if not in_place:
        where = f"namespace {cluster.namespace} of context {cluster.context}"
        screen.print(f"{job.metadata.name}: {size_of(job.spec)}, submitted to {where}")
        warn_of_losses(screen, job)
    return Job(jobs, made)
