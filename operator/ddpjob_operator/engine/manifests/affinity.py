"""Where a pod would rather be placed: away from the other pods of its job, close to them, and not on avoided nodes.

The default weights of the scheduler's plugins are 2 for node affinity, 2 for topology spread, and 1 each for free and
for balanced resources; each plugin scales its scores to 100. So a Kubernetes node that is avoided loses 200 points
against all others.
"""

from collections.abc import Iterable

from ddpjob_operator.api import AvoidedNodeName, DDPJob
from ddpjob_operator.api.contract import Label
from ddpjob_operator.engine.snapshot import Manifest

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

TOLERANCE = 5
"""While a Kubernetes node is avoided, `maxSkew` is the job's number of nodes times this. With a `maxSkew` of 1, an
empty node gets 200 points more than the one that has most pods of the job: as much as an avoided node loses. With c
pods there, and n nodes to choose from, it gets c * ln(n + 2) / (c * ln(n + 2) + maxSkew - 1) of these 200. The worst
case is a single node beside the avoided one: the last pod finds all others there, which gives the avoided node less
than 44 points, whatever the job's size. That leaves 156 for the difference between a full node and an empty one."""

WEIGHTS_OUTWEIGHED, MOST_COPIES = 25, 40
"""The preference for other nodes is repeated for each so many points of weight that the template gives to preferences
of its own, because the scheduler scales their sum to 100; so it weighs at least four times as much as all of them."""


def spread(job: DDPJob) -> list[Manifest]:
    """Spreads the pods over as many Kubernetes nodes as possible, as a preference, not a requirement.

    It is a weaker preference while Kubernetes nodes are avoided, because they are the emptiest.
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
    """Keeps the pod away from avoided Kubernetes nodes, in addition to what the template demands and prefers.

    If `strictly`, those that are known to be broken are ruled out. Otherwise the pod only prefers others.
    """
    avoided = job.status.avoided_node_names
    if not avoided:
        return
    affinity = pod.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    broken = _elsewhere(node for node in avoided if node.required and strictly)
    if broken and REQUIRED not in affinity:
        affinity[REQUIRED] = {"nodeSelectorTerms": [{"matchFields": broken}]}
    elif broken:
        # One of the terms has to match. An empty one matches no node, and has to stay empty.
        for term in filter(None, affinity[REQUIRED]["nodeSelectorTerms"]):
            term["matchFields"] = [*term.get("matchFields", ()), *broken]
    wishes = affinity.setdefault(PREFERRED, [])
    copies = min(1 + sum(wish["weight"] for wish in wishes) // WEIGHTS_OUTWEIGHED, MOST_COPIES)
    wishes += ({"weight": 100, "preference": {"matchFields": _elsewhere(avoided)}} for _ in range(copies))


def _elsewhere(avoided: Iterable[AvoidedNodeName]) -> list[Manifest]:
    """Field selectors of all nodes but these: each name needs its own, because a selector takes only one value.

    They go by the node's name, because the label `kubernetes.io/hostname` may differ from it, or be missing.
    """
    return [{"key": "metadata.name", "operator": "NotIn", "values": [node.node_name]} for node in avoided]


def keep_together(pod: Manifest, job: DDPJob) -> None:
    """Places the pods of a job close to each other, beside the template's own affinity.

    The first pod may go anywhere: a pod that matches its own affinity term does not wait for others to be placed.
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
