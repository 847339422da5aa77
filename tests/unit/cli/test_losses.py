"""What is lost with a job's pods is told before they go."""

import json
from pathlib import Path
from typing import Any

import pytest
from ddpjob_operator.cli.arguments import parse
from ddpjob_operator.cli.cluster.change import scale, suspend
from ddpjob_operator.cli.cluster.submit import submit

from tests.unit.client.api import a_cluster, jobs_of

CLAIM = {"persistentVolumeClaim": {"claimName": "out"}}
LOST = "its checkpoint.path is not on a volume that outlives its pods"


def a_job(**checkpoint: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "trainer", "image": "any"}]}}
    spec = {"checkpoint": {"path": "/out", **checkpoint}, "template": template}
    metadata = {"name": "digits", "namespace": "team", "uid": "u"}
    return {"apiVersion": "ddpjob.dev/v1alpha2", "kind": "DDPJob", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize("dry_run", [True, False], ids=["dry run", "submission"])
def test_a_submission_says_what_will_be_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, dry_run: bool
) -> None:
    file = tmp_path / "job.yaml"
    said = f"If it is suspended, preempted or restarted with new pods, it starts over: {LOST}\n"
    for job, shown in ((a_job(), True), (a_job(volume=CLAIM), False)):
        file.write_text(json.dumps(job))
        submit(a_cluster(job), parse(["submit", str(file), *(["--dry-run"] if dry_run else [])]))
        assert (said in capsys.readouterr().out) is shown


def test_a_suspension_promises_to_save_only_where_something_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    suspend(jobs_of(a_job(volume=CLAIM), {})[0], "digits")
    assert "digits: suspended; its pods save and stop\n" in capsys.readouterr().out
    suspend(jobs_of(a_job(), {})[0], "digits")
    assert f"digits: suspended; its pods stop, and on resume it starts over: {LOST}\n" in capsys.readouterr().out


def test_so_does_another_size(capsys: pytest.CaptureFixture[str]) -> None:
    for job, said in (
        (a_job(volume=CLAIM), "save and stop, and new ones go on"),
        (a_job(), "stop, and new ones start over"),
    ):
        scale(jobs_of(job | {"status": {"attempt": 1}}, {})[0], "digits", 2)
        assert f"digits: scaled from 1 to 2 nodes; its pods {said}" in capsys.readouterr().out
