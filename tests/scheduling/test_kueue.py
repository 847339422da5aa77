"""Jobs that the real Kueue admits as a whole: quota for eight pods of one GPU each."""

from typing import Any

import pytest
from ddpjob_operator.api.contract import PRIORITY_LABEL, QUEUE_LABEL
from ddpjob_operator.engine import KUEUE_API

from tests.support.jobs import FOR_LONG, SAVING, Team, a_job, condition, on_whole_nodes
from tests.support.kueue import CLUSTER_QUEUE, GPU, QUEUE, QUOTA, cluster_queue, of_kueue, workload, workloads

FULL = pytest.mark.full("the rest of what make scheduling shows: two jobs that contend for quota stand for it")
RACK = "example.com/rack"


def a_queued_job(
    name: str = "digits",
    nodes: int = 8,
    priority: str = "",
    queue: str = QUEUE,
    annotations: Any = FOR_LONG,
    **spec: Any,
) -> dict[str, Any]:
    """One of eight nodes takes the whole quota."""
    job = a_job(name, nodes=nodes, annotations=annotations, **spec)
    job["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {GPU: 1}}
    labels = {QUEUE_LABEL: queue, **({PRIORITY_LABEL: priority} if priority else {})}
    job["metadata"]["labels"] = labels
    return job


def used(team: Team) -> int:
    """How much of the quota is taken."""
    status = team.plant.get(f"/apis/{KUEUE_API}/clusterqueues/{CLUSTER_QUEUE}").get("status")
    return int(status["flavorsReservation"][0]["resources"][0]["total"]) if status else 0


def test_of_two_jobs_that_need_the_whole_quota_one_runs_and_the_other_has_no_pod_until_then(team: Team) -> None:
    team.apply(a_queued_job("one"))
    team.until("{.status.display.ready}=8/8", "one")
    team.apply(a_queued_job("other"))
    said = team.condition("Queued", name="other")
    team.plant.wait("Kueue's words", lambda: "insufficient unused quota" in team.status("other").get("message", ""))
    assert team.status("other")["state"] == "Queued"
    assert said["reason"] in {"QueueEntered", "Pending", "WaitingForQuota"}
    assert not team.pods("other")
    team.tell(*(pod["metadata"]["name"] for pod in team.pods("one")), runs_for="0s")
    team.wait("Succeeded", "one")
    team.until("{.status.display.ready}=8/8", "other")
    assert condition(workload(team, "one")["status"], "Finished")["reason"] == "Succeeded"
    assert {pod["spec"]["nodeSelector"]["kubernetes.io/os"] for pod in team.pods("other")} == {"linux"}
    assert [team.status(name)["attempt"] for name in ("one", "other")] == [1, 1]


@FULL
def test_a_higher_priority_takes_the_quota_when_the_first_has_saved_and_gives_it_back(team: Team) -> None:
    team.apply(a_queued_job("first", priority="low", annotations=SAVING))
    team.until("{.status.display.ready}=8/8", "first")
    team.apply(a_queued_job("second", priority="high"))
    team.until("{.status.display.ready}=8/8", "second")
    status = team.status("first")
    assert status["state"] == "Queued"
    assert not team.pods("first")
    assert team.events("first")["Queued"]
    team.tell(*(pod["metadata"]["name"] for pod in team.pods("second")), runs_for="0s")
    team.wait("Succeeded", "second")
    team.until("{.status.display.ready}=8/8", "first")
    status = team.status("first")
    assert (status["attempt"], status.get("restarts", 0), status.get("disruptions", 0)) == (2, 0, 0)


@FULL
def test_a_pod_is_replaced_and_a_gang_starts_again_on_the_quota_that_the_job_has(team: Team) -> None:
    team.apply(a_queued_job())
    team.until("{.status.display.ready}=8/8")
    admitted = condition(workload(team)["status"], "Admitted")
    team.fails(3)
    team.until("{.status.attempt}=2")
    team.until("{.status.display.ready}=8/8")
    assert condition(workload(team)["status"], "Admitted") == admitted


@FULL
def test_a_job_that_shrinks_gives_back_quota_and_one_that_grows_queues_anew(team: Team) -> None:
    team.apply(a_queued_job(nodes=6))
    team.until("{.status.display.ready}=6/6")
    team.change(nodes=4)
    team.until("{.status.display.ready}=4/4")
    team.plant.wait("quota to be given back", lambda: used(team) == 4)
    team.change(nodes=8)
    team.until("{.status.display.ready}=8/8")
    team.plant.wait("all of it to be taken", lambda: used(team) == QUOTA)
    assert team.status()["restarts"] == 0


@FULL
def test_an_elastic_job_starts_with_what_quota_there_is(team: Team) -> None:
    team.apply(a_queued_job("one", nodes=5))
    team.until("{.status.display.ready}=5/5", "one")
    team.apply(a_queued_job(nodes=8, elastic={"minNodes": 2}))
    team.until("{.status.display.ready}=3/3")
    assert len(team.pods()) == 3


@FULL
def test_a_queue_that_does_not_exist_is_said_and_once_it_does_the_job_starts(team: Team) -> None:
    team.apply(a_queued_job(nodes=2, queue="nowhere"))
    blocked = team.condition("Blocked")
    team.plant.wait("Kueue's words", lambda: "LocalQueue nowhere doesn't exist" in team.status()["message"])
    assert blocked["reason"] == "Inadmissible"
    team.apply(of_kueue("LocalQueue", "nowhere", {"clusterQueue": CLUSTER_QUEUE}))
    team.until("{.status.display.ready}=2/2")


@FULL
def test_a_priority_class_that_does_not_exist_is_said_and_once_it_does_the_job_starts(team: Team) -> None:
    team.apply(a_queued_job(nodes=2, priority="missing"))
    team.condition("Blocked")
    assert "WorkloadPriorityClass missing does not exist" in team.status()["message"]
    team.apply(of_kueue("WorkloadPriorityClass", "missing", value=3))
    team.until("{.status.display.ready}=2/2")
    assert workload(team)["spec"]["priority"] == 3


@FULL
def test_a_stopped_queue_stops_its_jobs_with_time_to_save_and_they_go_on_when_it_is_open_again(team: Team) -> None:
    team.apply(a_queued_job(annotations=SAVING))
    team.until("{.status.display.ready}=8/8")
    team.apply(cluster_queue(stopPolicy="HoldAndDrain"))
    team.wait("Queued")
    team.plant.wait("all pods to stop", lambda: not team.pods())
    team.plant.wait("the quota to be given back", lambda: used(team) == 0)
    team.apply(cluster_queue(stopPolicy="None"))
    team.until("{.status.display.ready}=8/8")
    assert team.status()["restarts"] == 0


@FULL
def test_a_suspended_job_leaves_its_queue_and_a_resumed_one_queues_again(team: Team) -> None:
    team.apply(a_queued_job())
    team.until("{.status.display.ready}=8/8")
    team.change(suspend=True)
    team.wait("Suspended")
    team.plant.wait("the job to leave its queue", lambda: not workloads(team))
    team.change(suspend=False)
    team.until("{.status.display.ready}=8/8")


@FULL
def test_a_place_in_the_queue_that_somebody_deletes_is_taken_again(team: Team) -> None:
    team.apply(a_queued_job())
    team.until("{.status.display.ready}=8/8")
    before = workload(team)["metadata"]
    team.plant.api.delete(f"/apis/{KUEUE_API}/namespaces/{team.namespace}/workloads/{before['name']}")
    team.plant.wait(
        "another", lambda: [one["metadata"]["uid"] for one in workloads(team)] not in ([], [before["uid"]])
    )
    team.until("{.status.display.ready}=8/8")


@FULL
def test_a_cancelled_job_gives_its_quota_back_and_keeps_its_pods_and_one_that_waits_leaves_its_queue(
    team: Team,
) -> None:
    team.apply(a_queued_job("one"))
    team.until("{.status.display.ready}=8/8", "one")
    for name in ("waits", "other"):
        team.apply(a_queued_job(name))
        team.wait("Queued", name)
    team.change("waits", cancel=True)
    assert team.wait("Failed", "waits")["reason"] == "Cancelled"
    assert not team.pods("waits")
    assert used(team) == QUOTA
    team.change("one", cancel=True)
    assert team.wait("Failed", "one")["reason"] == "Cancelled"
    team.until("{.status.display.ready}=8/8", "other")
    assert len(team.pods("one")) == 8, "they have ended, and keep their logs"
    for name in ("waits", "one"):
        assert all(condition(each["status"], "Finished") for each in workloads(team) if _belongs(each, name))
    team.change("other", cancel=True)
    team.wait("Failed", "other")
    team.plant.wait("all of the quota to be free", lambda: used(team) == 0)


def _belongs(place: dict[str, Any], name: str) -> bool:
    """Whether a Workload is a job's."""
    return bool(place["metadata"]["ownerReferences"][0]["name"] == name)


@FULL
def test_a_job_that_is_deleted_takes_its_place_in_the_queue_with_it(team: Team) -> None:
    team.apply(a_queued_job())
    team.until("{.status.display.ready}=8/8")
    team.delete("ddpjobs", "digits")
    team.plant.wait("the quota to be free", lambda: used(team) == 0 and not workloads(team))


@pytest.fixture
def team(queue_team: Team) -> Team:
    """A namespace with a queue, and all of the quota."""
    return queue_team


@pytest.fixture
def racks(team: Team) -> None:
    """Two racks with two nodes each, of which Kueue chooses."""
    for index in range(4):
        team.plant.api.patch(f"/api/v1/nodes/node-{index}", {"metadata": {"labels": {RACK: f"rack-{index % 2}"}}})
    levels = [{"nodeLabel": RACK}, {"nodeLabel": "kubernetes.io/hostname"}]
    team.apply(of_kueue("Topology", "racks", {"levels": levels}))
    team.apply(
        of_kueue("ResourceFlavor", "racked", {"nodeLabels": {"kubernetes.io/os": "linux"}, "topologyName": "racks"})
    )
    flavors = [{"name": "racked", "resources": [{"name": GPU, "nominalQuota": 32}]}]
    groups = [{"coveredResources": [GPU], "flavors": flavors}]
    team.apply(of_kueue("ClusterQueue", "racked", {"namespaceSelector": {}, "resourceGroups": groups}))
    team.apply(of_kueue("LocalQueue", "racked", {"clusterQueue": "racked"}))


def in_racks(team: Team) -> list[str]:
    """The rack of each rank."""
    nodes = {pod["metadata"]["labels"]["ddpjob.dev/node"]: pod["spec"]["nodeName"] for pod in team.pods()}
    return [f"rack-{int(nodes[rank].removeprefix('node-')) % 2}" for rank in sorted(nodes)]


@FULL
@pytest.mark.usefixtures("racks")
def test_kueue_places_a_job_in_one_rack_or_ranks_that_are_neighbours_beside_each_other(team: Team) -> None:
    for how, nodes in (("required", 2), ("preferred", 4)):
        topology = {f"kueue.x-k8s.io/podset-{how}-topology": RACK}
        team.apply(on_whole_nodes(a_queued_job(nodes=nodes, queue="racked", annotations=FOR_LONG | topology)))
        team.until(f"{{.status.display.ready}}={nodes}/{nodes}")
        placed = in_racks(team)
        assert placed == sorted(placed, key=placed.index), "a ring crosses from rack to rack as rarely as it can"
        assert len(set(placed)) == (1 if how == "required" else 2)
        team.delete("ddpjobs", "digits", wait=True)
        team.plant.wait("all pods to go", lambda: not team.pods())
