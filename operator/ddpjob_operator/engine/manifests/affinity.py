"""Placement preferences of pods: spread over Kubernetes nodes, close to each other, and not on avoided nodes.

The scheduler's plugins have the default weights 2 for node affinity, 2 for topology spread, and 1 each for free and
for balanced resources, and each plugin scales its scores to 100. So an avoided Kubernetes node has 200 points fewer
than all others.
"""

from collections.abc import Iterable

from ddpjob_operator.api import AvoidedNodeName, DDPJob
from ddpjob_operator.api.contract import Label
from ddpjob_operator.engine.snapshot import Manifest

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

TOLERANCE = 5
"""While a Kubernetes node is avoided, `maxSkew` is this number times the job's number of nodes.

With a `maxSkew` of 1, an empty Kubernetes node would get 200 points more than the node with the most pods of the job.
This would make up for the 200 points that an avoided node loses. With a larger `maxSkew`, an empty node gets only the
share c * ln(n + 2) / (c * ln(n + 2) + maxSkew - 1) of these 200 points, where c is the number of pods on the fullest
of n nodes. In the worst case there is only one node besides the avoided node, and all other pods are there when the
last pod is scheduled. The avoided node then makes up for less than 44 points, whatever the job's size. The remaining
156 points exceed any difference in free resources."""

WEIGHTS_OUTWEIGHED, MOST_COPIES = 25, 40
"""The preference for nodes that are not avoided is repeated once per 25 points of weight of the template's own
preferences, at most 40 times. The scheduler scales the sum of all preferences to 100, so without the copies the
template's preferences could outweigh ours. With them, ours weighs at least four times as much."""


def spread(job: DDPJob) -> list[Manifest]:
    """Returns a preference, not a requirement, for spreading the pods over as many Kubernetes nodes as possible.

    The preference is weaker while Kubernetes nodes are avoided, because avoided nodes are the emptiest.
    """
    skew = TOLERANCE * (job.status.nodes or job.spec.nodes) if job.status.avoided_node_names else 1
    return [
        {
            "maxSkew": skew,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {Label.JOB_UID: job.metadata.uid}},
        }
    ]


def avoid(pod: Manifest, job: DDPJob, *, strictly: bool) -> None:
    """Keeps the pod away from avoided Kubernetes nodes, in addition to the template's requirements and preferences.

    If `strictly` is true, nodes that are known to be broken are ruled out. Otherwise the pod only prefers other
    nodes.
    """
    avoided = job.status.avoided_node_names
    if not avoided:
        return
    affinity = pod.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    broken = _elsewhere(node for node in avoided if node.required and strictly)
    if broken and REQUIRED not in affinity:
        affinity[REQUIRED] = {"nodeSelectorTerms": [{"matchFields": broken}]}
    elif broken:
        # One of the terms has to match. An empty term matches no node, and must stay empty.
        for term in filter(None, affinity[REQUIRED]["nodeSelectorTerms"]):
            term["matchFields"] = [*term.get("matchFields", ()), *broken]
    wishes = affinity.setdefault(PREFERRED, [])
    copies = min(1 + sum(wish["weight"] for wish in wishes) // WEIGHTS_OUTWEIGHED, MOST_COPIES)
    wishes += ({"weight": 100, "preference": {"matchFields": _elsewhere(avoided)}} for _ in range(copies))


def _elsewhere(avoided: Iterable[AvoidedNodeName]) -> list[Manifest]:
    """Returns field selectors that exclude these nodes, one for each name, because a selector takes only one value.

    The selectors match the node's name, because the label `kubernetes.io/hostname` may be different or missing.
    """
    return [{"key": "metadata.name", "operator": "NotIn", "values": [node.node_name]} for node in avoided]


def keep_together(pod: Manifest, job: DDPJob) -> None:
    """Places the pods of a job close to each other, in addition to the template's own affinity.

    The first pod may be placed anywhere, because a pod that matches its own affinity term need not wait for others.
    """
    topology = job.spec.topology
    if topology is None or topology.key is None:
        return
    term = {"topologyKey": topology.key, "labelSelector": {"matchLabels": {Label.JOB_UID: job.metadata.uid}}}
    affinity = pod.setdefault("affinity", {}).setdefault("podAffinity", {})
    if topology.required:
        affinity.setdefault(REQUIRED, []).append(term)
    else:
        affinity.setdefault(PREFERRED, []).append({"weight": 100, "podAffinityTerm": term})
