"""checkov and kube-score find nothing in the chart that is not explained, and find a mistake if there is one."""

import json
import os
import subprocess

import pytest

from tests.plant import build
from tests.support.helm import ROOT
from tests.wheel.projects import UV

pytestmark = pytest.mark.full("checkov has 80 packages, which an index has to send; and kube-score has to be built")


def lint(*arguments: str) -> subprocess.CompletedProcess[str]:
    tools = {"HELM": str(build.path("helm")), "GO": str(build.go_command()), "UV": UV}
    command = [ROOT / "deploy" / "lint-chart", *arguments]
    return subprocess.run(command, env=os.environ | tools, capture_output=True, text=True, check=False)


def test_nothing_is_found_in_the_chart() -> None:
    done = lint()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the charts: nothing found" in done.stdout


EVERYTHING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "everything"},
    "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
}


@pytest.mark.parametrize(
    ("arguments", "finding"),
    [
        (("--set", "resources.limits.memory=null"), "Memory limit is not set"),
        (("--set-json", f"extraObjects=[{json.dumps(EVERYTHING)}]"), "CKV_K8S_49"),
    ],
    ids=["kube-score", "checkov"],
)
def test_a_mistake_is_found(arguments: tuple[str, ...], finding: str) -> None:
    done = lint(*arguments)
    assert done.returncode != 0
    assert finding in done.stdout
    assert "nothing found" not in done.stdout
