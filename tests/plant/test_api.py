import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plant import Plant, PlantError, directory, start_api
from tests.plant.needs import demand
from tests.support.waiting import patience

HOLD = """
import signal
from tests.plant import start_api

with start_api() as plant:
    print(plant.directory, flush=True)
    signal.pause()
"""


@pytest.fixture(autouse=True, scope="module")
def _possible() -> None:
    demand("api")


@pytest.fixture(scope="module")
def plant(_possible: None) -> Iterator[Plant]:
    with start_api() as started:
        yield started


def test_a_user_may_do_what_its_roles_say_and_the_audit_log_names_it(plant: Plant) -> None:
    namespace = plant.new_namespace()
    alice = plant.kubeconfig_for("alice", "engineers")
    with pytest.raises(PlantError, match='User "alice" cannot list resource "pods"'):
        plant.kubectl("get", "pods", "-n", namespace, kubeconfig=alice)
    plant.kubectl("create", "role", "see", "--verb=list", "--resource=pods", "-n", namespace)
    plant.kubectl("create", "rolebinding", "see", "--role=see", "--group=engineers", "-n", namespace)
    plant.wait("the rights", lambda: may_list_pods(plant, namespace, alice))
    plant.kubectl("get", "pods", "-n", namespace, kubeconfig=alice)
    codes = [
        event["responseStatus"]["code"]
        for event in map(json.loads, plant.audit_log.read_text().splitlines())
        if event["user"]["username"] == "alice" and event.get("objectRef", {}).get("resource") == "pods"
    ]
    assert (codes[0], codes[-1]) == (403, 200)


def test_a_service_account_is_known_by_its_token(plant: Plant) -> None:
    namespace = plant.new_namespace()
    plant.kubectl("create", "serviceaccount", "robot", "-n", namespace)
    robot = plant.kubeconfig_for_service_account(namespace, "robot")
    said = plant.kubectl("auth", "whoami", "-o", "jsonpath={.status.userInfo.username}", kubeconfig=robot)
    assert said == f"system:serviceaccount:{namespace}:robot"


def test_nothing_is_left_at_exit() -> None:
    with start_api() as plant:
        place = plant.directory
        assert {process.name() for process in directory.processes_in(place)} == {"etcd", "kube-apiserver"}
    assert not directory.processes_in(place)
    assert not place.exists()


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A temporary directory in which no other worker's plant cleans up.

    Its path is short, as a socket's path must be.
    """
    with tempfile.TemporaryDirectory() as temporary:
        monkeypatch.setattr(directory, "BASE", Path(temporary) / directory.BASE.name)
        yield temporary


def test_a_killed_test_run_leaves_no_process_and_the_next_start_removes_its_directory(alone: str) -> None:
    environment = os.environ | {"TMPDIR": alone}
    holder = subprocess.Popen([sys.executable, "-c", HOLD], env=environment, stdout=subprocess.PIPE, text=True)
    assert holder.stdout
    left = Path(holder.stdout.readline().strip())
    programs = directory.processes_in(left)
    assert programs
    os.kill(holder.pid, signal.SIGKILL)
    holder.communicate()
    for program in programs:
        program.wait(timeout=patience(30))
    assert left.exists()
    with directory.plant_directory() as mine:
        assert mine.parent == left.parent
        assert not left.exists()


def test_what_does_not_come_up_is_told_with_the_end_of_its_log() -> None:
    with pytest.raises(PlantError) as failed, start_api("--no-such-flag"):
        pass
    assert "kube-apiserver ended with 1" in str(failed.value)
    assert "unknown flag: --no-such-flag" in str(failed.value)


def may_list_pods(plant: Plant, namespace: str, kubeconfig: Path) -> bool:
    try:
        plant.kubectl("auth", "can-i", "list", "pods", "-n", namespace, kubeconfig=kubeconfig)
    except PlantError:
        return False
    return True
