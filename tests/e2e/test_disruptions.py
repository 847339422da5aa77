"""What a cluster does to pods for reasons of its own: none of it counts against the job, and all of it is told."""

from typing import Any

import pytest

from tests.plant import Plant
from tests.plant.machines import Machines
from tests.support.jobs import Team, condition

from .faults import (
    TOLERANT,
    all_nodes_again,
    an_intruder,
    drained,
    evict,
    graces,
    most_of,
    pod_of,
    start_again,
)
from .work import DEAF, LONG, a_script, an_endless_training, saves, wait_for_steps


@pytest.mark.full("the drained node below; tests/cluster/test_disruptions.py")
def test_a_gang_one_of_which_is_evicted_goes_on_with_new_pods_and_all_have_their_grace(
    real: Plant, team: Team
) -> None:
    pod = {"terminationGracePeriodSeconds": 6}
    team.apply(a_script("evicted", DEAF, nodes=2, pod=pod, restart={"gracePeriodSeconds": 1}))
    team.wait("Running", "evicted", LONG)
    before = names(team.pods("evicted"))
    evict(team, pod_of(team, 1, "evicted")["metadata"]["name"])
    real.wait("all to be told", lambda: None not in graces(team, "evicted"))
    assert graces(team, "evicted") == {6}, "time to save"
    status = runs_again(team, "evicted")
    assert told(status) == (1, "Evicted", "Eviction API: evicting")
    assert not before & names(present(team, "evicted"))


@pytest.mark.full("tests/cluster/test_disruptions.py, with the same scheduler")
def test_a_gang_that_is_preempted_waits_for_room_and_says_so(real: Plant, team: Team) -> None:
    node = real.get("/api/v1/nodes")["items"][-1]
    large = most_of(node)
    place = {"nodeSelector": {"kubernetes.io/hostname": node["metadata"]["name"]}}
    job = a_script("modest", ["sleep", "infinity"], pod={**place, "terminationGracePeriodSeconds": 1})
    job["spec"]["template"]["spec"]["containers"][0]["resources"] = large
    team.apply(job)
    team.wait("Running", "modest", LONG)
    with an_intruder(team, {**place, "containers": [{"name": "main", "image": "nothing", "resources": large}]}):
        waits = "0 of 1 pod running; rank 0: Unschedulable: 0/"
        real.wait("the job to wait", lambda: waits in team.status("modest")["message"])
        status = team.status("modest")
        assert (status["state"], "Insufficient cpu" in status["message"]) == ("Restarting", True)
        assert told(status) == (0, "Preempted", "default-scheduler: preempting to accommodate a higher priority pod")
    runs_again(team, "modest")


def test_a_drained_node_lets_training_save_and_go_on_elsewhere(host: Machines, team: Team) -> None:
    shared = host.new_folder()
    team.apply(an_endless_training(shared))
    wait_for_steps(team, attempt=1)
    node, other = pod_of(team, 1)["spec"]["nodeName"], pod_of(team, 0)["metadata"]["uid"]
    with drained(host, node):
        said = wait_for_steps(team, attempt=2)
        [saved] = saves(shared)
        assert f"resumed step={saved['step']} " in said, "saved by nothing but the drain"
        status = runs_again(team, "digits")
        assert told(status) == (1, "Evicted", "Eviction API: evicting")
        assert {pod["spec"]["nodeName"] for pod in team.pods()} == set(host.nodes) - {node}
        assert pod_of(team, 0)["metadata"]["uid"] == other, "it saves as well, and waits in place"
        team.kubectl("delete", "ddpjob", "digits")


@pytest.mark.full("the lost node in test_recovery.py; tests/cluster/test_disruptions.py")
def test_a_pod_that_is_stuck_on_a_lost_node_is_in_nobody_s_way_and_the_node_is_avoided(
    host: Machines, team: Team
) -> None:
    pod = {"tolerations": TOLERANT, "terminationGracePeriodSeconds": 1}
    team.apply(a_script("robust", ["sleep", "infinity"], nodes=2, pod=pod))
    team.wait("Running", "robust", LONG)
    lost = pod_of(team, 1, "robust")
    bad = lost["spec"]["nodeName"]
    with all_nodes_again(host):
        host.nodes[bad].kill()
        status = runs_again(team, "robust")
        rank, cause, message = told(status)
        assert (rank, cause) == (1, "NodeLost")
        assert message.startswith(f"Kubernetes node {bad} is not ready: "), message
        [avoided] = status["avoidedNodeNames"]
        assert avoided["nodeName"] == bad

        assert lost["metadata"]["name"] in names(team.pods("robust")), "the API does not know that it is gone"
        others = present(team, "robust")
        assert bad not in {pod["spec"]["nodeName"] for pod in others}
        for pod in others:
            assert elsewhere(pod) == [{"key": "metadata.name", "operator": "NotIn", "values": [bad]}]

        start_again(host)
        host.wait("the stuck pod to go", lambda: names(team.pods("robust")) == names(others))
        assert team.status("robust")["attempt"] == 2, "what goes at last changes nothing"


def runs_again(team: Team, name: str) -> dict[str, Any]:
    """Once its second attempt runs, which was free: its status."""
    team.until("{.status.attempt}=2", name, LONG)
    status = team.wait("Running", name, LONG)
    assert (status["attempt"], status["restarts"], status["disruptions"]) == (2, 0, 1), status["incidents"]
    assert len(status["incidents"]) == 1
    assert (status["incidents"][0]["action"], status["incidents"][0]["rule"]) == ("RestartFree", "default")
    assert condition(status, "Restarting")["reason"] == "Restarted"
    return status


def told(status: dict[str, Any]) -> tuple[int, str, str]:
    """The rank that was lost first, the cause, and the cluster's words."""
    failure = status["incidents"][0]
    return failure["node"], failure["cause"], failure["message"]


def present(team: Team, name: str) -> list[dict[str, Any]]:
    """The pods of both ranks; one that is about to go may be there as well."""
    return [pod_of(team, rank, name) for rank in (0, 1)]


def names(pods: list[dict[str, Any]]) -> set[str]:
    return {pod["metadata"]["name"] for pod in pods}


def elsewhere(pod: dict[str, Any]) -> list[dict[str, Any]]:
    """What its nodes are to be like, where there are such."""
    [term] = pod["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    fields: list[dict[str, Any]] = term["preference"]["matchFields"]
    return fields
