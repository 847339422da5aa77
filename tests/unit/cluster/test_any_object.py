"""Whatever an object has in its fields, it ends nothing: no list, no watch, no round."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from ddpjob_operator.api import DDPJobStatus
from ddpjob_operator.cluster import conversion
from ddpjob_operator.cluster.kube import api_client
from ddpjob_operator.cluster.kube.api_client import PODS, Resource
from ddpjob_operator.cluster.kube.objects import NodeObject, Object, PodObject
from ddpjob_operator.cluster.store import Store
from hypothesis import given
from hypothesis import strategies as st

from tests.support.seed import examples
from tests.unit.engine.builders import Moment, a_job

from .manifests import a_manifest, nobody

MOMENTS = ("0001-01-01T00:00:00Z", "1853-04-12T00:12:43Z", "1970-01-01T00:00:00Z", "2026-01-01T12:00:00Z")
ODD_MOMENTS = ("9999-12-31T23:59:59Z", "5195-10-25T21:46:40Z", "9999-12-31T23:59:59-14:00", "2026-01-01T12:00:00", "")
INTEGERS = (0, 1, -1, 137, 255, 2**31 - 1, -(2**31), 10**11, 2**63 - 1, -(2**63), 2**64, 10**400)
TEXTS = ("", "x", "True", "False", "1", "-1", "1" * 5000, "\ud800", "\0", "trainer", "Failed", "wörter " * 500)
WRONG: list[Any] = [None, True, -1, 1.5, "x", [], {}, [None], {"x": None}]


def values(kind: msgspec.inspect.Type) -> st.SearchStrategy[Any]:
    """What may stand in a field of this type, and now and then what may not."""
    return st.one_of(*[right(kind)] * 12, st.sampled_from(WRONG))


def right(kind: Any) -> st.SearchStrategy[Any]:
    """What may stand in a field of this type, as msgspec describes types."""
    return RIGHT.get(type(kind), lambda _: st.sampled_from(WRONG))(kind)


RIGHT: dict[type, Callable[[Any], st.SearchStrategy[Any]]] = {
    msgspec.inspect.StructType: lambda kind: st.fixed_dictionaries(
        {}, optional={field.encode_name: values(field.type) for field in kind.fields}
    ),
    msgspec.inspect.DateTimeType: lambda _: st.sampled_from(MOMENTS + ODD_MOMENTS),
    msgspec.inspect.IntType: lambda _: st.sampled_from(INTEGERS),
    msgspec.inspect.StrType: lambda _: st.sampled_from(TEXTS),
    msgspec.inspect.BoolType: lambda _: st.booleans(),
    msgspec.inspect.NoneType: lambda _: st.none(),
    msgspec.inspect.UnionType: lambda kind: st.one_of(*map(right, kind.types)),
    msgspec.inspect.DictType: lambda kind: st.dictionaries(
        st.sampled_from(TEXTS[:5]), values(kind.value_type), max_size=3
    ),
    msgspec.inspect.VarTupleType: lambda kind: st.lists(values(kind.item_type), max_size=3),
}


def arrived(resource: Resource[Any], manifest: Any) -> Any:
    """An object as a list or a watch gives it, if at all."""
    return api_client._one_of(resource, msgspec.Raw(json.dumps(manifest).encode()))


RESOURCES = [one for one in vars(api_client).values() if isinstance(one, Resource) and issubclass(one.type, Object)]
CACHES = {
    "pods": "pods",
    "services": "services",
    "networkpolicies": "policies",
    "poddisruptionbudgets": "budgets",
    "podgroups.scheduling.k8s.io": "pod_groups",
    "podgroups.scheduling.volcano.sh": "volcano_groups",
    "workloads.kueue.x-k8s.io": "kueue_workloads",
    "ddpjobs.ddpjob.dev": "jobs",
}
"""Where objects of a kind are kept."""


@pytest.mark.hypothesis
@pytest.mark.parametrize("resource", RESOURCES, ids=str)
def test_an_object_of_any_kind_is_taken_in_or_set_aside(
    resource: Resource[Any], caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(nobody)
    base = {"name": "digits", "namespace": "team", "uid": "uid", "resourceVersion": "7"}

    @examples(0.6)
    @given(values(msgspec.inspect.type_info(resource.type)))
    def holds(manifest: Any) -> None:
        if isinstance(manifest, dict) and isinstance(manifest.get("metadata"), dict):
            manifest["metadata"] |= base
        seen = arrived(resource, manifest)
        if isinstance(seen, NodeObject):
            conversion.node_problem(seen)
        if isinstance(seen, Object) and str(resource) in CACHES:
            getattr(store, CACHES[str(resource)]).update(seen)

    caplog.set_level("CRITICAL", "ddpjob_operator.cluster.kube.api_client")
    holds()
    assert "this is a bug" not in caplog.text


def pods() -> st.SearchStrategy[dict[str, Any]]:
    """Pods that a job's gang may have, with anything in all other fields."""
    kind = msgspec.inspect.type_info(PODS.type)
    assert isinstance(kind, msgspec.inspect.StructType)
    parts = {field.encode_name: right(field.type) for field in kind.fields}
    own = a_manifest(0, 1)["metadata"]
    fields = ("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")

    def whole(parts: dict[str, Any]) -> dict[str, Any]:
        said = {name: parts["metadata"][name] for name in fields if name in parts["metadata"]}
        return {**parts, "metadata": {**own, **said}}

    return st.fixed_dictionaries(parts).map(whole)


GANG = a_job(nodes=2).running()


@given(pods())
def test_whatever_a_pod_says_its_job_is_decided_about(manifest: dict[str, Any]) -> None:
    seen = arrived(PODS, manifest)
    pod = conversion.pod_of(seen) if isinstance(seen, PodObject) else None
    if pod is None:
        return
    first, *others = GANG.snapshot.pods
    named = replace(pod, name=first.name, uid=first.uid, node=first.node, incarnation=first.incarnation)
    for moment in (GANG, GANG.after(4000)):
        pods = (named, *others)
        decision = Moment(replace(moment.snapshot, pods=pods)).decision
        if decision.status is not None:
            json.dumps(DDPJobStatus.model_validate(decision.status.to_dict()).to_dict()).encode()


@pytest.mark.parametrize("grace", [10**11, 2**63 - 1, 0, -1])
@pytest.mark.parametrize("at", [MOMENTS[0], MOMENTS[1], ODD_MOMENTS[1], ODD_MOMENTS[0]])
def test_a_pod_that_is_deleted_with_any_grace_period_is_being_deleted(grace: int, at: str) -> None:
    manifest = a_manifest(0, 1)
    manifest["metadata"] |= {"deletionTimestamp": at, "deletionGracePeriodSeconds": grace}
    pod = conversion.pod_of(arrived(PODS, manifest))
    assert pod is not None
    assert pod.deleting
    assert pod.told_by is not None
    assert pod.gone_by is not None
    assert conversion.EARLIEST <= pod.told_by <= pod.gone_by <= conversion.LATEST
