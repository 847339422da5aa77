"""The Service and the pods of a job, as they are created."""

import copy

from ddpjob_operator.api import DDPJob
from ddpjob_operator.api.contract import API_VERSION, KIND, TERMINATION_LOG_PATH, TRAINER_CONTAINER, Label

from .env import trainer_env
from .naming import job_labels, pod_name, service_name
from .snapshot import Manifest

CHECKPOINT_VOLUME = "ddpjob-checkpoint"
SHM_VOLUME = "ddpjob-shm"
SHM_PATH = "/dev/shm"  # noqa: S108  NCCL and DataLoader workers look for shared memory here and nowhere else


def build_service(job: DDPJob) -> Manifest:
    """The headless Service of the master.

    It selects rank 0 by the job's uid whatever the attempt, so it never has to be patched and has one endpoint
    whatever the size; and it publishes an address that is not ready, since rank 0 is ready only once all have met.
    """
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {**_owned(job), "name": service_name(job), "labels": job_labels(job)},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {Label.JOB_UID: job.metadata.uid, Label.RANK: "0"},
            "ports": [{"name": "master", "port": job.status.master_port, "protocol": "TCP"}],
        },
    }


def build_pod(job: DDPJob, rank: int) -> Manifest:
    """The pod of a rank in the present incarnation: the template, and what makes it one of the gang."""
    incarnation = job.status.incarnations.default
    template = copy.deepcopy(job.spec.template)
    metadata, pod = template.get("metadata", {}), template["spec"]
    own_labels = {**job_labels(job), Label.RANK: str(rank), Label.INCARNATION: str(incarnation)}
    pod["restartPolicy"] = "Never"
    pod["hostname"] = pod_name(job, rank, incarnation)
    pod["subdomain"] = service_name(job)
    pod.setdefault("topologySpreadConstraints", _spread(job))
    for container in pod["containers"]:
        if container["name"] == TRAINER_CONTAINER:
            _equip(container, job, rank)
    _add_volumes(pod, job)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **_owned(job),
            "name": pod_name(job, rank, incarnation),
            "labels": {**metadata.get("labels", {}), **own_labels},
            "annotations": metadata.get("annotations", {}),
        },
        "spec": pod,
    }


def _owned(job: DDPJob) -> Manifest:
    """Belonging to the job: deleted with it."""
    owner = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": job.metadata.name,
        "uid": job.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {"namespace": job.metadata.namespace, "ownerReferences": [owner]}


def _equip(container: Manifest, job: DDPJob, rank: int) -> None:
    own = container.get("env", [])
    container["env"] = [*trainer_env(job, rank), *_live_output(own), *own]
    container.setdefault("terminationMessagePath", TERMINATION_LOG_PATH)
    container.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
    mounts = container.setdefault("volumeMounts", [])
    if all(mount["mountPath"] != SHM_PATH for mount in mounts):
        mounts.append({"name": SHM_VOLUME, "mountPath": SHM_PATH})
    if job.spec.checkpoint and job.spec.checkpoint.volume:
        mounts.append({"name": CHECKPOINT_VOLUME, "mountPath": job.spec.checkpoint.path})


def _live_output(own: list[Manifest]) -> list[Manifest]:
    """Python writes through a pipe in blocks, unless told otherwise: a log that is minutes late."""
    name = "PYTHONUNBUFFERED"
    return [] if any(variable["name"] == name for variable in own) else [{"name": name, "value": "1"}]


def _add_volumes(pod: Manifest, job: DDPJob) -> None:
    mounted = {mount["name"] for container in pod["containers"] for mount in container.get("volumeMounts", [])}
    volumes = pod.setdefault("volumes", [])
    if SHM_VOLUME in mounted:
        volumes.append({"name": SHM_VOLUME, "emptyDir": {"medium": "Memory"}})
    if job.spec.checkpoint and job.spec.checkpoint.volume:
        volumes.append({"name": CHECKPOINT_VOLUME, **job.spec.checkpoint.volume})


def _spread(job: DDPJob) -> list[Manifest]:
    """One pod per node where there are enough nodes; a preference, not a condition."""
    return [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {Label.JOB_UID: job.metadata.uid}},
        }
    ]
