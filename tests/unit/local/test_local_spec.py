"""Fields of a file that have no effect on this machine: each is told, and taken out of what runs."""

from typing import Any

import pytest
from ddpjob_operator.api import DDPJobSpec
from ddpjob_operator.engine.manifests.volumes import history_path
from ddpjob_operator.local.local_spec import differences, spec_for_this_machine

TEMPLATE: dict[str, Any] = {"spec": {"containers": [{"name": "trainer", "image": "any", "command": ["python"]}]}}


def a_spec(**fields: Any) -> DDPJobSpec:
    return DDPJobSpec.model_validate({"template": TEMPLATE, "nodes": 4, **fields})


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("managedBy", "example.com/other", "has no effect on this machine: ddpjob run manages the job, not example"),
        ("ttlSecondsAfterFinished", 0, "does nothing on this machine: the run directory is yours to remove"),
        ("cleanPodPolicy", "None", "None acts as Running on this machine"),
        ("elastic", {"minNodes": 2}, "does nothing on this machine: there is always room"),
        ("scheduling", {}, "does nothing on this machine: all nodes run here"),
        ("disruption", "AfterCheckpoint", "does nothing on this machine: nobody drains it"),
    ],
)
def test_a_field_that_does_nothing_here_is_told_and_taken_out(field: str, value: object, told: str) -> None:
    spec = a_spec(**{field: value})
    (notice,) = differences(spec)
    assert notice.startswith(f"{field} {told}")
    assert [*differences(spec_for_this_machine(spec))] == []


def test_a_job_that_is_suspended_stays_so_and_that_is_told() -> None:
    spec = spec_for_this_machine(a_spec(suspend=True))
    assert [*differences(spec)] == ["suspend is true in the file: nothing runs until it is false"]


def test_of_fields_that_say_what_is_so_here_anyway_nothing_is_told() -> None:
    assert [*differences(a_spec())] == []
    assert [*differences(a_spec(suspend=False, cleanPodPolicy="Running", disruption="Allow"))] == []


@pytest.mark.parametrize(
    ("checkpoint", "kept"),
    [
        ({"path": "/runs", "volume": {"emptyDir": {}}}, {"persistentVolumeClaim": {"claimName": "checkpoints"}}),
        ({"path": "/runs"}, {"persistentVolumeClaim": {"claimName": "checkpoints"}}),
        ({"path": "/runs", "volume": {"hostPath": {"path": "/x"}}}, {"hostPath": {"path": "/x"}}),
    ],
    ids=["one that a cluster deletes with its pods", "none", "one that stays"],
)
def test_checkpoints_are_kept_in_a_volume_that_outlives_the_processes(checkpoint: Any, kept: Any) -> None:
    found = spec_for_this_machine(a_spec(checkpoint=checkpoint)).checkpoint
    assert found is not None
    assert (found.path, found.volume) == ("/runs", kept)
    assert spec_for_this_machine(a_spec()).checkpoint is None


def test_a_run_keeps_a_history_only_where_it_is_told_to_because_its_directory_has_the_logs_anyway() -> None:
    saved = {"path": "s3://bucket/digits"}
    assert history_path(spec_for_this_machine(a_spec(checkpoint=saved))) is None
    assert history_path(spec_for_this_machine(a_spec(checkpoint=saved, history={"path": "/kept"}))) == "/kept"
    disabled = {"path": "/kept", "mode": "Disabled"}
    assert history_path(spec_for_this_machine(a_spec(checkpoint=saved, history=disabled))) is None
