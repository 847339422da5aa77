"""What outlives the pods that have saved it."""

from typing import Any

import pytest
from ddpjob_operator.engine.manifests.volumes import history_path, lost_with_pods, no_history

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


KEPT = {"path": "/out", "volume": CLAIM}
DISABLED = {"mode": "Disabled"}
NEITHER_PLACE = "it has neither a history.path nor a checkpoint"


@pytest.mark.parametrize(
    ("checkpoint", "history", "path", "why_not"),
    [
        (KEPT, {}, "/out/history", ""),
        ({"path": "/out/", "volume": CLAIM}, {}, "/out/history", ""),
        ({"path": "s3://data/out"}, {}, "s3://data/out/history", ""),
        ({"path": "s3://data/"}, {"mode": "Auto"}, "s3://data/history", ""),
        (KEPT, {"path": "/kept"}, "/kept", ""),
        ({"path": "/out"}, {"path": "/kept"}, "/kept", ""),
        (None, {"path": "s3://kept"}, "s3://kept", ""),
        (KEPT, DISABLED, None, "its history.mode is Disabled"),
        (KEPT, {"path": "/kept", **DISABLED}, None, "its history.mode is Disabled"),
        ({"path": "/out"}, {}, None, NOWHERE),
        ({"path": "/out", "volume": EMPTY}, {}, None, "its checkpoint.volume is deleted with its pods"),
        (None, {}, None, NEITHER_PLACE),
    ],
)
def test_the_history_is_beside_the_checkpoints_if_they_outlive_the_pods(
    checkpoint: Any, history: dict[str, str], path: str | None, why_not: str
) -> None:
    spec = a_job(checkpoint=checkpoint, history=history).snapshot.job.spec
    assert (history_path(spec), no_history(spec)) == (path, why_not)


def test_a_program_that_mounts_a_claim_but_names_no_checkpoint_keeps_no_history() -> None:
    trainer = {"name": "trainer", "image": "any", "volumeMounts": MOUNTS}
    template = {"spec": {"containers": [trainer], "volumes": VOLUMES}}
    assert no_history(a_job(template=template).snapshot.job.spec) == NEITHER_PLACE
