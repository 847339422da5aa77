"""`ddpjob submit FILE`: a DDPJob on a cluster; with `--wait` as long as it lives, shown as in local mode."""

import dataclasses
import sys
import threading
from pathlib import Path

from ddpjob_operator.api import BadInputError, DDPJob
from ddpjob_operator.api.manifest import Manifest, parse, read
from ddpjob_operator.api.words import counted
from ddpjob_operator.cli.display import Display
from ddpjob_operator.cli.screen import Screen
from ddpjob_operator.cli.summary import advise, summarise
from ddpjob_operator.cli.words import INTERRUPTED, exit_code, itself, world, writer
from ddpjob_operator.client import Cluster, Document, ExistsError, Jobs
from ddpjob_operator.engine import Event
from ddpjob_operator.engine.keeping import lost_with_pods

from .life import Life
from .pod_logs import FOLLOWED, PodLogs

POLL_SECONDS = 0.2
UNREAD = 1
"""Nobody reads what is shown: as when `head` has enough."""


def submit(cluster: Cluster, file: Path, namespace: str | None, *, wait: bool, dry_run: bool) -> int:
    """Makes the job of a file; the exit code with `wait` is the job's own.

    Raises:
        BadInputError: the file is wrong, or there is a job of this name already.
        ClusterError: the cluster does not do its part.
    """
    manifest = parse(sys.stdin.read(), "the input") if str(file) == "-" else read(file)
    cluster = _in_namespace(cluster, manifest, namespace)
    jobs = Jobs(cluster)
    metadata = {**manifest.document["metadata"], "namespace": cluster.namespace}
    try:
        made = jobs.create({**manifest.document, "metadata": metadata}, dry_run=dry_run)
    except ExistsError as error:
        name, flags = metadata["name"], f"-n {cluster.namespace}"
        raise BadInputError(
            f"{error}. Look at it: {itself()} status {name} {flags}. Change it: kubectl apply {flags} -f {file}. "
            f"To run it anew, first: {itself()} delete {name} {flags}"
        ) from None
    screen = Screen()
    job = manifest.job
    size = world(job.spec.nodes, job.spec.resolved_procs_per_node())
    where = f"namespace {cluster.namespace} of context {cluster.context}"
    for kind in manifest.others:
        screen.print(f"{kind} in {file} is not submitted; make it with: kubectl apply -f {file}")
    if dry_run:
        screen.print(f"{job.metadata.name}: {size}, can be submitted to {where}")
        screen.print(f"It would get a Service and {counted(job.spec.nodes, 'pod')}; nothing was made")
        _warn_of_losses(screen, job)
        return 0
    screen.print(f"{job.metadata.name}: {size}, submitted to {where}")
    _warn_of_losses(screen, job)
    if wait:
        return _wait(jobs, made, screen)
    _say_how_to_go_on(screen, job, cluster)
    return 0


def _warn_of_losses(screen: Screen, job: DDPJob) -> None:
    """That training is kept on a cluster is for its user to see to, and for us to say before hours of it are lost."""
    if lost := lost_with_pods(job.spec):
        screen.print(f"Suspended, preempted or restarted with new pods, it begins anew: {lost}")


def _in_namespace(cluster: Cluster, manifest: Manifest, given: str | None) -> Cluster:
    """The cluster with the namespace that the job goes to: kubectl's rule."""
    own = manifest.document["metadata"].get("namespace")
    if own and given and own != given:
        raise BadInputError(f"metadata.namespace is {own} and --namespace is {given}; they must agree")
    return dataclasses.replace(cluster, namespace=own or cluster.namespace)


def _wait(jobs: Jobs, made: Document, screen: Screen) -> int:
    """Shows what becomes of the job until it ends, or until the user has seen enough."""
    life = Life(jobs, made)
    job, unread = life.job, threading.Event()
    logs = PodLogs(jobs, made, range(FOLLOWED), writer(job.spec.resolved_procs_per_node()))
    display = Display(screen, logs)
    if job.spec.nodes > FOLLOWED:
        screen.print(f"showing the logs of ranks 0 to {FOLLOWED - 1} of {job.spec.nodes}")
    try:
        with display.following(lost=unread.set, heard=lambda: life.job.status):
            logs.follow()
            _accompany(life, logs, display, unread)
    except KeyboardInterrupt:
        screen.print(f"\n{job.metadata.name} goes on in the cluster")
        _say_how_to_go_on(screen, job, jobs.cluster)
        return INTERRUPTED
    if not life.over:
        return UNREAD
    saved = display.progress.saved.values.get("checkpoint") if display.progress.saved else None
    flags = f" -n {jobs.cluster.namespace}"
    summarise(
        screen, life.job, display.progress, checkpoint=saved, logs=f"{itself()} logs {job.metadata.name}{flags}"
    )
    advise(screen, life.job, flags)
    return exit_code(life.job.status)


def _accompany(life: Life, logs: PodLogs, display: Display, unread: threading.Event) -> None:
    told = False
    while not life.over and not unread.is_set():
        for event in life.news(POLL_SECONDS):
            display.tell(event)
        if logs.problem and not told:
            told = True
            display.tell(Event(warning=True, reason="Notice", message=f"no logs: {logs.problem}"))
    if life.over:
        logs.settle()


def _say_how_to_go_on(screen: Screen, job: DDPJob, cluster: Cluster) -> None:
    words = f"{job.metadata.name} -n {cluster.namespace}"
    screen.print(f"Watch it with: {itself()} logs {words} --follow")
    screen.print(f"Stop it with: {itself()} delete {words}")
