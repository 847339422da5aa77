"""The NetworkPolicy that a job may ask for: whom it lets in, and when it comes and goes."""

from typing import Any

import pytest
from ddpjob_operator.api import NetworkPolicy
from ddpjob_operator.engine import NETWORK_POLICY, Manifest, Settings

from .builders import Moment, a_job, plan
from .builders import made as created
from .tables import verdict

closed = a_job(nodes=2, network={"policy": "Enabled"})
open_again = closed.running().asks(suspend=True).decided().gone().decided().asks(network={"policy": "Disabled"})
silent = a_job(nodes=2)
BY_DEFAULT = {"network_policy": NetworkPolicy.ENABLED}
by_default = silent.allows(**BY_DEFAULT)


PLANS: dict[str, tuple[Moment, str]] = {
    "who says nothing gets what the operator is set to": (by_default, "policy service +1.0 +1.1"),
    "nobody gets one where that is none": (silent, "service +1.0 +1.1"),
    "who says no gets none": (
        a_job(nodes=2, network={"policy": "Disabled"}).allows(**BY_DEFAULT),
        "service +1.0 +1.1",
    ),
    "it is there before the pods are": (closed, "policy service +1.0 +1.1"),
    "it is made once": (closed.running(), ""),
    "one that was deleted is recreated": (
        closed.running().has(NETWORK_POLICY),
        "policy",
    ),
    "it outlives a restart": (closed.running().fails(1).decided().gone().after(1), "+2.0 +2.1"),
    "it goes when it is not wanted any more": (open_again.decided().asks(suspend=False), "-policy +2.0 +2.1"),
    "another setting changes no job that runs": (silent.running().allows(**BY_DEFAULT), ""),
    "nor one that restarts": (silent.running().allows(**BY_DEFAULT).fails(1).decided().gone().after(1), "+2.0 +2.1"),
    "nor one that is resumed": (silent.running().suspended().allows(**BY_DEFAULT).asks(suspend=False), "+2.0 +2.1"),
    "nor, the other way round, one that has one": (
        by_default.running().suspended().allows(network_policy=NetworkPolicy.DISABLED).asks(suspend=False),
        "+2.0 +2.1",
    ),
}


@pytest.mark.parametrize(("moment", "expected"), PLANS.values(), ids=PLANS)
def test_when_the_policy_comes_and_goes(moment: Moment, expected: str) -> None:
    assert plan(moment) == expected


def test_a_policy_that_was_deleted_is_recreated_and_said_to_be_unless_the_gang_runs_all_the_same() -> None:
    starts, runs = (one.has(NETWORK_POLICY) for one in (closed.created(), closed.running()))
    assert verdict(starts) == ("policy", "Starting", "Updating the NetworkPolicy")
    assert verdict(runs) == ("policy", "Running", "2 nodes running")
    assert runs.decision.status is None


def test_a_policy_that_names_another_port_is_replaced_before_the_job_goes_on() -> None:
    """While the job is suspended both may change."""
    moment = closed.running().suspended().asks(suspend=False, network={"policy": "Enabled", "statusPort": 12345})
    assert (plan(moment), plan(moment.decided())) == ("-policy", "policy +2.0 +2.1")
    assert made(moment.decided(), operator_namespace="system")["spec"]["ingress"][1]["ports"][0]["port"] == 12345


def test_it_is_not_replaced_while_a_pod_lives() -> None:
    ending = (
        closed.running()
        .asks(suspend=True)
        .decided()
        .asks(suspend=False, network={"policy": "Enabled", "statusPort": 12345})
    )
    assert verdict(ending) == ("", "Suspending", "Waiting for 2 pods of the previous attempt to stop")
    assert plan(ending.decided().gone()) == "-policy"


def test_pods_keep_their_status_port_as_long_as_the_policy_that_lets_in_who_asks_there() -> None:
    """That the job was suspended meanwhile is overlooked where no operator runs."""
    resized = closed.running().asks(nodes=3, network={"policy": "Enabled", "statusPort": 12345}).decided()
    assert (resized.status.nodes, resized.status.network.status_port) == (3, 29501)
    later = resized.gone().settled().suspended().asks(suspend=False)
    assert (plan(later), later.decided(2).status.network.status_port) == ("-policy", 12345)


def test_monitoring_reads_what_the_operator_reads_and_nothing_else() -> None:
    _ours, reads = made(closed, operator_namespace="system", monitoring_namespace="prometheus")["spec"]["ingress"]
    namespaces = [one["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] for one in reads["from"]]
    assert namespaces == ["system", "prometheus"]
    assert reads["ports"] == [{"port": 29501, "protocol": "TCP"}]
    assert len(made(closed)["spec"]["ingress"]) == 1, "without either, nobody reads"


def made(moment: Moment, **settings: Any) -> Manifest:
    decision = moment.but(settings=Settings(**settings)).decision
    return created(decision, NETWORK_POLICY)[0]


def test_only_the_jobs_own_pods_get_in() -> None:
    policy = made(closed)
    ours = {"podSelector": {"matchLabels": {"ddpjob.dev/job-uid": "uid-1"}}}
    assert policy["spec"] == {**ours, "policyTypes": ["Ingress"], "ingress": [{"from": [ours]}]}


def test_the_operator_gets_to_the_status_port_and_no_further() -> None:
    operator = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ddpjob-system"}},
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "ddpjob-operator"}},
    }
    ports = [{"port": 29501, "protocol": "TCP"}]
    allowed = made(closed, operator_namespace="ddpjob-system")["spec"]["ingress"][1:]
    assert allowed == [{"from": [operator], "ports": ports}]


def test_a_job_made_anew_under_the_same_name_does_not_meet_the_policy_of_the_former() -> None:
    names = {made(closed.called(uid=uid))["metadata"]["name"] for uid in ("uid-1", "uid-2")}
    assert len(names) == 2


def test_the_policys_name_is_one_for_the_longest_job_too() -> None:
    assert len(made(closed.called(name="a" * 52))["metadata"]["name"]) <= 63
