"""PodGroups, whose pods are placed together by a scheduler that can do so: Kubernetes' own, or Volcano."""

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
    """Builds an attempt's Workload, which contains the template of its PodGroup and refers to the job."""
    return {
        **headed(WORKLOAD, job, _name(job)),
        "spec": {
            "controllerRef": {"apiGroup": GROUP, "kind": KIND, "name": job.metadata.name},
            "podGroupTemplates": [{"name": GROUP_TEMPLATE, **_placement(job)}],
        },
    }


def build_pod_group(job: DDPJob) -> Manifest:
    """Builds an attempt's PodGroup, of the kind that the pods' scheduler knows."""
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
    """Returns the name of the present attempt's PodGroup, which is also that of its Workload."""
    assert job.status.pod_group, "the present attempt has no PodGroup"
    return job.status.pod_group


def _of_volcano(job: DDPJob) -> Manifest:
    """Builds Volcano's PodGroup. Its queue comes from a pod annotation, as in groups that Volcano itself creates."""
    pod, annotations = job.spec.template["spec"], job.spec.template.get("metadata", {}).get("annotations", {})
    queue = {"queue": annotations[QUEUE_ANNOTATION]} if QUEUE_ANNOTATION in annotations else {}
    priority = {"priorityClassName": pod["priorityClassName"]} if "priorityClassName" in pod else {}
    asked = (job.spec.scheduling or Scheduling()).scheduling_policy or SchedulingPolicy()
    return {
        **headed(VOLCANO_GROUP, job, _name(job)),
        "spec": {"minMember": 1 if asked.basic is not None else _least(job, asked), **queue, **priority},
    }


def _placement(job: DDPJob) -> Manifest:
    """Returns how the pods of the present attempt are placed.

    The priority is included because Kubernetes' scheduler refuses a group whose priority differs from its pods'.
    """
    asked, pod = job.spec.scheduling or Scheduling(), job.spec.template["spec"]
    mode = {"disruptionMode": asked.disruption_mode.to_dict()} if asked.disruption_mode else {}
    priority = {"priorityClassName": pod["priorityClassName"]} if "priorityClassName" in pod else {}
    return {"schedulingPolicy": _policy(job, asked.scheduling_policy or SchedulingPolicy()), **mode, **priority}


def _policy(job: DDPJob, asked: SchedulingPolicy) -> Manifest:
    """Returns the scheduling policy. By default no pod is placed until there is room for the smallest valid gang."""
    if asked.basic is not None:
        return {"basic": {}}
    return {"gang": {"minCount": _least(job, asked)}}


def _least(job: DDPJob, asked: SchedulingPolicy) -> int:
    """Returns the smallest number of pods that the gang can begin with."""
    assert job.status.nodes is not None, "an attempt was started"
    least = (asked.gang or GangPolicy()).min_count or (job.spec.elastic.min_nodes if job.spec.elastic else MAX_NODES)
    # A gang that has shrunk may have fewer pods than the spec requests.
    return min(least, job.status.nodes)
