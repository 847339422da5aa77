"""A pod of another namespace that talks to a training's control port: it may know the uid, and not the secret."""

import json

import pytest

from tests.plant import Plant
from tests.support.jobs import Team

from .noting import SOON
from .work import CODE_MOUNT, a_script, a_training, logs, logs_of_pods, with_script

TRAINS = """
import time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(100_000):
    optimizer.zero_grad()
    model(torch.ones(8, 4)).pow(2).mean().backward()
    optimizer.step()
    time.sleep(0.05)
"""

KNOCKS = """
import json, socket, sys

uid, *addresses = sys.argv[1:]
HELLO = {"kind": "Hello", "uid": uid, "node": 1, "incarnation": 99, "attempt": 99, "port": 29502, "release": "0.1.0"}
ANNOUNCE = {"kind": "Announce", "uid": uid, "incarnation": 99, "address": ":29502"}
END = {"rank": 0, "exit_code": 2, "time": 0.0, "cause": "ConfigError", "message": "a stranger's words"}
LEAVE = {"kind": "Leave", "incident": {"attempt": 1, "node": 0, "end": END}}
for address in addresses:
    knows = HELLO | {"protocol": 3, "nonce": "00"}
    for first in (HELLO | {"protocol": 2}, knows, knows | {"uid": ""}, ANNOUNCE | {"nonce": "00"}):
        try:
            there = socket.create_connection((address, 29502), timeout=5)
            for words in (first, first, LEAVE):
                there.sendall(json.dumps(words).encode() + b"\\n")
            said = b""
            while part := there.recv(4096):
                said += part
        except TimeoutError:
            print("cut off", flush=True)
        except OSError as error:
            print("closed", flush=True)
        else:
            print(said.decode(), flush=True)
"""


@pytest.mark.parametrize(
    "policy",
    ["Disabled", pytest.param("Enabled", marks=pytest.mark.full("test_pods.py; tests/unit/supervisor/gang"))],
)
def test_a_stranger_changes_nothing_in_a_job_whether_or_not_he_knows_its_uid(
    policy: str, real: Plant, team: Team
) -> None:
    container = {"command": ["ddpjob-supervise", "/code/train.py"], **CODE_MOUNT}
    team.apply(a_training("digits", container, pod=with_script(team, TRAINS), network={"policy": policy}))
    team.wait("Running", seconds=SOON)
    before = step_of(team)
    strangers = Team(real)
    job = team.job()
    assert job is not None
    addresses = [pod["status"]["podIP"] for pod in team.pods()]
    strangers.apply(a_script("stranger", ["python3", "-c", KNOCKS, job["metadata"]["uid"], *addresses]))
    strangers.wait("Succeeded", "stranger", seconds=SOON)
    told = logs(strangers, "stranger")
    if policy == "Enabled":
        assert told.splitlines() == ["cut off"] * 8
    else:
        assert not {"Welcome", "History", "Elsewhere"} & set(told.replace('"', " ").split())
        assert all("refused a connection to the control port from" in log for log in logs_of_pods(team, "digits"))
    real.wait("training to go on", lambda: step_of(team) > before, SOON)
    status = team.status()
    assert (status["attempt"], status["restarts"], status.get("incidents", [])) == (1, 0, []), json.dumps(status)
    team.kubectl("delete", "ddpjob", "digits")


def step_of(team: Team) -> int:
    """How far the job has come."""
    team.plant.wait("a step", lambda: "step" in team.status().get("progress", {}), SOON)
    return int(team.status()["progress"]["step"])
