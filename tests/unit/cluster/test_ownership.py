"""What counts as a job's own: all that is made for it, and nothing that lacks a single mark of that."""

from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
import pytest
from ddpjob_operator.api import DDPJob
from ddpjob_operator.api.contract import Label
from ddpjob_operator.cluster.kube.objects import KueueWorkloadObject, Object, PodGroupObject, PodObject
from ddpjob_operator.cluster.store import Children, Store
from ddpjob_operator.engine import (
    DISRUPTION_BUDGET,
    KUEUE_API,
    KUEUE_WORKLOAD,
    NETWORK_POLICY,
    POD_GROUP,
    SCHEDULING_API,
    SERVICE,
    VOLCANO_GROUP,
    WORKLOAD,
    CreatePod,
    Manifest,
    OwnedKind,
    Queue,
    Settings,
)
from ddpjob_operator.engine.changes import changed
from ddpjob_operator.engine.manifests.children import build_disruption_budget, build_network_policy, build_service
from ddpjob_operator.engine.manifests.kueue_workload import build_kueue_workload
from ddpjob_operator.engine.manifests.pod_groups import build_pod_group, build_workload

from tests.unit.engine.builders import a_job

from .manifests import nobody


@cache
def job() -> DDPJob:
    return a_job(nodes=2).called(uid="job-uid").grouped().decided().snapshot.job


Made = Callable[[], Manifest]
Kept = Callable[[Store], Children[Any, Any]]


def owned(kind: OwnedKind, build: Callable[[DDPJob], Manifest]) -> tuple[Made, Kept]:
    return lambda: build(job()), lambda store: store.owned[kind]


CHILDREN: dict[str, tuple[Made, Kept]] = {
    "Pod": (lambda: CreatePod(1, job()).build(), lambda store: store.pods),
    "Service": owned(SERVICE, build_service),
    "NetworkPolicy": owned(NETWORK_POLICY, lambda job: build_network_policy(job, Settings())),
    "PodDisruptionBudget": owned(DISRUPTION_BUDGET, build_disruption_budget),
    "Workload": owned(WORKLOAD, build_workload),
    "PodGroup": owned(POD_GROUP, build_pod_group),
    "PodGroup of Volcano": owned(VOLCANO_GROUP, build_pod_group),
    "Workload of Kueue": owned(KUEUE_WORKLOAD, lambda job: build_kueue_workload(job, Queue("q"))),
}


def in_reference(**what: Any) -> Callable[[Manifest], None]:
    return lambda metadata: metadata["ownerReferences"][0].update(what)


TYPES: dict[tuple[str, str], type[Object]] = {
    ("v1", "Pod"): PodObject,
    (SCHEDULING_API, "PodGroup"): PodGroupObject,
    (KUEUE_API, "Workload"): KueueWorkloadObject,
}

FORGERIES: dict[str, Callable[[Manifest], None]] = {
    "in another namespace": lambda metadata: metadata.update(namespace="attacker"),
    "of an unknown kind": in_reference(kind="Unknown"),
    "of another API group": in_reference(apiVersion="attacker.dev/v1alpha1"),
    "of the core group": in_reference(apiVersion="v1"),
    "of a job of another name": in_reference(name="other"),
    "of a job of another uid": in_reference(uid="other"),
    "by an owner that does not control it": in_reference(controller=False),
    "without an owner": lambda metadata: metadata.pop("ownerReferences"),
    "under a name of its own": lambda metadata: metadata.update(name="forged"),
    "under a name that only begins so": lambda metadata: metadata.update(name=f"{metadata['name']}-forged"),
}


def count(manifest: Manifest, kept: Kept) -> int:
    """How many objects the job has once one like this was seen, wherever it came from."""
    store = Store(nobody)
    document = {**manifest, "metadata": {**manifest["metadata"], "uid": "uid", "resourceVersion": "1"}}
    kept(store).update(msgspec.convert(document, TYPES.get((manifest["apiVersion"], manifest["kind"]), Object)))
    return len(kept(store).owned_by(job().ref))


@pytest.mark.parametrize(("made", "kept"), CHILDREN.values(), ids=CHILDREN)
def test_what_is_made_for_a_job_is_its_own_whichever_version_its_api_has(made: Made, kept: Kept) -> None:
    newer = made()
    in_reference(apiVersion="ddpjob.dev/v2")(newer["metadata"])
    assert (count(made(), kept), count(newer, kept)) == (1, 1)


@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES)
@pytest.mark.parametrize(("made", "kept"), CHILDREN.values(), ids=CHILDREN)
def test_what_lacks_one_mark_of_that_is_not(made: Made, kept: Kept, forge: Callable[[Manifest], None]) -> None:
    forged = made()
    forge(forged["metadata"])
    assert count(forged, kept) == 0


@pytest.mark.parametrize(
    "labels",
    [{Label.NODE: "0"}, {Label.INCARNATION: "2"}, {Label.JOB_UID: "other"}, {Label.NODE: "9" * 5000}],
    ids=["of another node", "of another incarnation", "of another uid", "of a node that there cannot be"],
)
def test_a_pod_has_the_name_that_its_labels_give_it(labels: dict[str, str]) -> None:
    made, kept = CHILDREN["Pod"]
    forged = made()
    forged["metadata"]["labels"] |= labels
    assert count(forged, kept) == 0


def test_a_pod_of_a_former_incarnation_is_the_jobs_too() -> None:
    status = changed(job().status, incarnations=job().status.bookkeeping.incarnations.renewed())
    made, kept = CHILDREN["Pod"]
    manifest = CreatePod(1, job().with_status(status)).build()
    assert manifest["metadata"]["name"] != made()["metadata"]["name"]
    assert count(manifest, kept) == 1


def test_there_is_a_row_for_each_kind_that_the_store_keeps_of_jobs() -> None:
    store = Store(nobody)
    kept = {id(one) for one in (store.pods, *store.owned.values())}
    assert kept == {id(kept(store)) for _, kept in CHILDREN.values()}
