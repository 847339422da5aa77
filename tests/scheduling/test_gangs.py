"""Gangs that the cluster's own scheduler places as a whole or not at all."""

from typing import Any, cast

import pytest
from ddpjob_operator.api import DDPJob
from ddpjob_operator.api.contract import API_VERSION, KIND
from ddpjob_operator.engine import SCHEDULING_API
from ddpjob_operator.engine.manifests.names import pod_group_name

from tests.plant import Plant
from tests.support.jobs import FOR_LONG, Team, a_job, condition, on_whole_nodes, writes

FULL = pytest.mark.full("the rest of what make scheduling shows: two gangs that contend stand for it")


def a_large_job(name: str = "digits", nodes: int = 4, **spec: Any) -> dict[str, Any]:
    """One of four nodes takes every node there is."""
    return on_whole_nodes(a_job(name, nodes=nodes, annotations=FOR_LONG, **spec))


def placed(team: Team, name: str) -> int:
    """How many machines a job holds."""
    return sum("nodeName" in pod["spec"] for pod in team.pods(name))


def group(team: Team, name: str = "digits") -> dict[str, Any]:
    """The PodGroup that the job's status names."""
    found = team.plant.get(team.path("podgroups", team.status(name)["podGroup"]))
    assert found is not None
    return dict(found)


def least(document: dict[str, Any]) -> int:
    return int(document["schedulingPolicy"]["gang"]["minCount"])


def first_and_other(team: Team, names: set[str]) -> tuple[str, str]:
    """The first of two jobs that runs whole, and the other."""
    first: str = team.plant.wait(
        f"one of {names} to run",
        lambda: next((one for one in names if team.status(one).get("readyNodes") == 4), ""),
    )
    (other,) = names - {first}
    return first, other


def test_of_two_gangs_that_each_need_all_nodes_one_runs_and_the_other_holds_nothing_until_then(team: Team) -> None:
    names = {"one", "other"}
    team.apply(*map(a_large_job, names))
    first, other = first_and_other(team, names)
    team.plant.wait(f"{other} to say why it waits", lambda: "no room" in team.status(other).get("message", ""))
    message = team.status(other)["message"]
    assert message.startswith("0 of 4 pods running; no room for the gang yet: Unschedulable: ")
    assert "4 Insufficient nvidia.com/gpu" in message
    assert (placed(team, first), placed(team, other)) == (4, 0)
    team.tell(*(pod["metadata"]["name"] for pod in team.pods(first)), runs_for="0s")
    team.wait("Succeeded", first)
    team.until("{.status.display.ready}=4/4", other)
    assert [team.status(name)["attempt"] for name in (first, other)] == [1, 1], "neither gave anything back"


@FULL
def test_a_job_has_a_workload_that_leads_back_to_it_and_a_pod_group_that_all_its_pods_name(team: Team) -> None:
    team.apply(a_job(annotations=FOR_LONG))
    team.until("{.status.display.ready}=2/2")
    (workload,) = team.all("workloads")
    assert workload["spec"]["controllerRef"] == {
        "apiGroup": API_VERSION.partition("/")[0],
        "kind": KIND,
        "name": "digits",
    }
    (there,) = team.all("podgroups")
    assert there["spec"]["workloadRef"]["workloadName"] == workload["metadata"]["name"]
    assert {pod["spec"]["schedulingGroup"]["podGroupName"] for pod in team.pods()} == {there["metadata"]["name"]}
    assert team.status()["podGroup"] == there["metadata"]["name"]


@FULL
def test_the_group_follows_a_resize_up_and_down(team: Team) -> None:
    team.apply(a_large_job(nodes=2))
    team.until("{.status.display.ready}=2/2")
    before = group(team)
    assert least(before["spec"]) == 2
    for nodes in (4, 3):
        team.change(nodes=nodes)
        team.until(f"{{.status.display.ready}}={nodes}/{nodes}")
        assert least(group(team)["spec"]) == nodes
        assert least(team.all("workloads")[0]["spec"]["podGroupTemplates"][0]) == nodes
    team.plant.wait("the former groups to go", lambda: len(team.all("podgroups")) == len(team.all("workloads")) == 1)
    assert group(team)["metadata"]["name"] != before["metadata"]["name"]


@FULL
def test_a_gang_that_does_not_fit_any_more_after_a_restart_says_so_too(team: Team) -> None:
    """In one group for all attempts it could not: its condition stays true once it was."""
    team.apply(a_large_job(restart={"backoffSeconds": 1, "maxBackoffSeconds": 1}))
    team.until("{.status.display.ready}=4/4")
    node = team.pods()[0]["spec"]["nodeName"]
    team.plant.api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})
    try:
        team.fails(1)
        team.plant.wait("it to say why it waits", lambda: "no room" in team.status().get("message", ""))
        assert placed(team, "digits") <= 1, "no more than the pod that failed, which is kept"
        assert team.status()["attempt"] == 2
    finally:
        team.plant.api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": None}})
    team.until("{.status.display.ready}=4/4")
    assert team.status()["attempt"] == 2


@FULL
def test_an_elastic_gang_starts_with_as_many_as_there_is_room_for_and_grows(team: Team) -> None:
    team.apply(a_large_job("another", nodes=2))
    team.until("{.status.display.ready}=2/2", "another")
    team.apply(a_large_job(elastic={"minNodes": 2, "shrinkAfterSeconds": 1}))
    team.until("{.status.display.ready}=2/2")
    assert least(group(team)["spec"]) == 2
    team.delete("ddpjobs", "another")
    team.until("{.status.display.ready}=4/4")


@FULL
@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"schedulingPolicy": {"basic": {}}}, {"schedulingPolicy": {"basic": {}}}),
        ({"schedulingPolicy": {"gang": {"minCount": 2}}}, {"schedulingPolicy": {"gang": {"minCount": 2}}}),
        ({"disruptionMode": {"all": {}}}, {"disruptionMode": {"all": {}}}),
        ({"disruptionMode": {"single": {}}}, {"disruptionMode": {"single": {}}}),
    ],
    ids=str,
)
def test_what_a_job_asks_for_stands_in_its_group(team: Team, asked: dict[str, Any], expected: dict[str, Any]) -> None:
    team.apply(a_job(annotations=FOR_LONG, nodes=3, scheduling=asked))
    team.until("{.status.display.ready}=3/3")
    spec = group(team)["spec"]
    assert {field: spec[field] for field in expected} == expected


@FULL
def test_pods_with_a_priority_are_placed_by_a_group_with_the_same_one(team: Team, grouping: Plant) -> None:
    grouping.kubectl("create", "priorityclass", "high", "--value=1000")
    job = a_job(annotations=FOR_LONG)
    job["spec"]["template"]["spec"]["priorityClassName"] = "high"
    team.apply(job)
    team.until("{.status.display.ready}=2/2")
    assert group(team)["spec"]["priority"] == 1000


@FULL
def test_a_gang_with_a_higher_priority_takes_the_place_of_another_as_a_whole(team: Team, grouping: Plant) -> None:
    grouping.kubectl("create", "priorityclass", "urgent", "--value=2000")
    team.apply(a_large_job("low", restart={"backoffSeconds": 1}, scheduling={"disruptionMode": {"all": {}}}))
    team.until("{.status.display.ready}=4/4", "low")
    job = a_large_job("urgent")
    job["spec"]["template"]["spec"]["priorityClassName"] = "urgent"
    team.apply(job)
    team.until("{.status.display.ready}=4/4", "urgent")
    team.plant.wait("the other to hold nothing", lambda: placed(team, "low") == 0)
    assert not team.status("low").get("restarts"), "a preemption does not count"
    assert team.status("low")["disruptions"] == 1
    team.delete("ddpjobs", "urgent")
    team.until("{.status.display.ready}=4/4", "low", seconds=120)


@FULL
def test_a_group_that_somebody_deletes_stays_for_its_pods_and_is_made_anew_where_there_are_none(team: Team) -> None:
    team.apply(a_large_job())
    team.until("{.status.display.ready}=4/4")
    first = group(team)["metadata"]["name"]
    team.delete("podgroups", first)
    assert group(team)["metadata"]["deletionTimestamp"]
    team.fails(1)
    team.until("{.status.attempt}=2")
    team.until("{.status.display.ready}=4/4")
    assert group(team)["metadata"]["name"] != first


@FULL
def test_a_quota_that_has_no_room_for_the_group_keeps_back_the_pods_too(team: Team) -> None:
    team.limit("count/podgroups.scheduling.k8s.io", 0)
    team.apply(a_job(annotations=FOR_LONG))
    team.condition("Blocked")
    assert condition(team.status(), "Blocked")["reason"] == "QuotaExceeded"
    assert not team.pods()
    team.delete_all("resourcequotas")
    team.until("{.status.display.ready}=2/2", seconds=120)


@FULL
def test_another_ones_group_of_that_name_is_left_alone_and_said(team: Team) -> None:
    team.apply(a_job(annotations=FOR_LONG, suspend=True))
    team.wait("Suspended")
    name = pod_group_name(DDPJob.from_dict(cast("dict[str, Any]", team.job())), 1)
    spec = {"schedulingPolicy": {"basic": {}}}
    foreign = {"apiVersion": SCHEDULING_API, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}
    team.create(foreign)
    team.change(suspend=False)
    blocked = team.condition("Blocked")
    message = f"PodGroup {name} exists and belongs to somebody else: delete it, or give the job another name"
    assert (blocked["reason"], blocked["message"], team.pods()) == ("PodGroupTaken", message, [])
    team.delete("podgroups", name, wait=True)
    team.until("{.status.display.ready}=2/2")


@FULL
def test_what_was_made_for_a_job_goes_with_it(team: Team) -> None:
    team.apply(a_job(annotations=FOR_LONG))
    team.until("{.status.display.ready}=2/2")
    team.delete("ddpjobs", "digits", wait=True)
    for kind in ("pods", "podgroups", "workloads"):
        team.plant.wait(f"all {kind} to go", lambda kind=kind: not team.all(kind))


@FULL
def test_a_job_takes_two_writes_more_than_without_groups(team: Team) -> None:
    team.apply(a_job())
    team.wait("Succeeded")
    made = writes(team.plant, team.namespace)
    assert (made["create workloads"], made["create podgroups"]) == (1, 1)
    assert not [what for what in made if what.partition(" ")[0] == "delete" and "group" in what]
