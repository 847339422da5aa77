"""What pods are given, seen from inside of them."""

from typing import Any

import pytest

from tests.plant import Plant
from tests.plant.images import PYTHON
from tests.support.jobs import Team

from .faults import pod_of
from .release import pods_of
from .work import CODE_MOUNT, LONG, PLAIN_SCRIPT, a_script, a_training, ddpjob, logs, with_script

WHO = [
    "sh",
    "-c",
    'id -u; touch ~/file /tmp/file && echo writable; ls /var/run/secrets; test -n "$(cat "$DDPJOB_SECRET_FILE")"',
]
LISTENS = (
    "import socket; s = socket.create_server(('', 29500)); print('listening', flush=True); s.accept(); s.accept()"
)
KNOCKS = """
import socket, sys
for address in sys.argv[1:]:
    host, port = address.split(":")
    try:
        socket.create_connection((host, int(port)), timeout=5)
        print("connected")
    except OSError as error:
        print(f"refused: {error}")
"""


@pytest.mark.parametrize(
    ("context", "user"),
    [
        pytest.param({}, "1000", id="default"),
        pytest.param(
            {"runAsNonRoot": False}, "0", id="opt-out", marks=pytest.mark.full("tests/unit/engine/test_pods.py")
        ),
    ],
)
def test_an_image_that_runs_as_root_is_given_a_user_unless_the_template_wants_root(
    context: dict[str, Any], user: str, team: Team
) -> None:
    job = a_script("who", WHO)
    job["spec"]["template"]["spec"]["containers"][0]["securityContext"] = context
    team.apply(job)
    team.wait("Succeeded", "who")
    seen = [user, "writable", "ddpjob.dev"]
    assert logs(team, "who").splitlines() == seen, "and no token of a service account"


def test_shared_memory_is_as_large_as_the_memory_limit(team: Team) -> None:
    job = a_script("memory", ["sh", "-c", "df -k /dev/shm | tail -1"])
    job["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"memory": "256Mi"}}
    team.apply(job)
    team.wait("Succeeded", "memory")
    assert logs(team, "memory").split()[:2] == ["tmpfs", str(256 * 1024)]


def test_the_other_pods_wait_for_the_master_s_port(team: Team) -> None:
    listen = "test $RANK != 0 || until test -e /tmp/listen; do sleep 0.1; done; python3 -m http.server 29500"
    job = a_script("wait", ["sh", "-c", listen], nodes=2)
    job["spec"]["network"] = {"waitForMaster": True}
    team.apply(job)
    team.until("{.status.message}=1 of 2 pods running; rank 1: waiting for the master's port", "wait")
    assert pod_of(team, 1, "wait")["status"]["initContainerStatuses"][0]["name"] == "wait-for-master"
    team.kubectl("exec", pod_of(team, 0, "wait")["metadata"]["name"], "--", "touch", "/tmp/listen")
    team.wait("Running", "wait")
    team.kubectl("delete", "ddpjob", "wait")


def test_a_script_trains_on_its_nodes_network_beside_a_native_sidecar_and_shows_its_stacks(team: Team) -> None:
    sidecar = {
        "name": "sidecar",
        "image": PYTHON,
        "restartPolicy": "Always",
        "command": ["sh", "-c", "trap exit TERM; sleep infinity & wait"],
    }
    script = with_script(team, f"{PLAIN_SCRIPT}\nimport time\ntime.sleep(3600)\n")
    container = {"command": ["ddpjob-supervise", "/code/train.py"], **CODE_MOUNT}
    team.apply(a_training("net", container, pod={**script, "initContainers": [sidecar], "hostNetwork": True}))
    team.wait("Running", "net", LONG)
    done = {f"rank {rank} of 2 is done" for rank in range(2)}
    team.plant.wait("both to have met", lambda: done <= set(logs(team, "net").splitlines()), LONG)
    team.until("{.status.message}=2 nodes running", "net")
    assert team.status("net").get("restarts", 0) == 0
    assert "ranks 0,1: each is at " in (stacks := ddpjob(team, "status", "net", "--stacks"))
    assert "train.py:" in stacks


@pytest.mark.full("tests/cluster/test_life.py")
def test_other_containers_end_with_the_job(team: Team) -> None:
    job = a_script("beside", ["true"])
    sidecar = {"name": "sidecar", "image": job["spec"]["template"]["spec"]["containers"][0]["image"]}
    job["spec"]["template"]["spec"]["containers"].append({**sidecar, "command": ["sleep", "infinity"]})
    team.apply(job)
    team.wait("Succeeded", "beside")
    team.plant.wait("the pod to go", lambda: not team.pods("beside"))


@pytest.mark.parametrize(
    "policy",
    ["Enabled", pytest.param("Disabled", marks=pytest.mark.full("tests/unit/engine; pods reach each other"))],
)
def test_a_network_policy_lets_in_the_job_s_own_pods_and_nobody_else(policy: str, real: Plant, team: Team) -> None:
    team.apply(a_script("listens", ["python3", "-c", LISTENS], network={"policy": policy}))
    team.wait("Running", "listens")
    real.wait("it to listen", lambda: "listening" in logs(team, "listens"))
    job = team.pods("listens")[0]["status"]["podIP"]
    operator = real.wait("an operator that is ready", lambda: [*pods_of(real).values()])[0]
    addresses = f"{job}:29500", f"{operator}:8080", f"{operator}:8081"
    team.apply(a_script("knocks", ["python3", "-c", KNOCKS, *addresses]))
    team.wait("Succeeded", "knocks")
    at_the_job = "connected" if policy == "Disabled" else "refused: timed out"
    of_the_operator = ["connected", "refused: timed out"]  # The metrics; what the kubelet alone asks.
    assert logs(team, "knocks").splitlines() == [at_the_job, *of_the_operator]
