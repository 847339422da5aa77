"""Whether what a job saves is still there for the pods that come after."""

from ddpjob_operator.api import DDPJobSpec
from ddpjob_operator.engine.snapshot import Manifest

PASSING = frozenset({"emptyDir", "ephemeral"})
"""Volumes that go with their pod."""
NOT_WRITTEN = frozenset({"configMap", "secret", "projected", "downwardAPI", "image"})


def lost_with_pods(spec: DDPJobSpec) -> str:
    """Why nothing that the ranks save outlives their pods, in half a sentence; empty where it does."""
    checkpoint, pod = spec.checkpoint, spec.template["spec"]
    if checkpoint and checkpoint.volume:
        return "" if _outlives_pods(checkpoint.volume) else "its checkpoint.volume goes with its pods"
    volumes = {volume["name"]: volume for volume in pod.get("volumes", [])}
    mounted = {
        f"{mount['mountPath'].rstrip('/')}/": volumes.get(mount["name"], {})
        for mount in spec.trainer.get("volumeMounts", [])
    }
    if checkpoint is None:
        kept = any(map(_outlives_pods, mounted.values()))
        return "" if kept else "it has neither a checkpoint nor a volume that outlives its pods"
    above = [path for path in mounted if f"{checkpoint.path}/".startswith(path)]
    kept = bool(above) and _outlives_pods(mounted[max(above, key=len)])
    return "" if kept else "its checkpoint.path is on no volume that outlives its pods"


def _outlives_pods(volume: Manifest) -> bool:
    return bool(set(volume) - {"name"} - PASSING - NOT_WRITTEN)
