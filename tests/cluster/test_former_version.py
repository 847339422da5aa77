"""Jobs that a release with v1alpha1 made, where this one takes over."""

import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ddpjob_operator.api.contract import API_VERSION, FORMER_API_VERSION

from tests.plant import PlantError, start_fake
from tests.plant.needs import demand
from tests.support.crd import install_crd
from tests.support.jobs import FOR_LONG, Team, a_job, condition
from tests.support.waiting import wait_for

LAST = "49a9c5f6a87da3415cb5e34a04d930b5bf6201bc"
"""The last commit with v1alpha1."""
ROOT = Path(__file__).parents[2]
ENTRY = "from ddpjob_operator.cluster.entry import main; main()"
FLAGS = ("--port=0", "--probe-port=0", "--no-leader-elect")

RULE = {"exitCodes": [3, "64-78"], "action": "Fail"}
FORMER = {
    "done": a_job("done", nodes=1, restart={"rules": [RULE]}),
    "failed": a_job("failed", nodes=1, ttlSecondsAfterFinished=3600, restart={"maxRestarts": 0}),
    "running": a_job(
        "running", annotations=FOR_LONG, masterPort=12345, checkpoint={"path": "/c", "everySeconds": "Auto"}
    ),
    "suspended": a_job("suspended", annotations=FOR_LONG, suspend=True),
}
ENDED = {"done": "Complete", "failed": "Failed"}
LIVE = {"running": "Running", "suspended": "Suspended"}


@pytest.fixture(scope="module")
def release_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the sources of the release before are."""
    there = tmp_path_factory.mktemp("before")
    git = ("git", "archive", LAST, "operator", "deploy/crd.yaml")
    archive = subprocess.run(git, cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"this clone has no history: {archive.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as sources:
        sources.extractall(there, filter="data")
    return there


@pytest.fixture(scope="module")
def upgraded(release_before: Path) -> Iterator[Team]:
    """A cluster where the release before has made a job of each kind; this release's type has replaced its own."""
    demand("fake")
    with start_fake() as plant:
        install_crd(plant, release_before / "deploy" / "crd.yaml", FORMER_API_VERSION)
        team = Team(plant)
        settings = (f"KUBECONFIG={plant.kubeconfig}", f"PYTHONPATH={release_before / 'operator'}")
        program = plant.programs.start("before", "env", *settings, sys.executable, "-c", ENTRY, *FLAGS)
        try:
            _make(team)
        finally:
            program.kill()
            plant.programs.running.pop("before", None)
        unseen = FORMER["running"] | {"apiVersion": FORMER_API_VERSION, "metadata": {"name": "unseen"}}
        team.kubectl("apply", "-f", "-", input=json.dumps(unseen))
        install_crd(plant)
        yield team


def _make(team: Team) -> None:
    annotate = {"failed": {"plant.ddpjob.dev/exit-code": "1"}}
    for name, job in FORMER.items():
        former = json.loads(json.dumps(job | {"apiVersion": FORMER_API_VERSION}))
        former["spec"]["template"]["metadata"]["annotations"] |= annotate.get(name, {})
        team.kubectl("apply", "-f", "-", input=json.dumps(former))
    for name, state in {"done": "Succeeded", "failed": "Failed", **LIVE}.items():
        team.kubectl("wait", f"--for=jsonpath={{.status.state}}={state}", f"ddpjob/{name}", "--timeout=120s")


def pods(team: Team) -> dict[str, Any]:
    """All pods of the running job, by uid, with what was asked of them."""
    return {
        pod["metadata"]["uid"]: (pod["metadata"].get("deletionTimestamp"), pod["spec"])
        for pod in team.pods("running")
    }


def former_patch(team: Team, name: str, change: dict[str, Any], *flags: str) -> None:
    """As a client does it that knows the former version alone."""
    patch = ("--type=merge", f"--patch={json.dumps(change)}")
    team.kubectl("patch", "ddpjobs.v1alpha1.ddpjob.dev", name, *patch, *flags)


def test_what_the_release_before_finished_stays_finished_and_what_lives_is_left_alone_and_says_so(
    upgraded: Team,
) -> None:
    before = pods(upgraded)
    with upgraded.operator() as operator:
        for name, end in ENDED.items():
            upgraded.condition(end, name=name)
            assert upgraded.status(name)["attempt"] == 1
        for name, state in LIVE.items():
            blocked = upgraded.condition("Blocked", name=name)
            assert blocked["reason"] == "FormerVersion"
            assert "delete the job and create it again" in blocked["message"]
            assert upgraded.status(name)["state"] == state
            wait_for("the event", lambda name=name: upgraded.events(name)["Blocked"] == 1)
        assert upgraded.condition("Blocked", name="unseen")["reason"] == "FormerVersion"
        upgraded.change("suspended", suspend=False)
        upgraded.apply(a_job("new", nodes=1))
        upgraded.wait("Succeeded", "new")
        assert pods(upgraded) == before
        assert upgraded.status("running")["incarnations"]["default"] == 1, (
            "what the release before remembered is kept"
        )
        assert upgraded.pods("suspended") == []
        assert "Traceback" not in operator.log
        assert condition(upgraded.status("running"), "Blocked")["reason"] == "FormerVersion"
    with upgraded.operator():
        upgraded.apply(a_job("newer", nodes=1))
        upgraded.wait("Succeeded", "newer")
        assert {name: upgraded.events(name)["Blocked"] for name in LIVE} == dict.fromkeys(LIVE, 1)
        with pytest.raises(PlantError, match=f"can no longer be created or changed; use {API_VERSION}"):
            upgraded.kubectl("create", "-f", "-", input=json.dumps(a_job("old") | {"apiVersion": FORMER_API_VERSION}))
        with pytest.raises(PlantError, match=f"can no longer be created or changed; use {API_VERSION}"):
            former_patch(upgraded, "running", {"spec": {"suspend": True}})
        with pytest.raises(PlantError, match=f"can no longer be created or changed; use {API_VERSION}"):
            former_patch(upgraded, "running", {"status": {"state": "Failed"}}, "--subresource=status")
        former_patch(upgraded, "running", {"metadata": {"annotations": {"example.com/by": "a client of before"}}})
        # The garbage collector takes off its finalizer by the version in which it has come to know the job.
        for name in ("done", "running"):
            upgraded.delete("ddpjobs", name, wait=True, cascade="Foreground")
        assert upgraded.pods("running") == []
