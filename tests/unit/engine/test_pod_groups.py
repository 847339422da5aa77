"""PodGroups, by which the cluster's own scheduler places a gang: when they come and go, and what is said of them."""

from typing import Any

import pytest
from ddpjob_operator.engine import POD_GROUP, VOLCANO_GROUP, WORKLOAD, CreatePod

from .builders import TEMPLATE, Moment, a_job, made, plan
from .tables import Table, rows, verdict

plain = a_job(nodes=2)
two = plain.grouped()
three = a_job(nodes=3).grouped()
in_place = a_job(nodes=3, restart={"mode": "InPlace"}).grouped()
elastic = a_job(nodes=4, elastic={"minNodes": 2}, scheduleTimeoutSeconds=60).grouped()
asking = a_job(nodes=2, scheduling={"schedulingPolicy": {"gang": {}}})
OWN = {"spec": {**TEMPLATE["spec"], "schedulingGroup": {"podGroupName": "mine"}}}
FEW = "minCount (2) cannot be satisfied: 0 scheduled, 1 remaining"
FULL = "0/4 nodes are available: 4 Insufficient cpu"
SILENT = "has reported nothing: check that it is running, and that its queue exists"
NO_EFFECT = (
    "spec.scheduling has no effect on this attempt: when it started, the cluster served no PodGroups "
    "(scheduling.k8s.io/v1beta1), or did not permit the operator to create them"
)

OF_VOLCANO: dict[str, Any] = {
    "metadata": {"annotations": {"scheduling.volcano.sh/queue-name": "team-a"}},
    "spec": {**TEMPLATE["spec"], "schedulerName": "volcano", "priorityClassName": "high"},
}
volcano = a_job(nodes=2, template=OF_VOLCANO).grouped()

TABLE: Table = {
    # when it is made
    "where there is no such API all is as without it": (plain, "service +1.0 +1.1", "Pending", "Creating 2 pods"),
    "a group is there before its pods": (two, "service workload group +1.0 +1.1", "Pending", "Creating 2 pods"),
    "also if the operator died before it made any": (
        two.said(),
        "service workload group +1.0 +1.1",
        "Pending",
        "Creating 2 of 2 pods",
    ),
    "a gang that runs is not touched when the API appears": (
        plain.running().grouped(),
        "",
        "Running",
        "2 nodes running",
    ),
    "and has a group from the next attempt on": (
        plain.running().grouped().fails(1).ready_again(),
        "workload group +2.0 +2.1",
        "Restarting",
        "Creating 2 of 2 pods",
    ),
    "one whose API goes waits for nothing": (
        two.running().ungrouped().fails(1).decided().gone().after(1),
        "+2.0 +2.1",
        "Restarting",
        "Creating 2 of 2 pods",
    ),
    "for Volcano there is no Workload": (volcano, "service group +1.0 +1.1", "Pending", "Creating 2 pods"),
    "where Volcano is not, all is as without it, and the message says whom its pods wait for": (
        a_job(nodes=2, template=OF_VOLCANO).created(),
        "",
        "Starting",
        f"0 of 2 pods running; rank 0 and 1 more: waiting for volcano, which {SILENT}",
    ),
    # when it goes
    "each attempt has its own": (
        two.running().fails(1).ready_again(),
        "workload group -workload -group +2.0 +2.1",
        "Restarting",
        "Creating 2 of 2 pods",
    ),
    "so has one of another size": (
        two.running().asks(nodes=3).decided().gone(),
        "workload group -workload -group +2.0 +2.1 +2.2",
        "Restarting",
        "Creating 3 of 3 pods",
    ),
    "and one that is resumed": (
        two.running().suspended().asks(suspend=False),
        "workload group -workload -group +2.0 +2.1",
        "Pending",
        "Creating 2 pods",
    ),
    "a suspended job keeps its last": (
        two.running().suspended(),
        "",
        "Suspended",
        "Nothing runs until the job is resumed",
    ),
    "a former one that goes only with its last pod is not deleted twice": (
        two.running().group_goes().fails(1).ready_again(),
        "workload group -workload +2.0 +2.1",
        "Restarting",
        "Creating 2 of 2 pods",
    ),
    "a pod that is replaced alone joins the others": (
        in_place.running().hears().node_dies(1).decided().gone(),
        "+2.1",
        "Restarting",
        "Creating 1 of 3 pods",
    ),
    "one that somebody deletes is not made anew while it has pods": (
        two.running().group_goes(),
        "",
        "Running",
        "2 nodes running",
    ),
    "one that is gone is recreated": (
        two.running().group_is_gone(),
        "group",
        "Running",
        "2 nodes running",
    ),
    # what is said
    "the scheduler says why it places none": (
        two.created().no_room(FULL),
        "",
        "Starting",
        f"0 of 2 pods running; no room for the gang yet: Unschedulable: {FULL}",
    ),
    "and of one of them what it lacks": (
        two.created().no_room(FEW).waits(0, "Unschedulable", FEW[:15]).waits(1, "Unschedulable", FULL),
        "",
        "Starting",
        f"0 of 2 pods running; no room for the gang yet: Unschedulable: {FEW}; rank 1: {FULL}",
    ),
    "a gang that holds nothing has nothing to give back": (
        two.created().no_room(FULL).settled().after(100_000),
        "",
        "Starting",
        f"0 of 2 pods running; no room for the gang yet: Unschedulable: {FULL}",
    ),
    "once it is placed, its pods say what they wait for": (
        two.created().no_room(FULL).placed(0, 1).waits(0, "ImagePullBackOff"),
        "",
        "Starting",
        "0 of 2 pods running; rank 0: ImagePullBackOff",
    ),
    "an elastic gang that is placed without some goes on with those it has": (
        a_job(nodes=4, elastic={"minNodes": 2}).grouped().created().placed(0, 1).settled().after(120),
        "-1.0/5 -1.1/5 -1.2/5 -1.3/5",
        "Restarting",
        "2 of 4 pods could be scheduled within 120 s: continuing with these",
    ),
    "who asks for what the cluster has not is told": (
        asking.created(),
        "",
        "Starting",
        f"0 of 2 pods running; rank 0 and 1 more: waiting to be scheduled; {NO_EFFECT}",
    ),
    "and who asks for a way of disruption": (
        a_job(nodes=2, scheduling={"disruptionMode": {"all": {}}}).created(),
        "",
        "Starting",
        f"0 of 2 pods running; rank 0 and 1 more: waiting to be scheduled; {NO_EFFECT}",
    ),
    "but not who has it": (
        asking.grouped().created(),
        "",
        "Starting",
        "0 of 2 pods running; rank 0 and 1 more: waiting to be scheduled",
    ),
    "a group that is refused is in the way of its pods": (
        two.decided().group_is_gone().vanishes(0, 1).refused("QuotaExceeded", "exceeded quota: few"),
        "",
        "Pending",
        "exceeded quota: few",
    ),
}


@rows(TABLE)
def test_when_a_group_comes_and_goes_and_what_is_said(moment: Moment, expected: tuple[str, str, str]) -> None:
    assert verdict(moment) == expected


def policies(moment: Moment) -> list[Any]:
    """The scheduling policy of the Workload and of its PodGroup."""
    (workload,), (group,) = (made(moment.decision, kind) for kind in (WORKLOAD, POD_GROUP))
    (template,) = workload["spec"]["podGroupTemplates"]
    return [template["schedulingPolicy"], group["spec"]["schedulingPolicy"]]


def gang_of(least: int) -> dict[str, Any]:
    return {"gang": {"minCount": least}}


MIN_2 = {"schedulingPolicy": gang_of(2)}
POLICIES: dict[str, tuple[Moment, Any]] = {
    "all pods, if nothing is said": (three, gang_of(3)),
    "all of the new size": (three.running().asks(nodes=5).decided().gone(), gang_of(5)),
    "or of the smaller one": (three.running().asks(nodes=2).decided().gone(), gang_of(2)),
    "as many as an elastic gang can do with": (elastic, gang_of(2)),
    "as many as the job says": (a_job(nodes=3, scheduling=MIN_2).grouped(), gang_of(2)),
    "a gang without a number is one of all": (
        a_job(nodes=3, scheduling={"schedulingPolicy": {"gang": {}}}).grouped(),
        gang_of(3),
    ),
    "no more than there are in a gang that has shrunk": (
        a_job(nodes=3, elastic={}, scheduling={"schedulingPolicy": gang_of(3)})
        .grouped()
        .created()
        .placed(0, 1)
        .settled()
        .after(120)
        .decided()
        .gone(),
        gang_of(2),
    ),
    "each pod by itself": (a_job(nodes=3, scheduling={"schedulingPolicy": {"basic": {}}}).grouped(), {"basic": {}}),
    "what is asked for meanwhile, from the next attempt on": (
        three.running().asks(scheduling=MIN_2).settled().fails(1).ready_again(),
        gang_of(2),
    ),
}


@pytest.mark.parametrize(("moment", "expected"), POLICIES.values(), ids=POLICIES)
def test_how_many_pods_are_placed_together(moment: Moment, expected: Any) -> None:
    assert policies(moment) == [expected, expected]


def groups(moment: Moment) -> set[str | None]:
    """The PodGroups that the pods to be created name."""
    made = (action.build()["spec"] for action in moment.decision.actions if isinstance(action, CreatePod))
    return {pod.get("schedulingGroup", {}).get("podGroupName") for pod in made}


def test_pods_name_the_group_that_was_made_for_them() -> None:
    again = two.running().fails(1).ready_again()
    (workload,), (group,) = (made(again.decision, kind) for kind in (WORKLOAD, POD_GROUP))
    name = group["metadata"]["name"]
    assert groups(again) == {name} == {again.status.pod_group}
    assert group["spec"]["workloadRef"]["workloadName"] == workload["metadata"]["name"]
    assert groups(two.decided().said()) == set()
    assert name not in groups(two)


def test_a_replaced_pod_names_the_group_of_the_others() -> None:
    running = in_place.running()
    assert groups(running.hears().node_dies(1).decided().gone()) == {running.status.pod_group}


def test_a_reserve_counts_for_no_group() -> None:
    growing = a_job(nodes=3, elastic={}).grouped().created().placed(0, 1).settled().after(120).decided().gone()
    looking_out = growing.decided().runs(0, 1)
    assert plan(looking_out) == "+2.2?"
    assert groups(looking_out) == {None}
    assert looking_out.status.pod_group


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param(plain, id="there is no such API"),
        pytest.param(a_job(nodes=2, template=OWN), id="the template names its own, where there is none"),
        pytest.param(two.running().ungrouped().fails(1).decided().gone().after(1), id="the API is gone by now"),
    ],
)
def test_no_group_is_made_where(moment: Moment) -> None:
    assert "group" not in plan(moment)
    assert groups(moment) <= {None, "mine"}


def test_a_group_of_the_templates_own_stays_the_templates_matter() -> None:
    own = a_job(nodes=2, template=OWN).grouped()
    assert (plan(own), groups(own)) == ("service +1.0 +1.1", {"mine"})
    assert own.decided().status.pod_group is None


def test_pods_of_an_attempt_whose_api_is_gone_name_no_group() -> None:
    """A server that does not know the field would refuse them."""
    half = two.decided().vanishes(1).ungrouped()
    assert (plan(half), groups(half)) == ("+1.1", {None})


def test_names_are_those_of_the_attempts_pods() -> None:
    job = two.decided()
    suffixes = {pod.name.rpartition("-")[2] for pod in job.pods}
    assert {f"digits-{suffix}" for suffix in suffixes} == {job.status.pod_group}


def test_volcanos_group_has_its_words_and_its_pods_name_the_group_in_an_annotation() -> None:
    (group,) = made(volcano.decision, VOLCANO_GROUP)
    pods = [one.build() for one in volcano.decision.actions if isinstance(one, CreatePod)]
    assert (group["apiVersion"], group["kind"]) == ("scheduling.volcano.sh/v1beta1", "PodGroup")
    assert group["spec"] == {"minMember": 2, "queue": "team-a", "priorityClassName": "high"}
    names = {pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] for pod in pods}
    assert names == {group["metadata"]["name"]}
    assert all("schedulingGroup" not in pod["spec"] for pod in pods)


def test_an_elastic_gang_of_volcanos_begins_with_the_fewest() -> None:
    elastic = a_job(nodes=4, elastic={"minNodes": 2}, template=OF_VOLCANO).grouped()
    (group,) = made(elastic.decision, VOLCANO_GROUP)
    assert group["spec"]["minMember"] == 2
