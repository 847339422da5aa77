"""What of an object is kept in memory."""

from typing import Any

import msgspec
import pytest
from ddpjob_operator.cluster.kube.objects import (
    EventObject,
    JobObject,
    JobSummary,
    ObjectMeta,
    OwnerReference,
    PodSet,
    PodSpec,
    PriorityClassObject,
    Status,
    decoder,
    read,
)
from ddpjob_operator.cluster.store import StoredJob

from tests.unit.engine.builders import TEMPLATE

ANNOTATIONS = {
    "ddpjob.dev/finished": "Failed 1",
    "example.com/owner": "jane",
    "kubectl.kubernetes.io/last-applied-configuration": "{}",
    "argocd.argoproj.io/tracking-id": "a:b",
    "example.com/notes": "x" * 1025,
}


def a_job(annotations: Any) -> dict[str, Any]:
    return {"metadata": {"name": "digits", "annotations": annotations}}


@pytest.mark.parametrize(
    ("annotations", "finished", "others"),
    [
        (ANNOTATIONS, "Failed 1", {"example.com/owner": "jane"}),
        ({}, "", {}),
        (None, "", {}),
        ({"ddpjob.dev/finished": 7, "example.com/owner": ["jane"]}, "", {}),
    ],
)
def test_of_the_annotations_of_a_job_only_those_are_kept_that_somebody_may_need(
    annotations: Any, finished: str, others: dict[str, str]
) -> None:
    document = a_job(annotations)
    for job in (read(document, JobObject), decoder(JobObject).decode(msgspec.json.encode(document))):
        assert (job.metadata.annotations.finished, job.metadata.annotations.others) == (finished, others)


@pytest.mark.parametrize(
    ("annotations", "keeper"),
    [
        ({"argocd.argoproj.io/tracking-id": "apps:ddpjob.dev/DDPJob:team/digits"}, "Argo CD"),
        ({"kustomize.toolkit.fluxcd.io/name": "apps"}, "Flux"),
        ({"app.kubernetes.io/instance": "apps"}, ""),
    ],
)
def test_the_tool_that_keeps_a_job_as_its_repository_has_it_is_known(annotations: Any, keeper: str) -> None:
    assert read(a_job(annotations), JobObject).metadata.annotations.keeper == keeper


@pytest.mark.parametrize(
    ("value", "request_"),
    [("a-1", "a-1"), (" a\n", "a"), ("a" * 100, "a" * 63), ("ä b", "b"), ("\ud800", ""), (7, ""), (None, "")],
)
def test_a_request_is_a_word_that_comes_back_unchanged_from_a_file(value: Any, request_: str) -> None:
    job = read(a_job({"ddpjob.dev/checkpoint-request": value}), JobObject)
    assert job.metadata.annotations.checkpoint_request == request_


def test_a_trace_context_reaches_the_job_that_pods_are_built_from() -> None:
    trace = {"ddpjob.dev/traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
    job = read(a_job({**ANNOTATIONS, **trace, "ddpjob.dev/tracestate": "?"}), JobObject)
    assert job.metadata.annotations.of_submission == trace
    stored = StoredJob(read({**a_job({**ANNOTATIONS, **trace}), "spec": {"template": TEMPLATE}}, JobObject))
    assert stored.parsed().metadata.annotations == trace


def test_a_job_without_annotations_has_none() -> None:
    assert read({"metadata": {"name": "digits"}}, JobObject).metadata.annotations.others == {}


@pytest.mark.parametrize(
    ("kind", "given", "kept"),
    [
        (OwnerReference, {"uid": "1"}, {"api_version": "", "kind": "", "name": "", "controller": False}),
        (ObjectMeta, {}, {"generation": 1, "deletion_grace_period_seconds": None, "labels": {}}),
        (JobSummary, {}, {"state": "Pending", "restarts": 0, "disruptions": 0}),
        (PodSpec, {}, {"node_name": None, "priority": 0, "active_deadline_seconds": None}),
        (PodSet, {}, {"count": 1, "min_count": None}),
        (PriorityClassObject, {"metadata": {}}, {"value": 0}),
        (EventObject, {"metadata": {}}, {"reason": "", "count": 1}),
        (Status, {}, {"code": 0, "reason": "", "message": ""}),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_what_a_server_leaves_out_has_the_value_that_kubernetes_gives_it(
    kind: Any, given: dict[str, Any], kept: dict[str, Any]
) -> None:
    found = read(given, kind)
    assert {name: getattr(found, name) for name in kept} == kept
