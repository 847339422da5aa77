"""What befalls an operator from outside: it goes on, or says in one line why it ends."""

import resource
import socket
from contextlib import ExitStack
from typing import Any

import pytest
from ddpjob_operator.api import DDPJob
from ddpjob_operator.api.contract import API_VERSION, KIND, Label
from ddpjob_operator.engine import pod_name

from tests.plant import Plant, start_api
from tests.support.crd import install_crd
from tests.support.files import many_files
from tests.support.jobs import Team, a_job, created
from tests.support.operators import an_operator


def test_without_the_crd_any_more_the_operator_says_so_in_one_line_and_ends() -> None:
    with start_api() as plant:
        install_crd(plant)
        with an_operator(plant, "--no-leader-elect") as operator:
            plant.kubectl("delete", "crd", "ddpjobs.ddpjob.dev", "--wait=false")
            assert operator.ended() == 1
            assert operator.log.splitlines()[-1].startswith("ddpjob-operator: The task 'watching' has ended: 404")
            assert "Traceback" not in operator.log


@pytest.mark.parametrize("flag", ["--port", "--probe-port"])
def test_a_port_that_is_taken_is_named(api: Plant, flag: str) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with an_operator(api, "--no-leader-elect", f"{flag}={port}", until_ready=False) as operator:
            assert operator.ended() == 1
            assert operator.log == f"ddpjob-operator: Cannot listen on {flag} {port}: Address already in use\n"


def test_more_silent_connections_than_it_may_open_files_keep_nobody_out(api: Plant) -> None:
    team = Team(api)
    with many_files(), team.operator() as operator, ExitStack() as stack:
        resource.prlimit(operator.program.process.pid, resource.RLIMIT_NOFILE, (1024, 1024))
        assert operator.ports is not None
        for port in operator.ports:
            for _ in range(1100):
                stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
        for probe in (True, False):
            assert [operator.get("/readyz", probe=probe)[0] for _ in range(5)] == [200] * 5
        team.apply(a_job())
        api.wait("the pods", lambda: created(team))


def test_a_pod_whose_labels_were_changed_is_replaced(api: Plant) -> None:
    team = Team(api)
    with team.operator():
        team.apply(a_job())
        api.wait("the pods", lambda: created(team))
        changed(team, team.pods()[0]["metadata"]["name"], labels={Label.NODE: None})
        team.until("{.status.attempt}=2")
        api.wait("the second attempt", lambda: created(team))
        ranks = [pod["metadata"]["labels"].get(Label.NODE) for pod in team.pods() if incarnation(pod) == "2"]
        assert sorted(ranks) == ["0", "1"]


def test_a_pod_whose_owner_reference_was_removed_is_nobody_s_it_is_replaced_and_left_alone(api: Plant) -> None:
    team = Team(api)
    with team.operator():
        team.apply(a_job())
        api.wait("the pods", lambda: created(team))
        name = team.pod(1)
        released = changed(team, name, ownerReferences=None)
        team.until("{.status.attempt}=2")
        api.wait("the second attempt", lambda: len([pod for pod in team.pods() if incarnation(pod) == "2"]) == 2)
        assert team.status()["incidents"][0]["cause"] == "PodDeleted"
        team.change(ttlSecondsAfterFinished=0, activeDeadlineSeconds=1)
        api.wait("the job to go", lambda: team.job() is None)
        assert api.get(team.path("pods", name)) == released


def test_an_own_pod_without_its_labels_blocks_the_job_and_is_not_asked_for_again_and_again(api: Plant) -> None:
    team = Team(api)
    with team.operator() as operator:
        team.apply(a_job(suspend=True))
        team.wait("Suspended")
        job = team.job()
        assert job is not None
        name = pod_name(DDPJob.from_dict(job), 1, 1)
        owner = {"apiVersion": API_VERSION, "kind": KIND, "name": "digits", "uid": job["metadata"]["uid"]}
        metadata = {"name": name, "ownerReferences": [{**owner, "controller": True}]}
        containers = [{"name": "other", "image": "other"}]
        bare = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}}
        team.create(bare)
        team.change(suspend=False)
        said = team.condition("Blocked")
        assert (said["reason"], said["message"]) == (
            "PodTaken",
            f"Pod {name} is the job's own, but its labels were changed: delete it",
        )
        asked = operator.metric('ddpjob_api_requests_total{code="409",method="POST",resource="pods"}')
        assert asked <= 10, "1, 2, 4 s and so on lie between two attempts"
        team.delete("pods", name, grace=0)
        api.wait("the pods", lambda: created(team))


def changed(team: Team, pod: str, **metadata: Any) -> dict[str, Any]:
    """A pod, after somebody has changed its metadata."""
    return team.plant.api.patch(team.path("pods", pod), {"metadata": metadata})


def incarnation(pod: dict[str, Any]) -> str:
    """Of a job's pod."""
    return str(pod["metadata"]["labels"][Label.INCARNATION])
