"""Finds a job on a cluster."""

import os
from pathlib import Path

from ddpjob_operator.client import Jobs
from ddpjob_operator.client import connect as connect_cluster

from .handle import Job
from .public_calls import public_call


@public_call
def connect(
    name: str | None = None,
    *,
    namespace: str | None = None,
    context: str | None = None,
    kubeconfig: str | os.PathLike[str] | None = None,
) -> Job:
    """The job of this name on a cluster, whoever has submitted it.

        job = ddpjob.connect("resnet")
        print(job.status().message)

    Args:
        name: The job's name. It can be left out if the namespace has only one job.
        namespace: The job's namespace, if it is not the context's.
        context: A context of the kubeconfig, if it is not the current one.
        kubeconfig: The kubeconfig, if it is not the one that kubectl uses. In a pod without a kubeconfig, the
            cluster is the pod's own.

    Raises:
        BadInputError: There is no such job, namespace, context or kubeconfig.
        ClusterError: The cluster cannot be reached, or refuses.
    """
    jobs = Jobs(connect_cluster(Path(kubeconfig) if kubeconfig is not None else None, context, namespace))
    return Job(jobs, jobs.get(name) if name is not None else jobs.only())
