"""Gangs that the real scheduler of Volcano places as a whole, since the operator makes their PodGroups."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.plant import start_fake
from tests.plant.needs import demand
from tests.plant.volcano import API, SCHEDULER, start_volcano
from tests.support.crd import install_crd
from tests.support.jobs import FOR_LONG, Team, a_job, on_whole_nodes
from tests.support.operators import an_operator

pytestmark = [
    pytest.mark.full("two gangs that contend in test_gangs.py; the first test builds Volcano where it is not there"),
    pytest.mark.timeout(1800),
]

QUEUE = "scheduling.volcano.sh/queue-name"
GPU = "nvidia.com/gpu"


@pytest.fixture(scope="module")
def team() -> Iterator[Team]:
    """A namespace on four nodes that only say that they run pods, with Volcano's scheduler beside Kubernetes' own."""
    demand("fake")
    with start_fake() as plant:
        install_crd(plant)
        start_volcano(plant)
        for name, value in (("low", 1), ("high", 1000)):
            kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
            plant.api.apply(kind | {"value": value}, "")
        with an_operator(plant, "--no-leader-elect", forked=True):
            yield Team(plant)


@pytest.fixture(autouse=True)
def _all_nodes(team: Team) -> Iterator[None]:
    yield
    team.delete_all("ddpjobs")
    team.plant.wait("the nodes to be free", lambda: not team.all("pods"))


def a_gang(name: str, nodes: int = 4, *, priority: str = "", queue: str = "", **spec: Any) -> dict[str, Any]:
    """A job whose pods take a node each, for Volcano."""
    annotations = FOR_LONG | ({QUEUE: queue} if queue else {})
    job = on_whole_nodes(a_job(name, nodes=nodes, annotations=annotations, **spec))
    pod = job["spec"]["template"]["spec"]
    job["spec"]["template"]["spec"] = pod | {"schedulerName": SCHEDULER}
    if priority:
        job["spec"]["template"]["spec"]["priorityClassName"] = priority
    return job


def placed(team: Team, name: str) -> int:
    """How many nodes a job holds."""
    return sum("nodeName" in pod["spec"] for pod in team.pods(name))


def runs(team: Team, name: str, nodes: int = 4) -> None:
    team.until(f"{{.status.display.ready}}={nodes}/{nodes}", name)


def finish(team: Team, name: str) -> None:
    team.tell(*(pod["metadata"]["name"] for pod in team.pods(name)), runs_for="0s")
    team.wait("Succeeded", name)


def test_of_two_gangs_that_have_no_room_together_one_runs_and_the_other_holds_nothing_until_then(team: Team) -> None:
    team.apply(a_gang("one"), a_gang("other"))
    first = team.plant.wait(
        "one to run",
        lambda: next((one for one in ("one", "other") if team.status(one).get("readyNodes") == 4), ""),
    )
    (other,) = {"one", "other"} - {first}
    words = "no room for the gang yet: NotEnoughResources: "
    team.plant.wait("the other to say why", lambda: words in team.status(other).get("message", ""))
    assert (placed(team, first), placed(team, other)) == (4, 0)
    finish(team, first)
    runs(team, other)
    assert [team.status(name)["attempt"] for name in (first, other)] == [1, 1], "neither gave anything back"


def test_of_two_that_wait_the_one_of_higher_priority_comes_first(team: Team) -> None:
    team.apply(a_gang("first"))
    runs(team, "first")
    team.apply(a_gang("low", priority="low"))
    team.until("{.status.state}=Starting", "low")
    team.apply(a_gang("high", priority="high"))
    team.until("{.status.state}=Starting", "high")
    finish(team, "first")
    runs(team, "high")
    assert placed(team, "low") == 0


def test_a_gang_waits_for_the_quota_of_its_queue(team: Team) -> None:
    spec = {"weight": 1, "reclaimable": True, "capability": {GPU: 16}}
    team.plant.api.create(
        f"/apis/{API}/queues", {"apiVersion": API, "kind": "Queue", "metadata": {"name": "small"}} | {"spec": spec}
    )
    team.apply(a_gang("one", nodes=2, queue="small"))
    runs(team, "one", nodes=2)
    team.apply(a_gang("other", nodes=2, queue="small"))
    team.plant.wait("it to say why", lambda: "no room for the gang" in team.status("other").get("message", ""))
    assert placed(team, "other") == 0, "though two nodes are free"
    finish(team, "one")
    runs(team, "other", nodes=2)


def test_a_queue_that_does_not_exist_is_asked_for_in_the_message(team: Team) -> None:
    team.apply(a_gang("lost", nodes=1, queue="nowhere"))
    words = "waiting for volcano, which has reported nothing: check that it is running, and that its queue exists"
    team.plant.wait("it to be asked for", lambda: words in team.status("lost").get("message", ""))


def test_a_gang_that_starts_again_has_a_group_of_its_own_again(team: Team) -> None:
    team.apply(a_gang("one", nodes=2))
    runs(team, "one", nodes=2)
    before = team.status("one")["podGroup"]
    team.tell(team.pod(1, "one"), runs_for="0s", exit_code="1")
    team.until("{.status.attempt}=2", "one")
    runs(team, "one", nodes=2)
    groups = team.plant.get(f"/apis/{API}/namespaces/{team.namespace}/podgroups")["items"]
    names = {group["metadata"]["name"] for group in groups}
    assert names == {team.status("one")["podGroup"]} != {before}
