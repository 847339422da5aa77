"""`ddpjob submit train.py` against a real API server; the test says what an operator would."""

import base64
import io
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from ddpjob_operator.api import BadInputError
from ddpjob_operator.client import Jobs, connect
from ddpjob_operator.client.code import Code

from tests.plant import Plant
from tests.support.helm import user_role
from tests.support.waiting import patience

from .test_cli import User

OPTIONS = ("--source", ".", "--nodes", "2", "--gpus-per-node", "8", "--env-from", "tokens")
TO_A_SECRET = "Values that only the job should know belong in a Secret: --env-from SECRET"
SCRIPT = "import model\n"
IN_AN_IMAGE = {"spec": {"containers": [{"name": "trainer", "image": "team/trainer:1"}]}}


class Engineer(User):
    """Somebody with a role and no other, in a directory of their own."""

    def submit(self, *words: str) -> tuple[int, str]:
        process = self.start_anywhere("submit", "-n", self.namespace, *words)
        return process.wait(timeout=patience(60)), self.printed

    def codes(self) -> dict[str, dict[str, Any]]:
        """All ConfigMaps with code, by name."""
        maps = f"/api/v1/namespaces/{self.namespace}/configmaps"
        items = self.plant.get(f"{maps}?labelSelector=ddpjob.dev/code")["items"]
        return {one["metadata"]["name"]: one for one in items}

    def owners(self) -> dict[str, set[str]]:
        """Names of the jobs that own each."""
        return {
            name: {owner["name"] for owner in one["metadata"].get("ownerReferences", [])}
            for name, one in self.codes().items()
        }


@pytest.fixture
def engineer(api: Plant, tmp_path: Path) -> Iterator[Engineer]:
    somebody = Engineer(api, api.new_namespace(), tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "model.py").write_text("")
    (tmp_path / ".env").write_text("TOKEN=x")
    (tmp_path / ".gitignore").write_text("screen\nkubeconfig*\n")
    yield somebody
    for process in somebody.started:
        process.kill()
        process.wait()


def bind(engineer: Engineer, role: dict[str, Any]) -> None:
    """Makes it somebody who has this ClusterRole and nothing else."""
    api, name = engineer.plant, role["metadata"]["name"]
    api.api.apply(role, engineer.namespace)
    user = f"{name}-{engineer.namespace}"
    words = ["create", "rolebinding", user, f"--clusterrole={name}", f"--user={user}"]
    api.kubectl(*words, "--namespace", engineer.namespace)
    engineer.kubeconfig = api.kubeconfig_for(user)


def test_a_script_goes_to_the_cluster_with_its_code_which_stays_as_long_as_a_job_runs_it(engineer: Engineer) -> None:
    bind(engineer, user_role("ddpjob-edit"))
    words = ("train.py", *OPTIONS, "--", "--lr", "0.1")
    assert engineer.submit("--dry-run", *words)[0] == 0, engineer.printed
    code, printed = engineer.submit("--dry-run", "-o", "yaml", *words)
    assert (code, engineer.codes(), engineer.job("train")) == (0, {}, None), printed
    packed, would_be = yaml.safe_load_all(printed)

    code, said = engineer.submit(*words)
    assert code == 0, said
    assert said.splitlines()[:4] == [
        "packed 2 files, 13 bytes: model.py, train.py",
        "not packed, because it may hold secrets (1): .env",
        f"To send one anyway: --include FILE. {TO_A_SECRET}",
        f"train: 2 nodes x 8 processes, submitted to namespace {engineer.namespace} of context plant",
    ]
    ((name, first),) = engineer.codes().items()
    job = engineer.job("train")
    assert packed["binaryData"] == first["binaryData"]
    assert would_be["spec"]["template"] == job["spec"]["template"]
    trainer = job["spec"]["template"]["spec"]["containers"][0]
    assert (trainer["command"], trainer["args"]) == (["ddpjob-supervise", "train.py"], ["--lr", "0.1"])
    assert (trainer["envFrom"], "image" in trainer) == ([{"secretRef": {"name": "tokens"}}], False)
    (owner,) = first["metadata"]["ownerReferences"]
    assert (owner["uid"], first["immutable"]) == (job["metadata"]["uid"], True)
    assert not owner.get("blockOwnerDeletion"), "for which a strict cluster asks a right that users do not have"
    archive = zipfile.ZipFile(io.BytesIO(base64.b64decode(first["binaryData"]["code.zip"])))
    assert archive.read("train.py").decode() == SCRIPT
    digest = "ddpjob.dev/code-digest"
    assert job["metadata"]["annotations"][digest] == first["metadata"]["annotations"][digest]

    code, said = engineer.submit(*words)
    assert (code, "train exists already" in said, "to replace it, use --replace" in said) == (2, True, True), said
    assert engineer.submit("--name", "other", *words)[0] == 0
    assert engineer.owners() == {name: {"train", "other"}}, "the same code is there once"

    _a_client_dies_before_the_job_owns_its_code(engineer, name)
    (engineer.directory / "train.py").write_text("import model\nprint(2)\n")
    assert engineer.submit("--name", "third", *words)[0] == 0
    assert engineer.owners()[name] == {"train", "other"}, "the next submit has them own it"

    uid = job["metadata"]["uid"]
    replacing = engineer.start_anywhere("submit", "-n", engineer.namespace, "--replace", *words)
    engineer.wait("the job to be suspended", lambda: engineer.job("train")["spec"].get("suspend"))
    assert engineer.job("train")["spec"]["template"] == job["spec"]["template"], "not before its pods have ended"
    seen = {"observedGeneration": engineer.job("train")["metadata"]["generation"], "state": "Suspended"}
    engineer.team.say("train", **seen, conditions=[_suspended()], message="Nothing runs")
    assert replacing.wait(patience(60)) == 0, engineer.printed
    job = engineer.job("train")
    assert (job["metadata"]["uid"], job["spec"].get("suspend", False)) == (uid, False)
    (second,) = engineer.codes().keys() - {name}
    assert job["spec"]["template"]["spec"]["volumes"][1]["configMap"]["name"] == second
    assert engineer.owners() == {name: {"other"}, second: {"third", "train"}}

    engineer.team.delete("ddpjobs", "other")
    _a_client_dies_before_the_job_owns_its_code(engineer, name)
    cluster = connect(engineer.kubeconfig, namespace=engineer.namespace)
    Code(cluster).clear(Jobs(cluster), datetime.now(UTC))
    assert name in engineer.codes(), "its client may be about to make the job"
    Code(cluster).clear(Jobs(cluster), datetime.now(UTC) + timedelta(hours=1))
    assert [*engineer.codes()] == [second]


def test_new_code_in_place_is_the_next_revision_and_an_edited_job_gets_none(engineer: Engineer) -> None:
    bind(engineer, user_role("ddpjob-edit"))
    assert engineer.submit("train.py", *OPTIONS)[0] == 0
    jobs = Jobs(connect(engineer.kubeconfig, namespace=engineer.namespace))
    first = jobs.get("train")
    for revision, name in ((1, "code-a"), (2, "code-b"), (2, "code-b")):
        changed = jobs.replace_code(jobs.get("train"), name, None, {"example.com/note": name})
        assert changed["spec"]["code"] == {"configMap": name, "revision": revision}
        assert changed["metadata"]["annotations"]["example.com/note"] == name
    changed = jobs.replace_code(changed, "code-b", "code-a", {})
    assert changed["spec"]["code"] == {"configMap": "code-b", "former": "code-a", "revision": 2}
    assert changed["spec"]["template"] == first["spec"]["template"]
    with pytest.raises(BadInputError, match="somebody else has replaced the code of train"):
        jobs.replace_code(first, "code-c", None, {})
    in_an_image = {**changed, "spec": {**changed["spec"], "template": IN_AN_IMAGE, "suspend": True}}
    with pytest.raises(BadInputError, match=r"needs a volume code-archive in the template"):
        jobs.replace(changed, in_an_image)


def _a_client_dies_before_the_job_owns_its_code(engineer: Engineer, name: str) -> None:
    path = f"/api/v1/namespaces/{engineer.namespace}/configmaps/{name}"
    engineer.plant.api.patch(path, {"metadata": {"ownerReferences": None}})


def _suspended() -> dict[str, Any]:
    said = {"type": "Suspended", "status": "True", "reason": "JobSuspended", "message": "", "observedGeneration": 1}
    return said | {"lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")}


def test_what_is_refused_makes_nothing_and_is_told_in_one_line(engineer: Engineer) -> None:
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "jobs-only"}}
    bind(engineer, role | {"rules": [{"apiGroups": ["ddpjob.dev"], "resources": ["*"], "verbs": ["*"]}]})
    forbidden = "cannot store the code in a ConfigMap: the cluster of context plant does not allow this: "
    code, said = engineer.submit("train.py")
    assert (code, said.count("error: "), forbidden in said) == (1, 1, True), said
    mistakes = {
        ("missing.py",): "there is no missing.py in ",
        ("train.py", "--memory", "lots"): "--memory lots: must be a Kubernetes quantity",
        ("train.py", "--volume", "data"): "--volume data: must be CLAIM:/path",
        ("train.py", "--source", "missing"): "--source missing: there is no such folder",
        ("train.py", "-o", "yaml"): "-o yaml works only with --dry-run; add it",
        ("train.py", "--nodes", "0"): "--nodes: 0 is too small; it must be at least 1",
        ("--", "torchrun", "train.py"): "train.py would not be sent",
    }
    for words, expected in mistakes.items():
        code, said = engineer.submit(*words)
        assert (code, said.count("error: "), expected in said) == (2, 1, True), said
        assert "Traceback" not in said
    assert (engineer.codes(), engineer.team.all("ddpjobs")) == ({}, [])
