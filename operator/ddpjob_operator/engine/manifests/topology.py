"""Shows each pod's supervisor the topology domain of the pod, so that ranks can follow placement.

A pod is created before it is placed. So the operator writes an annotation after the pod has been scheduled, and the
kubelet shows the annotation in a file. (A variable could not change any more after the container has started.)
"""

from ddpjob_operator.api import DDPJob
from ddpjob_operator.api.contract import DOMAIN, DOMAIN_FILE, TOPOLOGY_DIRECTORY
from ddpjob_operator.engine.snapshot import Manifest

TOPOLOGY_VOLUME = "ddpjob-topology"


def domain_key(job: DDPJob) -> str | None:
    """Returns the node label with the topology domain; None if the job names none or has no supervisor to use it."""
    topology = job.spec.topology
    return topology.key if topology and job.spec.supervisor else None


def called(job: DDPJob) -> str:
    """Returns the word for a node in messages: `rank` if its number is the rank of its only process, else `node`."""
    procs_per_node = job.status.procs_per_node or job.spec.resolved_procs_per_node()
    return "rank" if procs_per_node == 1 and domain_key(job) is None else "node"


def show_domain(pod: Manifest, trainer: Manifest) -> None:
    """Mounts the file that shows the trainer the topology domain of its pod as soon as it is known."""
    mount = {"name": TOPOLOGY_VOLUME, "mountPath": TOPOLOGY_DIRECTORY, "readOnly": True}
    item = {"path": DOMAIN_FILE, "fieldRef": {"fieldPath": f"metadata.annotations['{DOMAIN}']"}}
    trainer["volumeMounts"].append(mount)
    pod["volumes"].append({"name": TOPOLOGY_VOLUME, "downwardAPI": {"items": [item]}})
