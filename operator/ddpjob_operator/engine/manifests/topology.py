"""Shows annotations of pods to their supervisors: the topology domain, and requests for checkpoints.

The domain determines the order of the ranks. Because a pod is created before it is placed, the operator writes the
domain into an annotation after the pod has been scheduled, and the kubelet shows the annotation in a file. (An
environment variable could not change after the start of the container.) A request for a checkpoint reaches rank 0's
supervisor in the same way, long after the start.
"""

from ddpjob_operator.api import DDPJob
from ddpjob_operator.api.contract import (
    ANNOTATIONS_DIRECTORY,
    CHECKPOINT_REQUEST,
    CHECKPOINT_REQUEST_FILE,
    DOMAIN,
    DOMAIN_FILE,
)
from ddpjob_operator.api.job import domain_key
from ddpjob_operator.engine.snapshot import Manifest

ANNOTATIONS_VOLUME = "ddpjob-annotations"


def shown_annotations(job: DDPJob, node: int) -> dict[str, str]:
    """Returns the annotations that the supervisor in a node's pod needs, by the names of their files."""
    domain = {DOMAIN_FILE: DOMAIN} if domain_key(job) else {}
    return domain | ({CHECKPOINT_REQUEST_FILE: CHECKPOINT_REQUEST} if node == 0 and job.spec.supervisor else {})


def show_annotations(pod: Manifest, trainer: Manifest, annotations: dict[str, str]) -> None:
    """Mounts files with annotations of the pod into the trainer. A file is empty until its annotation is written."""
    if not annotations:
        return
    mount = {"name": ANNOTATIONS_VOLUME, "mountPath": ANNOTATIONS_DIRECTORY, "readOnly": True}
    items = [
        {"path": file, "fieldRef": {"fieldPath": f"metadata.annotations['{name}']"}}
        for file, name in annotations.items()
    ]
    trainer["volumeMounts"].append(mount)
    pod["volumes"].append({"name": ANNOTATIONS_VOLUME, "downwardAPI": {"items": items}})
