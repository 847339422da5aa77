"""Names of a job's objects. All names are deterministic, so that the API server refuses to create an object twice."""

import hashlib
from collections.abc import Mapping
from typing import Any

from ddpjob_operator.api import DDPJob, InheritedMetadata
from ddpjob_operator.api.contract import API_VERSION, KIND, MANAGER, Label
from ddpjob_operator.api.inheritance import carried
from ddpjob_operator.api.ownership import name_in_queue, name_of_group, name_of_pod, suffix
from ddpjob_operator.engine.owned import OwnedKind

SECRET_HASH_LENGTH = 16
"""The hash must be so long that no two jobs ever share one, because the operator cannot read Secrets and assumes that
a Secret with this name belongs to the job."""


def pod_name(job: DDPJob, node: int, incarnation: int) -> str:
    """Returns `<job>-<node>-<suffix>`. Former incarnations, and former jobs of this name, have another suffix."""
    return name_of_pod(job.ref, node, incarnation)


def pod_group_name(job: DDPJob, incarnation: int) -> str:
    """Returns `<job>-<suffix>`, with the suffix of the attempt's pods. Each attempt has its own PodGroup."""
    return name_of_group(job.ref, incarnation)


def kueue_workload_name(job: DDPJob) -> str:
    """Returns `<job>-<suffix>`. The Workload of a former job of this name has another suffix."""
    return name_in_queue(job.ref)


def secret_name(job: DDPJob) -> str:
    """Returns `<job>-<hash>`. The Secret of a former job of this name, which may still exist, has another hash."""
    return f"{job.metadata.name}-{hashlib.sha256(job.metadata.uid.encode()).hexdigest()[:SECRET_HASH_LENGTH]}"


def service_name(job: DDPJob) -> str:
    """Returns the name of the master's Service."""
    assert job.status.network.service, "an attempt was started"
    return job.status.network.service


def present_pod_name(job: DDPJob, node: int) -> str:
    """Returns the name of a node's present pod."""
    return pod_name(job, node, job.status.bookkeeping.incarnations.of(node))


def digest_of_name(job: DDPJob) -> str:
    """Returns a digest that distinguishes a job from its copies.

    If somebody copies a job by replacing its name in a file, the digest of the old name remains in the copy.
    """
    return suffix(f"{job.metadata.namespace}/{job.metadata.name}")


def master_address(job: DDPJob) -> str:
    """Returns rank 0's DNS name. It differs for each incarnation, so an outdated rank never finds a new master."""
    return f"{present_pod_name(job, 0)}.{service_name(job)}.{job.metadata.namespace}.svc"


def job_labels(job: DDPJob) -> dict[str, str]:
    """Returns the labels of all objects that belong to a job."""
    return {Label.MANAGED_BY: MANAGER, Label.JOB_NAME: job.metadata.name, Label.JOB_UID: job.metadata.uid}


def headed(kind: OwnedKind, job: DDPJob, name: str) -> dict[str, Any]:
    """Returns apiVersion, kind and metadata for an object that belongs to a job."""
    return {**kind.type_meta, "metadata": {**owned(job), "name": name, **with_inherited(job, job_labels(job))}}


def with_inherited(job: DDPJob, labels: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Returns `labels` with the labels and annotations that an object other than a pod inherits from its job."""
    inherited = job.status.inherited or InheritedMetadata()
    own = carried(job.spec.template.get("metadata", {}).get("labels", {}))
    annotations = {"annotations": dict(inherited.annotations)} if inherited.annotations else {}
    return {"labels": {**inherited.labels, **own, **labels}, **annotations}


def owned(job: DDPJob) -> dict[str, Any]:
    """Returns the metadata by which an object belongs to the job and is deleted with it."""
    owner = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": job.metadata.name,
        "uid": job.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {"namespace": job.metadata.namespace, "ownerReferences": [owner]}
