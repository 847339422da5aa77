"""Ranks that follow placement: pods are told where they are, and whoever fails is named by both of its numbers."""

from typing import Any

import pytest
from ddpjob_operator.engine import CreatePod, Manifest, Needs
from ddpjob_operator.engine.decide import decide
from ddpjob_operator.engine.manifests.names import present_pod_name

from tests.support.variables import variables_of

from .builders import Moment, a_job, plan


def by(*command: str) -> dict[str, Any]:
    """A template whose trainer has this command."""
    trainer: dict[str, Any] = {"name": "trainer", "image": "trainer:1"}
    return {"spec": {"containers": [trainer | ({"command": [*command]} if command else {})]}}


RACK = {"topology": {"preferred": "example.com/rack"}}
SUPERVISED = {"template": by("ddpjob-train"), "scheduling": RACK}

made = a_job(nodes=3, **SUPERVISED).created()
running = made.running()
apart = made.placed(0, 1, 2).nodes_are_in(rank0="a", rank1="b", rank2="a").decided().running()
ordered = apart.hears(order=[0, 2, 1])
in_place = a_job(nodes=3, restart={"mode": "InPlace"}, **SUPERVISED).running().hears(order=[0, 2, 1])
two_of_each = a_job(nodes=3, procsPerNode=2, **SUPERVISED).running()

TOLD: dict[str, tuple[Moment, str]] = {
    "a pod without a node is told nothing": (made.nodes_are_in(rank0="a"), ""),
    "one that has a node is told where it is": (made.placed(0).nodes_are_in(rank0="a"), "1.0@a"),
    "and once": (made.placed(0).nodes_are_in(rank0="a").decided(), ""),
    "each that has one": (made.placed(0, 2).nodes_are_in(rank0="a", rank2="b"), "1.0@a 1.2@b"),
    "that its node is in none is worth knowing": (made.placed(1).nodes_are_in(rank1=""), "1.1@"),
    "what cannot be found out now is left out": (made.placed(0, 1).nodes_are_in(rank1="b"), "1.1@b"),
    "one that runs already can use it at the next attempt": (running.nodes_are_in(rank0="a"), "1.0@a"),
    "who refuses it is left alone": (running.nodes_are_in(rank0="a").refused("Forbidden", "no"), ""),
    "for a while": (running.nodes_are_in(rank0="a").refused("Forbidden", "no").after(5), "1.0@a"),
    "a pod that is taken away has no use for it": (
        running.deleted_by_hand(1).nodes_are_in(rank1="a"),
        "-1.0/full -1.2/full",
    ),
}


@pytest.mark.parametrize(("moment", "expected"), TOLD.values(), ids=TOLD)
def test_a_pod_is_told_where_it_is(moment: Moment, expected: str) -> None:
    assert plan(moment) == expected


def test_a_refusal_is_tried_again_when_its_time_has_come() -> None:
    refused = running.nodes_are_in(rank0="a").refused("Forbidden", "no", retry_in=5)
    assert refused.decision.wake_at == refused.snapshot.refusal.retry_at  # type: ignore[union-attr]


def asked(moment: Moment) -> frozenset[str]:
    """The nodes whose domains a decision needs."""
    return decide(moment.snapshot).needs.domains


KEPT = {"template": by("python", "train.py"), "scheduling": RACK}
ALONE = {"template": by("ddpjob-supervise", "train.py")}

NOBODY = {
    "no placement is asked for": a_job(nodes=3, **ALONE).created().placed(0, 1, 2),
    "no supervisor is in front": a_job(nodes=3, **KEPT).created().placed(0, 1, 2),
    "no pod has a node": made,
    "all are told": apart,
    "the only one that has is on its way out": made.placed(1).deleted_by_hand(1),
    "or has ended": made.placed(1).fails(1),
    "all go": running.asks(suspend=True),
    "the job has finished": made.placed(0, 1, 2).runs(0, 1, 2).decided().succeeds(0, 1, 2).settled(),
}


@pytest.mark.parametrize("moment", NOBODY.values(), ids=NOBODY)
def test_nobody_asks_about_nodes_if(moment: Moment) -> None:
    assert asked(moment) == frozenset()


def test_only_the_nodes_of_pods_that_do_not_know_it_yet_are_asked_about() -> None:
    assert asked(made.placed(1, 2)) == {"node-1", "node-2"}
    assert asked(made.placed(1, 2).nodes_are_in(rank1="b").decided()) == {"node-2"}


def test_of_a_large_gang_some_are_asked_about_at_a_time() -> None:
    large = a_job(nodes=100, **SUPERVISED).created().placed(*range(100))
    assert len(asked(large)) == 64


def test_questions_about_domains_are_put_together() -> None:
    assert (Needs(domains=frozenset({"a"})) | Needs(domains=frozenset({"b"}))).domains == {"a", "b"}


def trainer_of(job: Moment) -> tuple[Manifest, Manifest]:
    """The spec of the last pod, and its trainer."""
    *_, pod = (action.build() for action in job.decision.actions if isinstance(action, CreatePod))
    return pod["spec"], pod["spec"]["containers"][0]


def test_a_pod_whose_ranks_may_follow_placement_sees_the_annotation_in_a_file() -> None:
    pod, trainer = trainer_of(a_job(nodes=2, **SUPERVISED))
    path = "metadata.annotations['ddpjob.dev/topology-domain']"
    items = [{"path": "topology-domain", "fieldRef": {"fieldPath": path}}]
    assert {"name": "ddpjob-annotations", "downwardAPI": {"items": items}} in pod["volumes"]
    mount = {"name": "ddpjob-annotations", "mountPath": "/var/run/ddpjob.dev", "readOnly": True}
    assert mount in trainer["volumeMounts"]
    assert variables_of(trainer)["DDPJOB_TOPOLOGY_DOMAIN_FILE"] == "/var/run/ddpjob.dev/topology-domain"


@pytest.mark.parametrize("spec", [KEPT, ALONE], ids=["no supervisor is in front", "no placement is asked for"])
def test_any_other_pod_is_as_it_was(spec: dict[str, Any]) -> None:
    pod, trainer = trainer_of(a_job(nodes=2, **spec))
    assert "topology" not in str([pod["volumes"], trainer["volumeMounts"], trainer["env"]])


IN_PLACE = {"attempt": 1, "node": 2, "rank": 1, "cause": "Application", "message": "killed by SIGKILL"}

BLAMED: dict[str, Moment] = {
    "by its supervisor, which started again": ordered.hears(attempt=2, order=[0, 2, 1], incidents=[IN_PLACE]),
    "by its own report": ordered.reports(2, rank=1, node=2, cause="Application", message="no data"),
    "by its own report alone": apart.reports(2, rank=1, node=2, cause="Application", message="no data"),
    "by another's report": ordered.reports(
        1, code=204, rank=2, node=1, at=-10, cause="PeerLost", incident={**IN_PLACE, "exitCode": 137}
    ),
    "by its pod alone": ordered.fails(2, code=137, reason="OOMKilled"),
    "by its absence": ordered.vanishes(2),
}


@pytest.mark.parametrize("moment", BLAMED.values(), ids=BLAMED)
def test_who_fails_is_blamed_by_its_pod_and_named_by_both_numbers(moment: Moment) -> None:
    status = moment.decided().status
    failure = status.last_incident
    assert failure is not None
    assert (failure.node, failure.rank) == (2, 1)
    assert failure.pod == present_pod_name(moment.snapshot.job, 2)
    assert status.message.startswith("Rank 1 (node 2) failed")


def test_a_node_that_was_lost_is_avoided_whatever_rank_it_had() -> None:
    lost = ordered.disrupted(2, "DeletionByTaintManager").node_has("node-2", "is not ready").decided()
    assert [one.node_name for one in lost.status.avoided_node_names] == ["node-2"]
    assert lost.status.message.startswith("Rank 1 (node 2) failed: NodeLost")


UNKNOWN: dict[str, Moment] = {
    "the order is another attempt's": in_place.vanishes(1).decided(),
    "the order is none": apart.hears(order=[0, 2, 2]),
    "it has gaps": apart.hears(order=[0, 3, 1]),
    "it is no list": apart.hears(order="021"),
    "its numbers are none": apart.hears(order=[0, None, 1]),
    "a node has several": two_of_each.hears(order=[0, 2, 1]),
}


@pytest.mark.parametrize("moment", UNKNOWN.values(), ids=UNKNOWN)
def test_a_pod_that_says_nothing_is_named_by_its_node_if(moment: Moment) -> None:
    failure = moment.fails(2, code=137, reason="OOMKilled").decided().status.last_incident
    assert failure is not None
    assert (failure.node, failure.rank, failure.who) == (2, None, "node 2")


def test_where_nodes_stand_by_number_in_spite_of_placement_a_ranks_number_is_its_nodes() -> None:
    failure = apart.hears().fails(2, code=137, reason="OOMKilled").decided().status.last_incident
    assert failure is not None
    assert (failure.node, failure.rank, failure.who) == (2, 2, "rank 2")


def test_a_report_about_another_node_is_no_proof_of_where_a_rank_is() -> None:
    failure = ordered.hears(order=[0, 2, 2]).reports(2, rank=1, node=1, message="no").decided().status.last_incident
    assert failure is not None
    assert (failure.node, failure.rank) == (2, None)


def test_a_stall_names_the_machine_of_the_node_that_is_to_blame() -> None:
    stall = {"node": 2, "rank": 1, "message": "rank 1 (node 2) did not enter the collective: it is stopped"}
    said = ordered.hears("Stalled", order=[0, 2, 1], stall=stall).decided().status.message
    assert said == f"Training has stalled: {stall['message']} (Kubernetes node node-2)"


def test_nothing_is_left_to_do_once_all_are_told() -> None:
    assert plan(apart) == ""
