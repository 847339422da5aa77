import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.plant import PlantError, cgroups
from tests.plant.directory import plant_directory
from tests.plant.images import PYTHON
from tests.plant.needs import demand
from tests.plant.real import RealPlant, start_real
from tests.plant.real.plant import NODES

pytestmark = pytest.mark.timeout(300)

RESTRICTED: dict[str, Any] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}

HOLD = """
import signal
from tests.plant.real import start_real

with start_real(nodes=1) as plant:
    print(plant.nodes["node-1"].directory.parent, plant.network.device, flush=True)
    signal.pause()
"""

TALK = """
import http.server, pathlib, ssl, threading, time, urllib.request

server = http.server.ThreadingHTTPServer(("", 8000), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()

def ask(url, **options):
    while True:
        try:
            return urllib.request.urlopen(url, timeout=5, **options).status
        except OSError as error:
            print(url, error, flush=True)
            time.sleep(0.2)

for peer in ("pod-1", "pod-2"):
    print(peer, ask(f"http://{peer}.peers.NAMESPACE.svc:8000"), flush=True)
account = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")
trust = ssl.create_default_context(cafile=account / "ca.crt")
token = {"Authorization": f"Bearer {(account / 'token').read_text()}"}
print("API", ask(urllib.request.Request("https://kubernetes.default.svc/version", headers=token), context=trust))
status = dict(line.split(":") for line in open("/proc/self/status").read().splitlines() if line.count(":") == 1)
print("seccomp", status["Seccomp"].strip(), flush=True)
time.sleep(3600)
"""

SERVE = """
import socket

with socket.create_server(("", 8000)) as server:
    while True:
        server.accept()[0].close()
"""

KNOCK = """
import socket, sys

try:
    socket.create_connection((sys.argv[1], 8000), timeout=1)
    print("reached")
except OSError as error:
    print(error)
"""


@pytest.fixture(autouse=True, scope="module")
def _possible() -> None:
    demand("real")


@pytest.fixture(scope="module")
def plant(_possible: None) -> Iterator[RealPlant]:
    with start_real(nodes=2) as started:
        yield started


@pytest.fixture
def namespace(plant: RealPlant) -> str:
    return plant.new_namespace(**{"pod-security.kubernetes.io/enforce": "restricted"})


def create(plant: RealPlant, namespace: str, number: int, *command: str, app: str = "peers") -> str:
    """Creates a pod on the node with the same number."""
    name = f"pod-{number}" if app == "peers" else f"{app}-{number}"
    container = {"name": "main", "image": PYTHON, "command": command, "securityContext": RESTRICTED}
    spec = {
        "nodeName": f"node-{number}",
        "hostname": name,
        "subdomain": "peers",
        "containers": [container],
        "terminationGracePeriodSeconds": 0,
    }
    metadata = {"name": name, "namespace": namespace, "labels": {"app": app}}
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    plant.kubectl("create", "-f", "-", input=json.dumps(document))
    return name


def running(plant: RealPlant, namespace: str, pod: str) -> Any:
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}"
    return plant.wait(f"{pod} to run", lambda: _in_phase(plant.get(path), "Running"))


def _in_phase(pod: Any, phase: str) -> Any:
    return pod if pod["status"]["phase"] == phase else None


def processes(plant: RealPlant, node: str, name: str) -> list[psutil.Process]:
    found = map(psutil.Process, plant.nodes[node].pids())
    return [process for process in found if process.name() == name]


@pytest.mark.full("tests/e2e, whose pods find each other and the API")
def test_pods_on_two_nodes_find_each_other_and_the_api(plant: RealPlant, namespace: str) -> None:
    plant.kubectl("create", "service", "clusterip", "peers", "--clusterip=None", "-n", namespace)
    pods = [
        create(plant, namespace, number, "python3", "-c", TALK.replace("NAMESPACE", namespace)) for number in (1, 2)
    ]
    for pod in pods:
        running(plant, namespace, pod)
        wait_for_log(plant, namespace, pod, {"pod-1 200", "pod-2 200", "API 200", "seccomp 2"})


def wait_for_log(plant: RealPlant, namespace: str, pod: str, lines: set[str]) -> None:
    plant.wait(f"{pod} to say all", lambda: lines <= set(plant.kubectl("logs", pod, "-n", namespace).splitlines()))


@pytest.mark.full("tests/e2e/test_recovery.py")
def test_a_killed_node_takes_its_containers_with_it_and_comes_back(plant: RealPlant, namespace: str) -> None:
    running(plant, namespace, create(plant, namespace, 2, "sleep", "3600"))
    sleeper = processes(plant, "node-2", "sleep")[-1]
    plant.nodes["node-2"].kill()
    assert not sleeper.is_running()
    plant.wait("the node to be lost", lambda: plant.ready_nodes() == {"node-1"})
    plant.nodes["node-2"].start()
    plant.wait("the node to be back", lambda: plant.ready_nodes() == {"node-1", "node-2"})


@pytest.mark.full("tests/e2e kills whole nodes")
@pytest.mark.parametrize(
    ("lose", "regain"),
    [
        (lambda node: node.kill_program("kubelet"), lambda node: node.start_program("kubelet")),
        (lambda node: node.unplug(), lambda node: node.plug_in()),
    ],
    ids=["its kubelet", "its network"],
)
def test_a_node_that_loses_only(
    plant: RealPlant, namespace: str, lose: Callable[[Any], None], regain: Callable[[Any], None]
) -> None:
    running(plant, namespace, create(plant, namespace, 1, "sleep", "3600"))
    sleeper = processes(plant, "node-1", "sleep")[-1]
    lose(plant.nodes["node-1"])
    plant.wait("the node to be lost", lambda: plant.ready_nodes() == {"node-2"})
    assert sleeper.is_running()
    regain(plant.nodes["node-1"])
    plant.wait("the node to be back", lambda: plant.ready_nodes() == {"node-1", "node-2"})


@pytest.mark.full("tests/e2e/test_pods.py")
def test_a_network_policy_keeps_others_out(plant: RealPlant, namespace: str) -> None:
    server = create(plant, namespace, 1, "python3", "-c", SERVE)
    friend = create(plant, namespace, 2, "sleep", "3600")
    stranger = create(plant, namespace, 2, "sleep", "3600", app="other")
    for pod in (friend, stranger):
        running(plant, namespace, pod)
    address = running(plant, namespace, server)["status"]["podIP"]
    plant.wait("the server", lambda: reaches(plant, namespace, stranger, address))
    plant.kubectl("create", "-n", namespace, "-f", "-", input=json.dumps(only_among("peers")))
    plant.wait("the policy", lambda: not reaches(plant, namespace, stranger, address))
    assert reaches(plant, namespace, friend, address)
    plant.kubectl("delete", "networkpolicy", "among", "-n", namespace)
    plant.wait("its end", lambda: reaches(plant, namespace, stranger, address))


def only_among(app: str) -> dict[str, Any]:
    selector = {"podSelector": {"matchLabels": {"app": app}}}
    spec = selector | {"ingress": [{"from": [selector]}]}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "among"},
        "spec": spec,
    }


def reaches(plant: RealPlant, namespace: str, pod: str, address: str) -> bool:
    said = plant.kubectl("exec", pod, "-n", namespace, "--", "python3", "-c", KNOCK, address)
    return said == "reached\n"


@pytest.mark.full("only a message of the plant's own")
def test_an_image_that_is_not_there_is_named_beside_those_that_are(plant: RealPlant) -> None:
    with pytest.raises(PlantError, match=f"no image localhost/other:1 in .*{PYTHON}.*: run make plant"):
        plant.load("localhost/other:1")


def test_nothing_is_left_at_exit_nor_after_a_kill_9_and_the_next_start() -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout
        folder, device = map(Path, holder.stdout.readline().split())
        index = (device / "ifindex").read_text()
        programs = psutil.Process(holder.pid).children(recursive=True)
        assert {"etcd", "coredns", "containerd", "kubelet", "kube-proxy"} <= {program.name() for program in programs}
        assert f"{folder.name}-node-1" in cgroups.names()
        os.kill(holder.pid, signal.SIGKILL)
    assert not psutil.wait_procs(programs, timeout=30)[1]
    assert "ddpjob" not in Path("/proc/mounts").read_text()
    with plant_directory(NODES):
        pass
    assert not folder.exists()
    assert f"{folder.name}-node-1" not in cgroups.names()
    assert not device.exists() or (device / "ifindex").read_text() != index, "or it is another plant's by now"
