"""A job that was read from a cluster, and is submitted once more."""

import json
from pathlib import Path

from ddpjob_operator.api.contract import API_VERSION, FINISHED, KIND
from ddpjob_operator.cli.arguments import parse
from ddpjob_operator.cli.cluster.submit import submit

from tests.unit.client.api import a_cluster

METADATA = {"name": "digits", "namespace": "team", "annotations": {FINISHED: "Failed", "team": "blue"}}
SPEC = {"template": {"spec": {"containers": [{"name": "trainer", "image": "any"}]}}}


def test_a_copy_of_a_finished_job_is_submitted_to_run(tmp_path: Path) -> None:
    job = {"apiVersion": API_VERSION, "kind": KIND, "metadata": METADATA, "spec": SPEC}
    file = tmp_path / "job.yaml"
    file.write_text(json.dumps(job))
    cluster = a_cluster(job)
    submit(cluster, parse(["submit", str(file), "--dry-run"]))
    assert '"annotations": {"team": "blue"}' in json.dumps(cluster.asked)


def test_annotations_without_content_are_none(tmp_path: Path) -> None:
    job = {"apiVersion": API_VERSION, "kind": KIND, "metadata": METADATA | {"annotations": None}, "spec": SPEC}
    file = tmp_path / "job.yaml"
    file.write_text(json.dumps(job))
    assert submit(a_cluster(job), parse(["submit", str(file), "--dry-run"])) == 0
