"""Where the nodes of a job find each other on one machine."""

from pathlib import Path
from typing import Any

import pytest
from ddpjob_operator.local import RunDirectory, translation
from ddpjob_operator.local.translation import Machine, Ports, translate

PORTS = Ports(master=1, status=2, control=3)
RANK_0 = "digits-0-abcde.digits.default.svc:29502"
LIVING = "127.0.0.1:29502,127.0.0.3:29502"


def variables(rank: int, peers: str, directory: Path, **more: Any) -> dict[str, str]:
    """The environment of a pod's process."""
    given = {"DDPJOB_PEERS": peers, "DDPJOB_TERMINATION_LOG": "/dev/termination-log", "DDPJOB_IN_PLACE_RESTARTS": "5"}
    given |= dict.fromkeys(("MASTER_PORT", "DDPJOB_STATUS_PORT", "DDPJOB_CONTROL_PORT"), "29501")
    env = [{"name": name, "value": value} for name, value in given.items()]
    env += [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in more.items()]
    labels = {"ddpjob.dev/rank": str(rank), "ddpjob.dev/incarnation": "1"}
    pod = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "trainer", "command": ["x"], "env": env}]},
    }
    return translate(pod, RunDirectory(directory), directory / "pod", Machine(PORTS, threads=1, environment={})).env


@pytest.mark.parametrize(
    ("rank", "address"), [(0, "127.0.0.1"), (1, "127.0.0.2"), (255, "127.0.1.0"), (4095, "127.0.16.0")]
)
def test_each_node_listens_on_an_address_of_its_own(rank: int, address: str, tmp_path: Path) -> None:
    env = variables(rank, RANK_0, tmp_path, ITS_IP="status.podIP")
    assert (env["DDPJOB_LISTEN_ADDR"], env["ITS_IP"]) == (address, address)
    assert (env["MASTER_PORT"], env["DDPJOB_STATUS_PORT"], env["DDPJOB_CONTROL_PORT"]) == ("1", "2", "3")
    assert env["DDPJOB_IN_PLACE_RESTARTS"] == "5"


@pytest.mark.parametrize(
    ("peers", "here"), [(RANK_0, "127.0.0.1:3"), (f"{RANK_0},{LIVING}", "127.0.0.1:3,127.0.0.1:3,127.0.0.3:3")]
)
def test_supervisors_find_each_other_at_the_ports_of_this_machine(peers: str, here: str, tmp_path: Path) -> None:
    assert variables(1, peers, tmp_path)["DDPJOB_PEERS"] == here


@pytest.mark.parametrize(("rank", "status_port"), [(0, "2"), (1, "0")])
def test_where_there_is_but_one_address_nothing_restarts_in_place_and_no_port_is_taken_twice(
    rank: int, status_port: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(translation, "MANY_ADDRESSES", False)
    env = variables(rank, RANK_0, tmp_path)
    assert (env["DDPJOB_LISTEN_ADDR"], env["DDPJOB_IN_PLACE_RESTARTS"]) == ("127.0.0.1", "0")
    assert env["DDPJOB_STATUS_PORT"] == status_port
