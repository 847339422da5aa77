"""What outlives the pods that have saved it."""

from typing import Any

import pytest
from ddpjob_operator.engine.manifests.volumes import lost_with_pods

from .builders import a_job

CLAIM = {"persistentVolumeClaim": {"claimName": "out"}}
EMPTY = {"emptyDir": {}}
NOWHERE = "its checkpoint.path is not on a volume that outlives its pods"
NEITHER = "it has neither a checkpoint nor a volume that outlives its pods"
MOUNTS = [{"name": "claim", "mountPath": "/data/"}, {"name": "empty", "mountPath": "/data/scratch"}]
VOLUMES = [{"name": "claim", **CLAIM}, {"name": "empty", **EMPTY}, {"name": "settings", "configMap": {"name": "s"}}]


@pytest.mark.parametrize(
    ("checkpoint", "mounts", "said"),
    [
        ({"path": "/out"}, [], NOWHERE),
        ({"path": "/out", "volume": EMPTY}, [], "its checkpoint.volume is deleted with its pods"),
        ({"path": "/out", "volume": {"ephemeral": {}}}, [], "its checkpoint.volume is deleted with its pods"),
        ({"path": "/out", "volume": CLAIM}, [], ""),
        ({"path": "/out", "volume": {"nfs": {"server": "s", "path": "/"}}}, [], ""),
        ({"path": "/data/out"}, MOUNTS, ""),
        ({"path": "/data"}, MOUNTS, ""),
        ({"path": "/data/scratch/out"}, MOUNTS, NOWHERE),
        ({"path": "/database"}, MOUNTS, NOWHERE),
        ({"path": "s3://data/out"}, [], ""),
        (None, [], NEITHER),
        (None, [{"name": "settings", "mountPath": "/etc/s"}], NEITHER),
        (None, MOUNTS, ""),
    ],
)
def test_what_is_saved_is_lost_with_the_pods_unless_it_is_on_a_volume_of_its_own(
    checkpoint: Any, mounts: list[dict[str, str]], said: str
) -> None:
    trainer = {"name": "trainer", "image": "any", "volumeMounts": mounts}
    template = {"spec": {"containers": [trainer], "volumes": VOLUMES}}
    assert lost_with_pods(a_job(checkpoint=checkpoint, template=template).snapshot.job.spec) == said
