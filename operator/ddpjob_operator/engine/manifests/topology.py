"""Ranks that follow placement: what tells a pod's supervisor which other pods it is close to.

A pod is made before it is placed. So the operator writes an annotation once the pod is scheduled, and the kubelet
shows it in a file: a variable would be fixed when the container starts.
"""

from ddpjob_operator.api import DDPJob
from ddpjob_operator.api.contract import DOMAIN, DOMAIN_FILE, TOPOLOGY_DIRECTORY
from ddpjob_operator.engine.snapshot import Manifest

TOPOLOGY_VOLUME = "ddpjob-topology"


def domain_key(job: DDPJob) -> str | None:
    """The node label whose value a pod is told; None if the job names none, or if it has no supervisor to use it."""
    topology = job.spec.topology
    return topology.key if topology and job.spec.supervisor else None


def called(job: DDPJob) -> str:
    """What messages put before a node's number: `rank` if that is also the rank of its only process, else `node`."""
    procs_per_node = job.status.procs_per_node or job.spec.resolved_procs_per_node()
    return "rank" if procs_per_node == 1 and domain_key(job) is None else "node"


def show_domain(pod: Manifest, trainer: Manifest) -> None:
    """Shows the trainer the domain of its pod, as soon as it is known."""
    mount = {"name": TOPOLOGY_VOLUME, "mountPath": TOPOLOGY_DIRECTORY, "readOnly": True}
    item = {"path": DOMAIN_FILE, "fieldRef": {"fieldPath": f"metadata.annotations['{DOMAIN}']"}}
    trainer["volumeMounts"].append(mount)
    pod["volumes"].append({"name": TOPOLOGY_VOLUME, "downwardAPI": {"items": [item]}})
