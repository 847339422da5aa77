"""The first things that a user does, on nodes that run containers."""

import re
from pathlib import Path

import pytest
import yaml
from ddpjob_operator.api.contract import Label
from ddpjob_operator.client.code import LABEL

from tests.docs.reading import read_with
from tests.plant import Plant
from tests.support.jobs import Team

from .work import CODE_MOUNT, EXAMPLE, LONG, PLAIN_SCRIPT, a_training, logs, submitted, with_script

RESTRICTED = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}


@pytest.mark.timeout(900)
def test_the_example_of_the_readme_trains_on_two_nodes_under_the_restricted_standard(
    real: Plant, tmp_path: Path
) -> None:
    team = Team(real, real.new_namespace(**RESTRICTED))
    read_with(team, "README.md", tmp_path)
    status = team.wait("Succeeded", seconds=LONG)
    pods = team.pods()
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 2, "one on each node"
    assert {pod["metadata"]["labels"][Label.NODE] for pod in pods} == {"0", "1"}
    assert (status["restarts"], status["disruptions"]) == (0, 0)
    accuracy = re.findall(r"^finished .*accuracy=([0-9.]+)", logs(team, "digits"), re.MULTILINE)
    assert [float(value) >= 0.97 for value in accuracy] == [True], accuracy
    assert team.events()["Blocked"] == 0

    header, line = team.kubectl("get", "ddp").splitlines()
    assert header.split() == ["NAME", "STATE", "READY", "PROGRESS", "ETA", "RESTARTS", "AGE"]
    shown = line.split()
    assert (shown[:4], shown[-2]) == (["digits", "Succeeded", "2/2", "100%"], "0")
    wide = team.kubectl("get", "ddp", "--output=wide").splitlines()
    assert (wide[0].split()[-1], "2 nodes finished" in wide[1]) == ("MESSAGE", True)

    team.kubectl("delete", "-f", str(EXAMPLE), "--timeout=60s")
    kinds = "ddpjobs,pods,services,networkpolicies"
    real.wait("nothing to be left", lambda: not team.kubectl("get", kinds, "--output=name"))


def test_an_unchanged_script_trains_where_its_user_has_no_image_no_yaml_and_only_the_right_to_run_jobs(
    team: Team, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(f"import constants\n{PLAIN_SCRIPT}")
    (tmp_path / "constants.py").write_text("")
    words = ["--nodes", "2", "--env", "OMP_NUM_THREADS=1", "--source", ".", "--name", "plain"]
    said = submitted(team, tmp_path, *words, "--", "python", "train.py")
    assert "packed 2 files" in said
    status = team.wait("Succeeded", "plain", LONG)
    assert "ProgressUnknown" not in {one["type"] for one in status["conditions"]}, "nobody has ever told it"
    assert not {"progress", "checkpoint"} & status.keys()
    assert {f"rank {rank} of 2 is done" for rank in range(2)} <= set(logs(team, "plain").splitlines())
    team.delete("ddpjobs", "plain")
    team.plant.wait("its code to go with it", lambda: not team.kubectl("get", "configmap", "-l", LABEL, "-o", "name"))


@pytest.mark.full("the same without a supervisor, above; under one, test_in_place.py")
def test_a_script_trains_under_the_supervisor_where_it_is_submitted_and_goes_on_as_another(
    team: Team, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(PLAIN_SCRIPT + "import time; time.sleep(3600)\n")
    words = ["train.py", "--nodes", "2", "--env", "OMP_NUM_THREADS=1"]
    submitted(team, tmp_path, *words)
    team.wait("Running", "train", LONG)
    uid = (team.job("train") or {})["metadata"]["uid"]
    script.write_text(PLAIN_SCRIPT)
    said = submitted(team, tmp_path, "--replace", "--wait", *words)
    assert "train: its pods save and stop\n" in said
    assert "[rank 1] rank 1 of 2 is done\n" in said
    assert (team.job("train") or {})["metadata"]["uid"] == uid
    assert len(team.kubectl("get", "configmap", "-l", LABEL, "-o", "name").split()) == 1


@pytest.mark.full("the same without torchrun, above; tests/training/test_launching.py; tests/local/test_runs.py")
def test_an_unchanged_script_trains_under_torchrun_with_two_processes_on_each_node(team: Team) -> None:
    pod = with_script(team, PLAIN_SCRIPT)
    container = {"command": ["torchrun", "/code/train.py"], **CODE_MOUNT}
    team.apply(a_training("elastic", container, procsPerNode=2, pod=pod))
    team.wait("Succeeded", "elastic", LONG)
    assert {f"rank {rank} of 4 is done" for rank in range(4)} <= set(logs(team, "elastic").splitlines())


@pytest.mark.full("test_changes.py, whose training has both")
def test_the_example_trains_with_a_read_only_root_and_a_network_policy(team: Team) -> None:
    job = yaml.safe_load(EXAMPLE.read_text())
    job["spec"]["network"] = {"policy": "Enabled"}
    job["spec"]["template"]["spec"]["containers"][0]["securityContext"] = {"readOnlyRootFilesystem": True}
    team.apply(job)
    status = team.wait("Succeeded", seconds=LONG)
    assert status["progress"]["step"] > 0, "the operator may ask how far it is"
