"""Groups of pods that are placed together, as schedulers that can do so want them: Kubernetes' own, and Volcano."""

from ddpjob_operator.api import DDPJob, GangPolicy, Scheduling, SchedulingPolicy
from ddpjob_operator.api.contract import GROUP, KIND, MAX_NODES
from ddpjob_operator.engine.snapshot import Manifest

from .names import job_labels, owned

SCHEDULING_API = "scheduling.k8s.io/v1beta1"
GROUP_TEMPLATE = "nodes"

VOLCANO = "volcano"
"""Its name as a scheduler."""
VOLCANO_API = "scheduling.volcano.sh/v1beta1"
VOLCANO_GROUP = "scheduling.k8s.io/group-name"
VOLCANO_QUEUE = "scheduling.volcano.sh/queue-name"
"""Annotations of pods: https://volcano.sh/en/docs/podgroup/."""


def build_workload(job: DDPJob) -> Manifest:
    """The Workload of an attempt: what its PodGroup is made from, with a way back to the job."""
    return {
        "apiVersion": SCHEDULING_API,
        "kind": "Workload",
        "metadata": {**owned(job), "name": job.status.pod_group, "labels": job_labels(job)},
        "spec": {
            "controllerRef": {"apiGroup": GROUP, "kind": KIND, "name": job.metadata.name},
            "podGroupTemplates": [{"name": GROUP_TEMPLATE, **_placement(job)}],
        },
    }


def build_pod_group(job: DDPJob) -> Manifest:
    """The PodGroup that the pods of an attempt name, of the kind that their scheduler knows."""
    if is_volcano(job):
        return _of_volcano(job)
    return {
        "apiVersion": SCHEDULING_API,
        "kind": "PodGroup",
        "metadata": {**owned(job), "name": job.status.pod_group, "labels": job_labels(job)},
        "spec": {
            "workloadRef": {"workloadName": job.status.pod_group, "templateName": GROUP_TEMPLATE},
            **_placement(job),
        },
    }


def join(pod: Manifest, job: DDPJob) -> None:
    """Has a pod name its attempt's PodGroup."""
    if is_volcano(job):
        pod["metadata"]["annotations"][VOLCANO_GROUP] = job.status.pod_group
    else:
        pod["spec"]["schedulingGroup"] = {"podGroupName": job.status.pod_group}


def is_volcano(job: DDPJob) -> bool:
    """Whether Volcano is to place the job's pods."""
    return bool(job.spec.template["spec"].get("schedulerName") == VOLCANO)


def _of_volcano(job: DDPJob) -> Manifest:
    """Volcano reads the queue from an annotation of pods, as of those that it makes groups for itself."""
    pod, annotations = job.spec.template["spec"], job.spec.template.get("metadata", {}).get("annotations", {})
    queue = {"queue": annotations[VOLCANO_QUEUE]} if VOLCANO_QUEUE in annotations else {}
    priority = {"priorityClassName": pod["priorityClassName"]} if "priorityClassName" in pod else {}
    asked = (job.spec.scheduling or Scheduling()).scheduling_policy or SchedulingPolicy()
    return {
        "apiVersion": VOLCANO_API,
        "kind": "PodGroup",
        "metadata": {**owned(job), "name": job.status.pod_group, "labels": job_labels(job)},
        "spec": {"minMember": 1 if asked.basic is not None else _least(job, asked), **queue, **priority},
    }


def _placement(job: DDPJob) -> Manifest:
    """How the pods of the present attempt are placed.

    Kubernetes' scheduler refuses a group whose priority is not that of its pods.
    """
    asked, pod = job.spec.scheduling or Scheduling(), job.spec.template["spec"]
    mode = {"disruptionMode": asked.disruption_mode.to_dict()} if asked.disruption_mode else {}
    priority = {"priorityClassName": pod["priorityClassName"]} if "priorityClassName" in pod else {}
    return {"schedulingPolicy": _policy(job, asked.scheduling_policy or SchedulingPolicy()), **mode, **priority}


def _policy(job: DDPJob, asked: SchedulingPolicy) -> Manifest:
    """By default no pod is placed before there is room for all, or for as many as an elastic gang can do with."""
    if asked.basic is not None:
        return {"basic": {}}
    return {"gang": {"minCount": _least(job, asked)}}


def _least(job: DDPJob, asked: SchedulingPolicy) -> int:
    """How few pods the gang can do with to begin."""
    assert job.status.nodes is not None, "an attempt was started"
    least = (asked.gang or GangPolicy()).min_count or (job.spec.elastic.min_nodes if job.spec.elastic else MAX_NODES)
    # A gang that has shrunk may have fewer pods than were asked for.
    return min(least, job.status.nodes)
