"""`ddpjob suspend`, `resume`, `scale` and `cancel` on a cluster: each changes the spec, which the operator heeds."""

from ddpjob_operator.api import BadInputError, ConditionType, DDPJob
from ddpjob_operator.api.gitops import keeper
from ddpjob_operator.api.reasons import Reason
from ddpjob_operator.api.words import counted
from ddpjob_operator.cli.invocation import itself
from ddpjob_operator.cli.phrases import how_to_resume
from ddpjob_operator.client import Document, Jobs, as_job
from ddpjob_operator.engine import lost_with_pods
from ddpjob_operator.text import visible

ENDS = frozenset(
    {ConditionType.SUCCESS_CRITERIA_MET, ConditionType.FAILURE_TARGET, ConditionType.COMPLETE, ConditionType.FAILED}
)
"""Conditions that say how a job ends or has ended. Nothing changes that later, not even `spec.cancel`."""


def suspend(jobs: Jobs, name: str) -> int:
    """Lets a job save and stop, and prints how to resume it.

    Raises:
        BadInputError: there is no such job, or it has finished.
        ClusterError: the cluster cannot be reached, or does not fulfil a request.
    """
    document, job = unfinished(jobs, name)
    if job.spec.suspend:
        print(f"{name}: suspended already")
        return 0
    jobs.suspend(document)
    lost = lost_with_pods(job.spec)
    print(f"{name}: suspended; its pods {f'stop, and on resume it starts over: {lost}' if lost else 'save and stop'}")
    _tell_keeper(document, "spec.suspend")
    command = f"{itself()} resume {name} -n {job.metadata.namespace}"
    print(*([f"Go on with: {command}"] if lost else how_to_resume(command, job.status)), sep="\n")
    return 0


def resume(jobs: Jobs, name: str) -> int:
    """Lets a suspended job go on.

    Raises:
        BadInputError: there is no such job, or it has finished.
        ClusterError: the cluster cannot be reached, or does not fulfil a request.
    """
    document, job = unfinished(jobs, name)
    if not job.spec.suspend:
        print(f"{name}: not suspended")
        return 0
    jobs.suspend(document, suspended=False)
    print(f"{name}: resumed")
    _tell_keeper(document, "spec.suspend")
    return 0


def scale(jobs: Jobs, name: str, nodes: int) -> int:
    """Changes a job's number of nodes.

    Raises:
        BadInputError: there is no such job, it has finished, or `nodes` is not allowed.
        ClusterError: the cluster cannot be reached, or does not fulfil a request.
    """
    if nodes < 1:
        raise BadInputError(f"--nodes {nodes} is too small; to stop a job and keep it: {itself()} suspend {name}")
    document, job = unfinished(jobs, name)
    if job.spec.nodes == nodes:
        print(f"{name}: already has {counted(nodes, 'node')}")
        return 0
    jobs.scale(document, nodes)
    print(f"{name}: scaled from {job.spec.nodes} to {counted(nodes, 'node')}{_what_it_does(job)}")
    _tell_keeper(document, "spec.nodes")
    return 0


def cancel(jobs: Jobs, name: str) -> int:
    """Ends a job for good; the job and the logs of its pods stay.

    Raises:
        BadInputError: there is no such job, or it has ended without having been cancelled.
        ClusterError: the cluster cannot be reached, or does not fulfil a request.
    """
    document = jobs.get(name)
    job = as_job(document)
    ends = [known for known in job.status.conditions if known.status == "True" and known.type in ENDS]
    if any(known.reason == Reason.CANCELLED for known in ends) or (job.spec.cancel and not ends):
        print(f"{name}: cancelled already")
        return 0
    if ends and not job.status.finished:
        print(f"{name}: ending already: {visible(ends[0].message)}")
        return 0
    _check_unfinished(job)
    jobs.cancel(document)
    print(f"{name}: cancelled; its pods save and stop, and stay with their logs")
    return 0


def _tell_keeper(document: Document, field: str) -> None:
    """If a GitOps tool syncs the job from a repository, warns that it will undo the change of a field."""
    metadata = document["metadata"]
    tool = keeper(metadata.get("labels", {}), metadata.get("annotations", {}))
    if tool:
        print(f"{metadata['name']}: {tool} resets this job to what its repository says; set {field} there too")


def _what_it_does(job: DDPJob) -> str:
    """How the new size affects the job's pods, as the end of a message; empty if there are no pods."""
    if job.spec.suspend or not job.status.attempt:
        return ""
    lost = lost_with_pods(job.spec)
    return (
        f"; its pods stop, and new ones start over: {lost}"
        if lost
        else "; its pods save and stop, and new ones go on"
    )


def unfinished(jobs: Jobs, name: str) -> tuple[Document, DDPJob]:
    """Returns a job if it can still be changed.

    Raises:
        BadInputError: there is no such job, it has finished, or it was cancelled.
    """
    document = jobs.get(name)
    job = as_job(document)
    _check_unfinished(job)
    return document, job


def _check_unfinished(job: DDPJob) -> None:
    """Checks that a job has not finished, and was not cancelled.

    Raises:
        BadInputError: it has, or was.
    """
    name = job.metadata.name
    if job.status.finished or job.spec.cancel:
        end = f"has {job.status.state.lower()}" if job.status.finished else "was cancelled"
        command = f"{itself()} delete {name} -n {job.metadata.namespace}"
        raise BadInputError(f"{name} {end} and cannot be changed. To run it again, first: {command}")
