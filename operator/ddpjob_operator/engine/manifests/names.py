"""Names of the objects that belong to a job. All are known beforehand: the API server refuses to create one twice."""

import hashlib
from collections.abc import Mapping
from typing import Any

from ddpjob_operator.api import DDPJob, InheritedMetadata
from ddpjob_operator.api.contract import API_VERSION, KIND, MANAGER, Label
from ddpjob_operator.api.inheritance import carried
from ddpjob_operator.api.ownership import name_in_queue, name_of_group, name_of_pod, suffix
from ddpjob_operator.engine.owned import OwnedKind

SECRET_HASH_LENGTH = 16
"""Long enough that no two jobs ever share a hash: without reading it, the operator takes an object with this name for
the job's own."""


def pod_name(job: DDPJob, node: int, incarnation: int) -> str:
    """`<job>-<node>-<suffix>`: never the name of a pod of a former incarnation, or of a former job with this name."""
    return name_of_pod(job.ref, node, incarnation)


def pod_group_name(job: DDPJob, incarnation: int) -> str:
    """`<job>-<suffix>`: each attempt of the whole gang has a PodGroup of its own, with the suffix of its pods."""
    return name_of_group(job.ref, incarnation)


def kueue_workload_name(job: DDPJob) -> str:
    """`<job>-<suffix>`: a job has one Workload, whose name differs from that of a former job of the same name."""
    return name_in_queue(job.ref)


def secret_name(job: DDPJob) -> str:
    """`<job>-<hash>`: never that of a former job's Secret, which is about to be removed and must not become ours."""
    return f"{job.metadata.name}-{hashlib.sha256(job.metadata.uid.encode()).hexdigest()[:SECRET_HASH_LENGTH]}"


def service_name(job: DDPJob) -> str:
    """The name of the master's Service."""
    assert job.status.network.service, "an attempt was started"
    return job.status.network.service


def present_pod_name(job: DDPJob, node: int) -> str:
    """The name of a node's present pod."""
    return pod_name(job, node, job.status.bookkeeping.incarnations.of(node))


def digest_of_name(job: DDPJob) -> str:
    """Tells a job from its copies: whoever copies a file may replace the name wherever it occurs, but not in here."""
    return suffix(f"{job.metadata.namespace}/{job.metadata.name}")


def master_address(job: DDPJob) -> str:
    """Rank 0's name in DNS. Each incarnation has its own, so no stale record leads an old rank to a new master."""
    return f"{present_pod_name(job, 0)}.{service_name(job)}.{job.metadata.namespace}.svc"


def job_labels(job: DDPJob) -> dict[str, str]:
    """Labels of everything that belongs to a job."""
    return {Label.MANAGED_BY: MANAGER, Label.JOB_NAME: job.metadata.name, Label.JOB_UID: job.metadata.uid}


def headed(kind: OwnedKind, job: DDPJob, name: str) -> dict[str, Any]:
    """The first fields of the manifest of an object that belongs to a job."""
    return {**kind.type_meta, "metadata": {**owned(job), "name": name, **with_inherited(job, job_labels(job))}}


def with_inherited(job: DDPJob, labels: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The labels and annotations of an object that is not a pod: these labels of ours, and what it inherits."""
    inherited = job.status.inherited or InheritedMetadata()
    own = carried(job.spec.template.get("metadata", {}).get("labels", {}))
    annotations = {"annotations": dict(inherited.annotations)} if inherited.annotations else {}
    return {"labels": {**inherited.labels, **own, **labels}, **annotations}


def owned(job: DDPJob) -> dict[str, Any]:
    """The metadata of what belongs to the job and is deleted with it."""
    owner = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": job.metadata.name,
        "uid": job.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {"namespace": job.metadata.namespace, "ownerReferences": [owner]}
