"""How many nodes a job has: as many as its user says, as an autoscaler says, or as there are."""

from collections.abc import Iterator
from typing import Any

import pytest
from ddpjob_operator.api.contract import API_VERSION, Env, Label

from tests.plant import Plant
from tests.plant.fake import add_node, remove_node
from tests.support.api_client import ApiError
from tests.support.jobs import FOR_LONG, Team, a_job, condition, on_whole_nodes


def world(team: Team) -> dict[str, str]:
    """The present pods: for each rank the number of nodes that it is told; every one of one attempt."""
    newest = max(incarnation(pod) for pod in team.pods())
    return {
        pod["metadata"]["labels"][Label.NODE]: variable(pod, Env.NNODES)
        for pod in team.pods()
        if incarnation(pod) == newest and not looks_out(pod)
    }


def incarnation(pod: dict[str, Any]) -> int:
    return int(pod["metadata"]["labels"][Label.INCARNATION])


def looks_out(pod: dict[str, Any]) -> bool:
    """Whether it only looks out for a place."""
    return any(one["name"] == "wait-for-growth" for one in pod["spec"].get("initContainers", ()))


def variable(pod: dict[str, Any], name: str) -> str:
    trainer = next(one for one in pod["spec"]["containers"] if one["name"] == "trainer")
    return next(str(one["value"]) for one in trainer["env"] if one["name"] == name)


def running(team: Team, nodes: int) -> dict[str, Any]:
    """The status, once so many nodes run."""
    team.until(f"{{.status.display.ready}}={nodes}/{nodes}", seconds=120)
    return team.wait("Running")


def test_scaling_from_two_to_three_to_one(team: Team) -> None:
    team.apply(a_job(nodes=2, annotations=FOR_LONG))
    running(team, 2)
    for attempt, nodes in enumerate((3, 1), start=2):
        team.kubectl("scale", "ddpjob/digits", f"--replicas={nodes}")
        status = running(team, nodes)
        assert world(team) == {str(rank): str(nodes) for rank in range(nodes)}, "ranks without a gap"
        assert (status["attempt"], status["nodes"]) == (attempt, nodes)
        assert status.get("restarts", 0) == status.get("disruptions", 0) == 0
    team.finish()
    assert team.wait("Succeeded")["message"] == "1 node finished"


def test_an_autoscaler_finds_the_pods_by_the_scale_s_selector(team: Team) -> None:
    team.apply(a_job(nodes=2, annotations=FOR_LONG))
    running(team, 2)
    scale = team.plant.get(f"/apis/{API_VERSION}/namespaces/{team.namespace}/ddpjobs/digits/scale")
    assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (2, 2)
    assert team.all("pods", scale["status"]["selector"]) == team.pods()


def test_scaling_a_job_that_is_suspended_shows_when_it_is_resumed(team: Team) -> None:
    team.apply(a_job(nodes=2, annotations=FOR_LONG, suspend=True))
    team.wait("Suspended")
    team.scale(3)
    team.change(suspend=False)
    assert running(team, 3)["attempt"] == 1


@pytest.fixture
def fifth(fake: Plant, team: Team) -> Iterator[str]:
    """A fifth node, which nobody has brought up yet; the nodes are free when the test is over."""
    name = "node-4"
    yield name
    team.delete_all("ddpjobs")
    # First: pods of a node that is gone are left to the garbage collection of pods, which comes every 20 s.
    fake.wait("the nodes to be free", team.empty)
    remove_node(fake, name)


def elastic(nodes: int = 5, **bounds: int) -> dict[str, Any]:
    """A job with a node for each pod."""
    bounds = {"shrinkAfterSeconds": 3, "minNodes": 2} | bounds
    return on_whole_nodes(a_job(nodes=nodes, annotations=FOR_LONG, elastic=bounds, restart={"backoffSeconds": 0}))


def test_an_elastic_job_goes_on_with_fewer_nodes_and_grows_when_one_comes(
    fake: Plant, team: Team, fifth: str
) -> None:
    team.apply(elastic())
    status = running(team, 4)
    job = team.job()
    assert job is not None
    assert (status["nodes"], job["spec"]["nodes"]) == (4, 5), "spec is the user's"
    assert world(team) == {str(rank): "4" for rank in range(4)}
    fake.wait("a pod to look out for a place", lambda: [pod for pod in team.pods() if looks_out(pod)])
    add_node(fake, 4)
    status = running(team, 5)
    assert world(team) == {str(rank): "5" for rank in range(5)}
    assert fifth in {pod["spec"]["nodeName"] for pod in team.pods()}
    assert status.get("restarts", 0) == status.get("disruptions", 0) == 0


@pytest.mark.usefixtures("fifth")
def test_an_elastic_job_that_may_not_grow_says_so_and_goes_on(fake: Plant, team: Team) -> None:
    team.apply(elastic())
    running(team, 4)
    scout = fake.wait("a pod to look out for a place", lambda: next(filter(looks_out, team.pods()), None))
    team.limit("pods", 4)
    team.delete("pods", scout["metadata"]["name"], wait=True)
    blocked = team.condition("Blocked")
    status = team.status()
    assert (status["state"], blocked["reason"]) == ("Running", "QuotaExceeded")
    assert status["message"].startswith("4 nodes running; the gang cannot grow: "), status["message"]
    team.limit("pods", 5)
    fake.wait("a pod to look out again", lambda: any(map(looks_out, team.pods())))
    team.condition("Blocked", "False")
    assert team.status()["attempt"] == status["attempt"]


def test_an_elastic_job_that_loses_a_node_for_good_goes_on_without_it(fake: Plant, team: Team, fifth: str) -> None:
    add_node(fake, 4)
    team.apply(elastic())
    running(team, 5)
    remove_node(fake, fifth)
    status = running(team, 4)
    assert status["incidents"][0]["cause"] in {"NodeLost", "PodDeleted"}
    assert (status.get("restarts", 0), status["disruptions"]) == (0, 1)
    assert world(team) == {str(rank): "4" for rank in range(4)}
    add_node(fake, 4)
    assert running(team, 5)["nodes"] == 5


def test_an_elastic_job_waits_where_there_are_too_few_nodes_for_it(fake: Plant, team: Team, fifth: str) -> None:
    team.apply(elastic(6, minNodes=5))
    words = "0/4 nodes are available: 4 Insufficient nvidia.com/gpu"
    fake.wait("the scheduler's words", lambda: words in team.status().get("message", ""))
    assert team.status()["nodes"] == 6
    add_node(fake, 4)
    assert running(team, 5)["nodes"] == 5
    assert fifth in {pod["spec"]["nodeName"] for pod in team.pods() if "nodeName" in pod["spec"]}


@pytest.mark.usefixtures("fifth")
def test_one_that_looks_out_ends_with_the_job(fake: Plant, team: Team) -> None:
    team.apply(elastic())
    running(team, 4)
    fake.wait("a pod to look out for a place", lambda: [pod for pod in team.pods() if looks_out(pod)])
    for rank in range(4):
        team.tell(team.pod(rank), runs_for="0s")
    team.wait("Succeeded")
    fake.wait("it to go", lambda: not [pod for pod in team.pods() if looks_out(pod)])
    assert condition(team.status(), "Complete")["message"] == "4 nodes finished"


def test_a_resize_leaves_pods_their_whole_grace_to_save(fake: Plant, team: Team) -> None:
    job = a_job(nodes=2, annotations=FOR_LONG | {"plant.ddpjob.dev/ignores-sigterm": "true"})
    job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 7
    team.apply(job)
    running(team, 2)
    team.scale(1)
    graces: list[int] = fake.wait("the pods to be told", lambda: told(team, 2))
    assert graces == [7, 7]
    running(team, 1)


def told(team: Team, pods: int) -> list[int]:
    """The grace periods of the pods that are being deleted, once so many are."""
    graces = [pod["metadata"].get("deletionGracePeriodSeconds") for pod in team.pods()]
    given = [grace for grace in graces if grace is not None]
    return given if len(given) >= pods else []


def test_the_template_of_a_running_job_cannot_be_changed_and_the_message_says_how(team: Team) -> None:
    team.apply(a_job(annotations=FOR_LONG))
    team.wait("Running")
    template = {"spec": {"containers": [{"name": "trainer", "image": "another"}]}}
    with pytest.raises(ApiError, match=r"may change only while the job is suspended: set spec\.suspend first"):
        team.change(template=template)


def test_a_job_has_a_process_for_each_unit_of_what_the_administrator_counts_as_gpus(unattended: Plant) -> None:
    team, job = Team(unattended), a_job()
    job["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"example.com/gpu.shared": 2}}
    with team.operator("--gpu-resource=example.com/gpu.shared"):
        team.apply(job)
        pods = unattended.wait("the pods", team.pods)
    assert {(variable(pod, Env.NPROC_PER_NODE), variable(pod, Env.BACKEND)) for pod in pods} == {("2", "nccl")}
    assert team.status()["procsPerNode"] == 2
