"""The operator in its pods: killed, taken over from, rolled; and the rights that it uses."""

import json
import time
from collections import Counter
from typing import Any

import pytest
from ddpjob_operator.api import DDPJob
from ddpjob_operator.api.contract import Label
from ddpjob_operator.api.ownership import name_beside
from ddpjob_operator.engine.manifests.names import pod_name

from tests.plant import Plant, audit
from tests.plant.machines import Machines
from tests.support.helm import NAMESPACE, RELEASE
from tests.support.jobs import Team
from tests.support.waiting import patience

from .faults import evict
from .processes import operators
from .release import install, pods_of
from .work import LONG, a_script, change

SLEEP = ["sleep", "infinity"]
USER = f"system:serviceaccount:{NAMESPACE}:{RELEASE}"


def holder(plant: Plant) -> str:
    """Who leads: the name of its pod, and what tells its process from those before it there."""
    lease = plant.get(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{RELEASE}")
    return str(lease["spec"]["holderIdentity"])


def leader(plant: Plant) -> str:
    """Name of the pod that leads."""
    return holder(plant).split("_")[0]


def places(team: Team, name: str) -> Counter[tuple[str, str]]:
    """Ranks and incarnations of the job's pods."""
    labels = (pod["metadata"]["labels"] for pod in team.pods(name))
    return Counter((one[Label.NODE], one[Label.INCARNATION]) for one in labels)


@pytest.mark.full("tests/cluster/test_replicas.py; tests/faults")
def test_the_leader_killed_while_it_creates_pods_leaves_no_gap_and_no_second_pod(host: Machines, team: Team) -> None:
    processes = operators(host)
    team.apply(a_script("wide", SLEEP, nodes=10))
    host.wait("the first pods", lambda: team.pods("wide"))
    processes[leader(host)].kill()
    team.wait("Running", "wide", LONG)
    assert places(team, "wide") == {(str(rank), "1"): 1 for rank in range(10)}
    assert team.status("wide")["attempt"] == 1
    team.kubectl("delete", "ddpjob", "wide")


@pytest.mark.full("tests/cluster/test_replicas.py")
def test_the_leader_killed_under_load_is_succeeded_within_seconds(host: Machines, team: Team) -> None:
    team.apply(*(a_script(f"short-{number}", ["sleep", "1"], nodes=2) for number in range(12)))
    host.wait("the first to run", lambda: any(team.status(f"short-{number}").get("attempt") for number in range(12)))
    first = holder(host)
    operators(host)[leader(host)].kill()
    begun = time.monotonic()
    # Maybe in the same pod, where the other one's still waits to be started again.
    host.wait("another leader", lambda: holder(host) != first)
    print(f"failover after {time.monotonic() - begun:.1f} s")
    assert time.monotonic() - begun < patience(20), "10 s are promised; what has just been applied is busy as well"
    for number in range(12):
        status = team.wait("Succeeded", f"short-{number}", LONG)
        assert (status["attempt"], status["restarts"]) == (1, 0)


@pytest.mark.full("test_in_place.py: all operators killed while ranks restart")
def test_all_operators_killed_while_a_job_runs_change_nothing_about_it(host: Machines, team: Team) -> None:
    team.apply(a_script("steady", SLEEP, nodes=2))
    team.wait("Running", "steady", LONG)
    before = {pod["metadata"]["uid"] for pod in team.pods("steady")}
    for process in operators(host).values():
        process.kill()
    host.wait("them to come back", lambda: len(operators(host)) == 2)
    team.kubectl("delete", "pod", team.pods("steady")[0]["metadata"]["name"], "--grace-period=1", "--wait=false")
    team.until("{.status.attempt}=2", "steady", LONG)
    status = team.wait("Running", "steady", LONG)
    assert (status["restarts"], status["disruptions"]) == (0, 1)
    # A pod that has ended may be listed a moment longer than it takes the next one to run.
    host.wait("the old pods to go", lambda: not before & {pod["metadata"]["uid"] for pod in team.pods("steady")})


@pytest.mark.full("tests/cluster/test_replicas.py; tests/chart/test_release.py")
def test_a_roll_with_another_default_leaves_running_jobs_as_they_are(real: Plant, team: Team) -> None:
    team.apply(a_script("steady", SLEEP, nodes=2))
    team.wait("Running", "steady", LONG)
    before = {pod["metadata"]["uid"] for pod in team.pods("steady")}
    install(real, "podSecurity=none", "log.level=debug")
    try:
        real.wait("the new leader", lambda: leader(real) in pods_of(real))
        team.apply(a_script("after", ["true"]))
        team.wait("Succeeded", "after", LONG)
        status = team.status("steady")
        assert (status["state"], status["attempt"], status["podSecurity"]) == ("Running", 1, "Restricted")
        assert {pod["metadata"]["uid"] for pod in team.pods("steady")} == before
        assert team.status("after")["podSecurity"] == "None", "the new default is there"
    finally:
        install(real)


BUDGETS = "poddisruptionbudgets"
NO_PODS = {"maxUnavailable": 1, "selector": {"matchLabels": {"some": "others"}}}
ELSEWHERE = {"scheduling.k8s.io", "scheduling.volcano.sh", "kueue.x-k8s.io"}


def test_the_operator_uses_all_rights_that_the_chart_grants_and_needs_no_other(host: Machines, team: Team) -> None:
    _use_every_right(host, team)
    names = (
        f"clusterroles/{RELEASE}",
        f"clusterroles/{RELEASE}-nodes",
        f"namespaces/{NAMESPACE}/roles/{RELEASE}-lease",
        f"namespaces/{NAMESPACE}/roles/{RELEASE}-defaults",
    )
    roles = [host.get(f"/apis/rbac.authorization.k8s.io/v1/{name}") for name in names]
    granted = {
        (group, resource, verb)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    # Asked for by no request: admission checks it, since pods have blockOwnerDeletion.
    granted.remove(("ddpjob.dev", "ddpjobs/finalizers", "update"))
    # These nodes' API server does not serve them; tests/scheduling has some that do.
    granted = {right for right in granted if right[0] not in ELSEWHERE}
    # Only a gang that is about to give way to another one asks what autoscalers do.
    granted.remove(("", "events", "list"))
    # Only defaults for chosen namespaces ask for a namespace's labels: tests/cluster/test_defaults.py has some.
    granted.remove(("", "namespaces", "get"))
    assert _used(host) == granted


def _use_every_right(plant: Machines, team: Team) -> None:
    """What other tests may not lead to: names that are taken, what is removed or stopped, an event that repeats."""
    team.apply(a_script("rights", SLEEP, suspend=True, network={"policy": "Enabled"}))
    team.wait("Suspended", "rights", LONG)
    job = DDPJob.from_dict(team.job("rights") or {})
    _take(team, "NetworkPolicy", name_beside(job.ref), {"podSelector": {}}, "networking.k8s.io/v1")
    _take(team, "Service", name_beside(job.ref), {"ports": [{"port": 80}]})
    _take(team, "Pod", pod_name(job, 0, 1), {"containers": [{"name": "other", "image": "other"}]})
    _patch(team, '{"spec": {"suspend": false}}')
    for kind in ("NetworkPolicy", "Service", "Pod"):
        plant.wait(f"a {kind} to be in the way", lambda kind=kind: f"{kind} " in team.status("rights")["message"])
        team.kubectl("delete", kind, "--all", "--force")
    team.wait("Running", "rights", LONG)
    for process in operators(plant).values():
        process.kill()
    team.kubectl("delete", "pod", "--all", "--force")  # Nobody sees it go: it is missed later, and looked for.
    team.until("{.status.attempt}=2", "rights", LONG)
    team.wait("Running", "rights", LONG)
    _patch(team, '{"spec": {"suspend": true}}')
    team.wait("Suspended", "rights", LONG)
    _patch(team, '{"spec": {"suspend": false, "network": {"policy": "Disabled"}}}')
    team.wait("Running", "rights", LONG)
    plant.wait("an event to repeat", lambda: team.events("rights")["Running"] > 1)
    _take(team, "PodDisruptionBudget", name_beside(job.ref), NO_PODS, "policy/v1")
    _patch(team, '{"spec": {"disruption": "AfterCheckpoint"}}')
    plant.wait("it to be in the way", lambda: "PodDisruptionBudget " in team.status("rights")["message"])
    team.kubectl("delete", "poddisruptionbudgets", "--all")
    plant.wait("the job's own", lambda: any("ownerReferences" in one["metadata"] for one in team.all(BUDGETS)))
    _patch(team, '{"spec": {"disruption": "Allow"}}')
    plant.wait("it to be gone", lambda: not team.all(BUDGETS))
    team.apply(a_script("late", SLEEP, pod={"terminationGracePeriodSeconds": 1}))
    team.wait("Running", "late", LONG)
    evict(team, team.pods("late")[0]["metadata"]["name"])  # It wants to know what is wrong with the node.
    team.until("{.status.attempt}=2", "late", LONG)
    team.wait("Running", "late", LONG)
    change(team, "late", activeDeadlineSeconds=1, ttlSecondsAfterFinished=0)
    plant.wait("a job to be removed after its time", lambda: team.job("late") is None)


def _take(team: Team, kind: str, name: str, spec: dict[str, Any], version: str = "v1") -> None:
    """Makes something foreign under a name that the job will want."""
    manifest = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}
    team.kubectl("create", "-f", "-", input=json.dumps(manifest))


def _patch(team: Team, patch: str) -> None:
    team.kubectl("patch", "ddpjob", "rights", "--type=merge", "--patch", patch)


def _used(plant: Machines) -> set[tuple[str, str, str]]:
    """API group, resource and verb of all of the operator's requests; none of them was forbidden."""
    used = set()
    for event in audit.requests(plant, since=plant.begun):
        target = event["objectRef"]
        if event["user"]["username"] != USER or target["resource"].startswith("selfsubject"):
            continue
        said = event["responseStatus"].get("message", "")
        assert f'User "{USER}" cannot' not in said, said  # Quotas and admission forbid things too.
        used.add((target.get("apiGroup", ""), audit.kind(event), event["verb"]))
    return used
