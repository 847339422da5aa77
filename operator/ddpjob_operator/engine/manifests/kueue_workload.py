"""The Workload by which a job requests quota from Kueue, and the placement that its pods get from Kueue.

See https://kueue.sigs.k8s.io/docs/concepts/workload/.
"""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from ddpjob_operator.api import DDPJob
from ddpjob_operator.api.contract import ASKED, Label
from ddpjob_operator.engine.owned import KUEUE_WORKLOAD
from ddpjob_operator.engine.snapshot import Manifest, Placement, Queue

from .names import job_labels, kueue_workload_name, owned, with_inherited

POD_SET = "nodes"
JOB_UID_LABEL = "kueue.x-k8s.io/job-uid"
"""The label by which Kueue's own tools find a job's Workload."""
POD_SET_LABEL = "kueue.x-k8s.io/podset"
WORKLOAD_ANNOTATION = "kueue.x-k8s.io/workload"
TOPOLOGY_GATE = "kueue.x-k8s.io/topology"
"""The scheduling gate of pods whose topology domain Kueue chooses. Kueue removes it after adding a node selector."""
UNCONSTRAINED = "kueue.x-k8s.io/podset-unconstrained-topology"

TOPOLOGY = {
    "kueue.x-k8s.io/podset-required-topology": "required",
    "kueue.x-k8s.io/podset-preferred-topology": "preferred",
    UNCONSTRAINED: "unconstrained",
}
"""Annotations of a pod template that request a topology, and the corresponding fields of a Workload."""

OF_POD = (
    *("nodeSelector", "affinity", "tolerations", "runtimeClassName", "priorityClassName", "overhead", "resources"),
    "resourceClaims",
)
OF_CONTAINER = ("name", "resources", "restartPolicy")
"""The fields of a template that Kueue reads. With all fields, a Workload would be as large as the job."""


def build_kueue_workload(job: DDPJob, queue: Queue) -> Manifest:
    """Builds the job's Workload. The adapter adds the value of the priority class, which it looks up."""
    elastic = {"minCount": job.spec.elastic.min_nodes} if job.spec.elastic else {}
    classes = priority_class_ref(job, queue)
    marks = with_inherited(job, {**job_labels(job), JOB_UID_LABEL: job.metadata.uid})
    return {
        **KUEUE_WORKLOAD.type_meta,
        "metadata": {
            **owned(job),
            "name": kueue_workload_name(job),
            "labels": marks["labels"],
            "annotations": {**marks.get("annotations", {}), ASKED: asked(job)},
        },
        "spec": {
            "queueName": queue.name,
            "podSets": [{"name": POD_SET, "count": job.spec.nodes, **elastic, **_of_template(job)}],
            **({"priorityClassRef": classes} if classes else {}),
        },
    }


def asked(job: DDPJob) -> str:
    """Returns a digest of the job's request, except the number of nodes. A job with a new digest must queue again."""
    return hashlib.sha256(json.dumps(_of_template(job), sort_keys=True).encode()).hexdigest()[:16]


def priority_class_ref(job: DDPJob, queue: Queue) -> Manifest | None:
    """Returns the job's priority class: the WorkloadPriorityClass from its label, else the pods' PriorityClass."""
    if queue.priority_class:
        return {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": queue.priority_class}
    if name := job.spec.template["spec"].get("priorityClassName"):
        return {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": name}
    return None


def place(pod: Manifest, name: str, placement: Placement) -> None:
    """Adds the queue's placement to a pod, in addition to the template's labels, selectors and tolerations."""
    spec, metadata = pod["spec"], pod["metadata"]
    labels, annotations = metadata["labels"], metadata["annotations"]
    metadata["labels"] = {**labels, **placement.labels, POD_SET_LABEL: POD_SET}
    metadata["annotations"] = {**annotations, **placement.annotations, WORKLOAD_ANNOTATION: name}
    if placement.node_selector:
        spec["nodeSelector"] = {**spec.get("nodeSelector", {}), **placement.node_selector}
    spec.setdefault("tolerations", []).extend(placement.tolerations)
    if placement.topology:
        spec.setdefault("schedulingGates", []).append({"name": TOPOLOGY_GATE})
        if not metadata["annotations"].keys() & TOPOLOGY.keys():
            metadata["annotations"][UNCONSTRAINED] = "true"


def _of_template(job: DDPJob) -> Manifest:
    """Returns the Workload's pod set without its size."""
    template = job.spec.template
    spec = template["spec"]
    containers = {
        kind: [_only(one, OF_CONTAINER) for one in spec[kind]]
        for kind in ("initContainers", "containers")
        if kind in spec
    }
    topology = dict(_topology(template.get("metadata", {}).get("annotations", {})))
    # With podIndexLabel, Kueue places ranks that are neighbours in a ring close to each other.
    request = {"topologyRequest": {**topology, "podIndexLabel": Label.NODE}} if topology else {}
    return {"template": {"spec": {**_only(spec, OF_POD), **containers}}, **request}


def _topology(annotations: Manifest) -> Iterator[tuple[str, Any]]:
    for annotation, field in TOPOLOGY.items():
        if annotation in annotations:
            value = annotations[annotation]
            yield field, value == "true" if annotation == UNCONSTRAINED else value


def _only(what: Manifest, fields: tuple[str, ...]) -> Manifest:
    return {field: what[field] for field in fields if field in what}
