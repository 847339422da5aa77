"""What no watch tells: an object that went while there was no API server, and of which its history knows no more."""

import base64
import http.client
import json
import socket
from contextlib import closing
from typing import Any

import pytest

from tests.plant import Plant, start_api
from tests.support.crd import install_crd
from tests.support.jobs import Team, a_job, created
from tests.support.operators import an_operator

DIE_WITH_US = 4
"""Words before a program's own command in its process."""


@pytest.mark.timeout(300)
def test_a_pod_that_went_in_a_gap_of_the_watch_is_missed_soon_after_it() -> None:
    with start_api() as plant:
        install_crd(plant)
        team = Team(plant)
        with an_operator(plant, "--no-leader-elect"):
            team.apply(a_job(restart={"backoffSeconds": 0}))
            team.until("{.status.state}=Starting")
            gone = team.pods()[0]["metadata"]["name"]
            apiserver = plant.programs.running.pop("kube-apiserver")
            apiserver.kill()
            _forget(plant, f"/registry/pods/{team.namespace}/{gone}")
            command: Any = apiserver.process.args
            plant.programs.start("kube-apiserver", *command[DIE_WITH_US:])
            plant.wait("the API server", plant.ready)
            team.until("{.status.attempt}=2", seconds=100)
            plant.wait("the second attempt", lambda: created(team))


def _forget(plant: Plant, key: str) -> None:
    """Removes an object from etcd itself, and all history."""
    name = base64.b64encode(key.encode()).decode()
    answer = _etcd(plant, "/v3/kv/deleterange", {"key": name})
    assert answer["deleted"] == "1", answer
    _etcd(plant, "/v3/kv/compaction", {"revision": answer["header"]["revision"], "physical": True})


def _etcd(plant: Plant, path: str, body: dict[str, Any]) -> dict[str, Any]:
    with closing(http.client.HTTPConnection("etcd")) as connection, socket.socket(socket.AF_UNIX) as clients:
        clients.connect(str(plant.directory / "etcd" / "clients"))
        connection.sock = clients
        connection.request("POST", path, json.dumps(body))
        answer: dict[str, Any] = json.loads(connection.getresponse().read())
        return answer
