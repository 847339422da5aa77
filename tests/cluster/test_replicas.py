"""Operators come and go, die and freeze; jobs notice nothing."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from ddpjob_operator.api.contract import Label

from tests.plant import Plant, start_api
from tests.support.crd import install_crd
from tests.support.jobs import Team, a_job, created, writes
from tests.support.operators import Operator, an_operator
from tests.support.waiting import patience


@pytest.fixture
def team(api: Plant) -> Team:
    """A namespace of its own, with no operator yet."""
    return Team(api)


@contextmanager
def a_replica(team: Team, *flags: str) -> Iterator[Operator]:
    """One of several operators that look after the team's namespace."""
    lease = (f"--lease-namespace={team.namespace}", "--lease-name=operator")
    with an_operator(team.plant, f"--namespace={team.namespace}", *lease, *flags, forked=True) as operator:
        yield operator


def places(team: Team) -> Counter[tuple[str, str, str]]:
    """The live pods: job, rank and incarnation, and how many there are of each."""
    names = (Label.JOB_NAME, Label.NODE, Label.INCARNATION)
    pods = team.plant.get(f"/api/v1/namespaces/{team.namespace}/pods")["items"]
    labels = [pod["metadata"]["labels"] for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    return Counter((one[names[0]], one[names[1]], one[names[2]]) for one in labels)


def holder(team: Team) -> str:
    """Who holds the lease."""
    lease = team.plant.get(f"/apis/coordination.k8s.io/v1/namespaces/{team.namespace}/leases/operator")
    return str(lease["spec"]["holderIdentity"]) if lease else ""


KILLED = pytest.mark.full("more moments of the same kill: tests/faults has one at each write of such a life")


@pytest.mark.parametrize("pods_first", [pytest.param(1, marks=KILLED), 6, pytest.param(11, marks=KILLED)])
def test_an_operator_killed_while_it_creates_pods_leaves_no_gap_and_no_second_pod(
    pods_first: int, team: Team
) -> None:
    with team.operator() as operator:
        team.apply(a_job(nodes=12))
        team.plant.wait("the first pods", lambda: len(team.pods()) >= pods_first)
        operator.kill()
    with team.operator():
        team.plant.wait("all pods", lambda: created(team))
        assert places(team) == {("digits", str(rank), "1"): 1 for rank in range(12)}
        assert team.status()["attempt"] == 1


def test_a_new_operator_changes_nothing_about_jobs_that_are_under_way(team: Team) -> None:
    for security in ("restricted", "none"):
        with a_replica(team, f"--pod-security={security}") as operator:
            if security == "restricted":
                team.apply(a_job())
            operator.wait_for("elected")
            team.plant.wait("the pods", lambda: created(team))
            before = {pod["metadata"]["uid"]: pod["metadata"]["resourceVersion"] for pod in team.pods()}
            team.plant.wait("all rounds", lambda: operator.metric("ddpjob_workqueue_depth") == 0)
            assert operator.stop() == 0
        after = {pod["metadata"]["uid"]: pod["metadata"]["resourceVersion"] for pod in team.pods()}
        assert before == after
    assert writes(team.plant, team.namespace)["create pods"] == 2
    assert team.status()["attempt"] == 1


def test_told_to_stop_the_operator_finishes_its_work_and_gives_the_lease_back(team: Team) -> None:
    with a_replica(team) as operator:
        operator.wait_for("elected")
        team.apply(*(a_job(f"digits-{number}", nodes=8) for number in range(6)))
        team.plant.wait("the first pods", lambda: len(places(team)) > 3)
        begun = time.monotonic()
        assert operator.stop() == 0
        print(f"stopped within {time.monotonic() - begun:.2f} s")
        assert time.monotonic() - begun < patience(15), "5 s are promised"
        assert "stopped before everything was finished" not in operator.log
        assert holder(team) == ""
    for number in range(6):
        ranks = [rank for job, rank, _ in places(team) if job == f"digits-{number}"]
        assert len(ranks) in {0, 8}, "a round that is begun is ended"


def test_another_replica_takes_over_from_one_that_was_killed(team: Team) -> None:
    with a_replica(team) as first:
        first.wait_for("elected")
        with a_replica(team) as second:
            assert first.metric("ddpjob_leader") == 1
            assert second.metric("ddpjob_leader") == 0
            team.apply(*(a_job(f"digits-{number}", nodes=8) for number in range(8)))
            team.plant.wait("the first pods", lambda: places(team))
            first.kill()
            begun = time.monotonic()
            second.wait_for("elected")
            print(f"failover after {time.monotonic() - begun:.1f} s")
            assert time.monotonic() - begun < patience(30), "10 s are promised"
            for number in range(8):
                name = f"digits-{number}"
                team.plant.wait(f"the pods of {name}", lambda name=name: created(team, name))
            assert places(team) == {(f"digits-{job}", str(rank), "1"): 1 for job in range(8) for rank in range(8)}


def test_a_leader_that_was_frozen_past_its_lease_and_woken_does_nothing_more(team: Team) -> None:
    with a_replica(team) as first:
        first.wait_for("elected")
        with a_replica(team) as second:
            team.apply(*(a_job(f"digits-{number}", nodes=8) for number in range(8)))
            team.plant.wait("the first pods", lambda: len(places(team)) > 20)
            steps = f'ddpjob_steps_total{{namespace="{team.namespace}"}} 0.0'
            team.plant.wait("a standby's series at 0", lambda: steps in second.get("/metrics")[1])
            assert "ddpjob_jobs{" not in second.get("/metrics")[1], "a sum counts no job twice"
            first.freeze()
            second.wait_for("elected")
            for number in range(8):
                name = f"digits-{number}"
                team.plant.wait(f"the pods of {name}", lambda name=name: created(team, name))
                team.delete("pods", team.pods(name)[0]["metadata"]["name"])
                team.until("{.status.attempt}=2", name)
            team.plant.wait("the second attempts", lambda: all(created(team, f"digits-{job}") for job in range(8)))
            first.wake()
            assert first.ended() == 1
            assert "leadership is lost" in first.log
            assert places(team) == {(f"digits-{job}", str(rank), "2"): 1 for job in range(8) for rank in range(8)}
            assert {team.status(f"digits-{job}")["attempt"] for job in range(8)} == {2}
            deleted = f'ddpjob_disruptions_total{{cause="PodDeleted",namespace="{team.namespace}"}}'
            assert second.metric(deleted) == 8


def test_without_the_crd_the_operator_waits_and_says_so() -> None:
    with start_api() as plant, an_operator(plant, "--no-leader-elect", until_ready=False) as operator:
        wanting = "waiting for the type DDPJob: apply deploy/crd.yaml, or install the chart"
        operator.wait_for(wanting)
        assert operator.get("/readyz") == (503, f"{wanting}\n")
        assert operator.get("/healthz") == (200, "ok\n")
        install_crd(plant)
        plant.wait("the operator", operator.ready)
        team = Team(plant)
        team.apply(a_job())
        plant.wait("the pods", lambda: created(team))


def test_without_rights_the_operator_says_which_and_ends(team: Team) -> None:
    nobody = team.plant.kubeconfig_for("nobody")
    with team.operator(kubeconfig=nobody, until_ready=False) as operator:
        assert operator.ended() == 1
        last = operator.log.splitlines()[-1]
        assert last.startswith("ddpjob-operator: The operator lacks rights that it needs: ")
        assert f"list ddpjobs.ddpjob.dev in namespace {team.namespace}" in last
        assert "Traceback" not in operator.log


def test_without_an_api_server_the_operator_waits_and_says_so(team: Team) -> None:
    config = team.plant.kubeconfig.read_text().replace(team.plant.url, "https://127.0.0.1:9")
    nowhere = team.plant.directory / "nowhere.yaml"
    nowhere.write_text(config)
    with an_operator(team.plant, "--no-leader-elect", kubeconfig=nowhere, until_ready=False) as operator:
        wanting = "waiting for the API server https://127.0.0.1:9"
        operator.wait_for(wanting)
        code, said = operator.get("/readyz")
        assert (code, said.startswith(wanting)) == (503, True)
        assert "Traceback" not in operator.log


def test_metrics_and_log_lines_name_what_they_are_about(team: Team) -> None:
    with team.operator("--log-format=json") as operator:
        team.apply(a_job())
        team.plant.wait("the pods", lambda: created(team))
        team.plant.wait("the log line", lambda: '"job": "digits"' in operator.log)
        line = next(line for line in operator.log.splitlines() if '"job": "digits"' in line)
        uid = (team.job() or {})["metadata"]["uid"]
        assert f'"namespace": "{team.namespace}"' in line
        assert f'"uid": "{uid}"' in line
        assert operator.metric(f'ddpjob_jobs{{namespace="{team.namespace}",state="Starting"}}') == 1
        assert operator.metric('ddpjob_api_requests_total{code="201",method="POST",resource="pods"}') == 2
        assert operator.metric('ddpjob_reconciles_total{result="bug"}') == 0
