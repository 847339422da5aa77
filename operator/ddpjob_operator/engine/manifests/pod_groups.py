"""Groups of pods that are to be placed together, for the schedulers that can do so: Kubernetes' own, and Volcano."""

from ddpjob_operator.api import DDPJob, GangPolicy, Scheduling, SchedulingPolicy
from ddpjob_operator.api.contract import GROUP, KIND, MAX_NODES
from ddpjob_operator.engine.owned import POD_GROUP, VOLCANO_GROUP, WORKLOAD, group_kind
from ddpjob_operator.engine.snapshot import Manifest

from .names import headed

GROUP_TEMPLATE = "nodes"

GROUP_ANNOTATION = "scheduling.k8s.io/group-name"
QUEUE_ANNOTATION = "scheduling.volcano.sh/queue-name"
"""Annotations of pods: https://volcano.sh/en/docs/podgroup/."""


def build_workload(job: DDPJob) -> Manifest:
    """The Workload of an attempt: what its PodGroup is made from, with a reference to the job."""
    return {
        **headed(WORKLOAD, job, _name(job)),
        "spec": {
            "controllerRef": {"apiGroup": GROUP, "kind": KIND, "name": job.metadata.name},
            "podGroupTemplates": [{"name": GROUP_TEMPLATE, **_placement(job)}],
        },
    }


def build_pod_group(job: DDPJob) -> Manifest:
    """The PodGroup that the pods of an attempt name, of the kind that their scheduler knows."""
    if group_kind(job) is VOLCANO_GROUP:
        return _of_volcano(job)
    return {
        **headed(POD_GROUP, job, _name(job)),
        "spec": {
            "workloadRef": {"workloadName": job.status.pod_group, "templateName": GROUP_TEMPLATE},
            **_placement(job),
        },
    }


def join(pod: Manifest, job: DDPJob) -> None:
    """Makes a pod refer to its attempt's PodGroup."""
    if group_kind(job) is VOLCANO_GROUP:
        pod["metadata"]["annotations"][GROUP_ANNOTATION] = job.status.pod_group
    else:
        pod["spec"]["schedulingGroup"] = {"podGroupName": job.status.pod_group}


def _name(job: DDPJob) -> str:
    """The name of the present attempt's PodGroup, and of its Workload."""
    assert job.status.pod_group, "the present attempt has no PodGroup"
    return job.status.pod_group


def _of_volcano(job: DDPJob) -> Manifest:
    """Volcano's PodGroup. Its queue comes from an annotation of the pods, as in groups that Volcano makes itself."""
    pod, annotations = job.spec.template["spec"], job.spec.template.get("metadata", {}).get("annotations", {})
    queue = {"queue": annotations[QUEUE_ANNOTATION]} if QUEUE_ANNOTATION in annotations else {}
    priority = {"priorityClassName": pod["priorityClassName"]} if "priorityClassName" in pod else {}
    asked = (job.spec.scheduling or Scheduling()).scheduling_policy or SchedulingPolicy()
    return {
        **headed(VOLCANO_GROUP, job, _name(job)),
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
    """By default no pod is placed before there is room for all, or for the fewest that an elastic gang needs."""
    if asked.basic is not None:
        return {"basic": {}}
    return {"gang": {"minCount": _least(job, asked)}}


def _least(job: DDPJob, asked: SchedulingPolicy) -> int:
    """The fewest pods that the gang can begin with."""
    assert job.status.nodes is not None, "an attempt was started"
    least = (asked.gang or GangPolicy()).min_count or (job.spec.elastic.min_nodes if job.spec.elastic else MAX_NODES)
    # A gang that has shrunk may have fewer pods than were asked for.
    return min(least, job.status.nodes)
