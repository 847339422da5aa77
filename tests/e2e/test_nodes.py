"""A node whose kubelet or containerd is killed: its pods train on, and nothing is restarted while they may."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

import pytest

from tests.plant.machines import Machine, Machines
from tests.support.jobs import Team, condition

from .faults import pod_of, start_again, tolerating
from .noting import SOON, Training

LONG_ENOUGH = 1200
"""Seconds until the pods of a silent node are given up: more than a busy machine needs for all of a test."""

A_WHILE = 5
"""The same where they are to be given up: seconds in which an operator that cannot wait would be seen."""

BLIND = pytest.mark.full("no lower level has kubelets; that a lost node is told, test_recovery.py shows")


@pytest.fixture
def training(host: Machines) -> Iterator[Training]:
    training = Training(Team(host), host.new_folder())
    yield training
    start_again(host)
    training.team.kubectl("delete", "ddpjob", "digits")


def node_of(host: Machines, training: Training) -> Machine:
    """The node of rank 1."""
    return host.nodes[pod_of(training.team, 1)["spec"]["nodeName"]]


@contextmanager
def killed(program: str, node: Machine) -> Iterator[None]:
    """The node's kubelet or containerd is away meanwhile, and back afterwards, be it for the next test."""
    node.kill_program(program)
    try:
        yield
    finally:
        node.start_program(program)


@BLIND
@pytest.mark.parametrize("program", ["kubelet", "containerd"])
def test_a_node_that_comes_back_before_its_pods_are_given_up_is_no_incident(
    program: str, host: Machines, training: Training
) -> None:
    training.start(tolerations=tolerating(LONG_ENOUGH))
    node, pods, runs = node_of(host, training), training.pods(), condition(training.team.status(), "Running")
    with killed(program, node):
        host.wait("the node to be not ready", lambda: node.name not in host.ready_nodes(), SOON)
        training.goes_on(1)
        assert training.team.status()["state"] == "Running", "its supervisors are heard, and all trains"
    host.wait("the node to be ready", lambda: node.name in host.ready_nodes(), SOON)
    training.goes_on(1)
    assert training.pods() == pods
    status = training.team.status()
    counted = [status.get(name) for name in ("state", "attempt", "restarts", "disruptions", "incidents")]
    assert counted == ["Running", 1, 0, 0, None]
    assert condition(status, "Running") == runs, "never said otherwise meanwhile"


@BLIND
def test_a_kubelet_that_stays_away_costs_a_restart_when_its_pods_are_given_up_and_not_before(
    host: Machines, training: Training
) -> None:
    training.start(tolerations=tolerating(A_WHILE))
    team, node, pods = training.team, node_of(host, training), training.pods()
    with killed("kubelet", node):
        training.begins(2)
        assert training.pods()[0] == pods[0], "it waits in place"
        status = team.status()
        failure = status["incidents"][0]
        assert (status["restarts"], status["disruptions"], failure["node"], failure["cause"]) == (0, 1, 1, "NodeLost")
        assert failure["message"].startswith(f"Kubernetes node {node.name} is not ready: "), failure["message"]
        given_up = silent_since(host, node) + timedelta(seconds=A_WHILE)
        assert datetime.fromisoformat(failure["time"]) >= given_up
    host.wait("what was given up to go", lambda: len(team.pods()) == 2, SOON)
    training.goes_on(2)
    assert (team.status()["attempt"], team.status()["disruptions"]) == (2, 1), "what goes at last changes nothing"


def silent_since(host: Machines, node: Machine) -> datetime:
    """When the cluster took the node for lost."""
    conditions = host.get(f"/api/v1/nodes/{node.name}")["status"]["conditions"]
    [ready] = [one for one in conditions if one["type"] == "Ready"]
    return datetime.fromisoformat(ready["lastTransitionTime"])
