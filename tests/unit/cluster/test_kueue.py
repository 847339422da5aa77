"""What the operator makes of Kueue's objects, and how it changes the status of one."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from ddpjob_operator.api.ownership import name_in_queue
from ddpjob_operator.cluster.conversion import Ref, kueue_workload_of, queue_of
from ddpjob_operator.cluster.kube.api_client import ApiClient, ApiError
from ddpjob_operator.cluster.kube.objects import FlavorObject, KueueWorkloadObject, PriorityClassObject, read
from ddpjob_operator.cluster.kueue import Flavors, _changed_status, patch_for, with_priority
from ddpjob_operator.cluster.refusals import Refused
from ddpjob_operator.cluster.store import Store
from ddpjob_operator.cluster.writer import Writer
from ddpjob_operator.engine import (
    KUEUE_WORKLOAD,
    Admission,
    Create,
    Flavor,
    Patch,
    Placement,
    Queue,
    Resize,
    Tell,
    Waiting,
)
from ddpjob_operator.engine.manifests.kueue_workload import build_kueue_workload

from tests.unit.engine.builders import a_job

from .manifests import DIGITS, UID, nobody, owned

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
NAME = name_in_queue(DIGITS)
JOB = Ref("team", "digits", UID, 1)
ASSIGNED = {"name": "nodes", "flavors": {"cpu": "plain", "gpu": "h100"}, "count": 2}
FULL = "insufficient unused quota"


def condition(kind: str, status: str, reason: str = "Because", message: str = "") -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def a_workload(*conditions: dict[str, Any], version: int = 1, **status: Any) -> dict[str, Any]:
    """The job's place in a queue, as the API server has it."""
    owner = owned()
    labels = {"ddpjob.dev/job-name": "digits"}
    own = {"name": NAME, "namespace": "team", "uid": "uid of workload", "resourceVersion": str(version)}
    return {
        "metadata": {
            **own,
            "labels": labels,
            "ownerReferences": [owner],
            "annotations": {"ddpjob.dev/asked": "0123"},
        },
        "spec": {
            "queueName": "training",
            "podSets": [{"name": "nodes", "count": 4}],
            "priorityClassRef": {"name": "high"},
        },
        "status": {"conditions": [*conditions], **status},
    }


ADMITTED = (condition("QuotaReserved", "True"), condition("Admitted", "True"))


def seen(document: dict[str, Any]) -> Any:
    return kueue_workload_of(read(document, KueueWorkloadObject))


def test_what_was_asked_for_is_known() -> None:
    place = seen(a_workload())
    assert (place.name, place.queue, place.priority_class) == (NAME, "training", "high")
    assert (place.nodes, place.asked, place.reserved, place.admission, place.waiting) == (
        4,
        "0123",
        False,
        None,
        None,
    )
    assert place.least is None


def test_so_is_how_few_nodes_will_do() -> None:
    document = a_workload()
    document["spec"]["podSets"][0]["minCount"] = 2
    assert seen(document).least == 2


@pytest.mark.parametrize(
    ("conditions", "reserved", "evicted", "waiting"),
    [
        pytest.param(
            [condition("QuotaReserved", "False", "Pending", FULL)],
            False,
            False,
            Waiting("Pending", FULL),
            id="it waits",
        ),
        pytest.param(
            [condition("QuotaReserved", "True"), condition("Admitted", "False", "UnsatisfiedChecks", "autoscaler")],
            *(True, False, Waiting("UnsatisfiedChecks", "autoscaler")),
            id="others have to agree",
        ),
        pytest.param(
            [*ADMITTED, condition("Evicted", "True", "Preempted", "a more important one")],
            *(True, True, Waiting("Preempted", "a more important one")),
            id="it is evicted",
        ),
        pytest.param(
            [condition("QuotaReserved", "False", "Pending", FULL), condition("Evicted", "True", "Preempted")],
            *(False, False, Waiting("Pending", FULL)),
            id="it was evicted, and waits again",
        ),
        pytest.param(
            [condition("Evicted", "True", "Deactivated", "The workload is deactivated")],
            *(False, False, Waiting("Deactivated", "The workload is deactivated")),
            id="it was deactivated before anybody looked at it",
        ),
    ],
)
def test_why_it_waits(conditions: Any, reserved: bool, evicted: bool, waiting: Waiting) -> None:  # noqa: FBT001  A table.
    place = seen(a_workload(*conditions))
    assert (place.reserved, place.evicted, place.waiting) == (reserved, evicted, waiting)


def test_what_it_is_admitted_with_comes_from_the_queue_and_from_what_else_had_to_agree() -> None:
    update = {
        "name": "nodes",
        "nodeSelector": {"pool": "new"},
        "tolerations": [{"key": "new"}],
        "labels": {"a": "b"},
        "annotations": {"c": "d"},
    }
    checks = [{"name": "autoscaler", "podSetUpdates": [update, {"name": "others", "labels": {"x": "y"}}]}]
    place = seen(a_workload(*ADMITTED, admission={"podSetAssignments": [ASSIGNED]}, admissionChecks=checks))
    placement = Placement({"pool": "new"}, ({"key": "new"},), {"a": "b"}, {"c": "d"})
    assert place.admission == Admission(2, frozenset({"plain", "h100"}), placement)
    racked = ASSIGNED | {"topologyAssignment": {"levels": ["rack"], "slices": []}}
    topology = seen(a_workload(*ADMITTED, admission={"podSetAssignments": [racked]})).admission
    assert topology.placement.topology


def test_a_queue_is_named_by_a_label() -> None:
    labels = {"kueue.x-k8s.io/queue-name": "training", "kueue.x-k8s.io/priority-class": "high"}
    assert queue_of(labels) == Queue("training", "high")
    assert queue_of({"kueue.x-k8s.io/priority-class": "high"}) is None
    assert queue_of(labels, "usual") == Queue("training", "high")
    assert queue_of({"kueue.x-k8s.io/priority-class": "high"}, "usual") == Queue("usual", "high")


def test_of_a_status_only_what_is_told_changes() -> None:
    before = {
        "admission": {"clusterQueue": "gpus"},
        "requeueState": {"count": 1},
        "conditions": [
            condition("Admitted", "True") | {"lastTransitionTime": "2026-01-01T00:00:00Z"},
            condition("Evicted", "True", "Preempted"),
        ],
    }
    change = Tell((("Admitted", False, "NoReservation", "none"),), releases=True)
    after = _changed_status(before, change, 3, NOW)
    assert after == {
        "requeueState": {"count": 1},
        "conditions": [
            {
                **condition("Admitted", "False", "NoReservation", "none"),
                "lastTransitionTime": "2026-01-01T12:00:00Z",
                "observedGeneration": 3,
            },
            condition("Evicted", "True", "Preempted"),
        ],
    }
    assert _changed_status(after, Tell(change.conditions), 3, NOW.replace(hour=13)) == after, "it is true since then"


class Server(ApiClient):
    """An API server with these objects by their names, or these errors."""

    def __init__(self, **objects: Any) -> None:
        self.objects = objects
        self.asked: list[str] = []
        self.made: list[Any] = []
        self.patched: list[Any] = []

    def now(self) -> datetime:
        return NOW

    async def get(self, _: Any, __: Any, name: str) -> Any:
        self.asked.append(name)
        found = self.objects.get(name.replace("-", "_"))
        if isinstance(found, ApiError):
            raise found
        return found

    async def create(self, _: Any, __: Any, body: Any) -> Any:
        self.made.append(body)
        return read(a_workload(version=2), KueueWorkloadObject)

    async def patch(self, _: Any, __: Any, name: str, version: str, changes: Any) -> Any:
        self.patched.append((name, version, changes))
        return a_workload(version=3)


def a_flavor(**spec: Any) -> Any:
    return read({"metadata": {"name": "h100"}, "spec": spec}, FlavorObject)


def test_a_flavor_is_read_once_for_all_pods_of_a_gang() -> None:
    api = Server(h100=a_flavor(nodeLabels={"gpu": "h100"}, tolerations=[{"key": "gpu"}]))
    flavors = Flavors(api)
    for _ in range(2):
        assert asyncio.run(flavors.read({"h100"})) == {"h100": Flavor({"gpu": "h100"}, ({"key": "gpu"},))}
    assert api.asked == ["h100"]


def test_of_a_flavor_that_cannot_be_read_it_is_said_why_and_it_is_asked_again() -> None:
    api = Server(h100=ApiError(403, "Forbidden", "nobody may"))
    flavors = Flavors(api)
    for _ in range(2):
        assert asyncio.run(flavors.read({"h100", "gone"})) == {
            "h100": Flavor(
                problem="Cannot read ResourceFlavor h100, which the queue assigned to the job: nobody may"
            ),
            "gone": Flavor(problem="ResourceFlavor gone, which the queue assigned to the job, does not exist"),
        }
    assert sorted(api.asked) == ["gone", "gone", "h100", "h100"]
    api.objects["h100"] = ApiError(429, "TooManyRequests", "busy")
    with pytest.raises(ApiError, match="busy"):
        asyncio.run(flavors.read({"h100"}))


@pytest.mark.parametrize("kind", ["WorkloadPriorityClass", "PriorityClass"])
def test_the_value_of_a_priority_class_is_looked_up(kind: str) -> None:
    api = Server(high=read({"metadata": {"name": "high"}, "value": 7}, PriorityClassObject))
    workload = {"spec": {"priorityClassRef": {"kind": kind, "name": "high"}}}
    assert asyncio.run(with_priority(api, workload))["spec"]["priority"] == 7
    assert asyncio.run(with_priority(api, {"spec": {}})) == {"spec": {}}


def test_a_priority_class_that_does_not_exist_is_a_refusal_that_says_so() -> None:
    writer = Writer(Server(), Store(nobody), lambda: True)
    workload = build_kueue_workload(a_job().called(uid=UID).snapshot.job, Queue("training", "missing"))
    action = Create(KUEUE_WORKLOAD, workload)
    with pytest.raises(Refused) as refused:
        asyncio.run(writer.carry_out((action,), JOB))
    assert refused.value.message.startswith("WorkloadPriorityClass missing does not exist: ")


def in_the_store() -> Store:
    store = Store(nobody)
    store.owned[KUEUE_WORKLOAD].update(read(a_workload(), KueueWorkloadObject))
    return store


@pytest.mark.parametrize(
    ("action", "name", "paths"),
    [
        (Patch(KUEUE_WORKLOAD, NAME, Resize(2, None)), NAME, ["/spec/podSets/0/count"]),
        (
            Patch(KUEUE_WORKLOAD, NAME, Resize(2, 1)),
            *(NAME, ["/spec/podSets/0/count", "/spec/podSets/0/minCount"]),
        ),
        (
            Patch(KUEUE_WORKLOAD, NAME, Tell((("Finished", True, "Succeeded", "done"),))),
            *(f"{NAME}/status", ["/status"]),
        ),
    ],
    ids=["smaller", "smaller elastic", "told"],
)
def test_it_is_changed_as_it_is_now(action: Any, name: str, paths: list[str]) -> None:
    api, store = Server(**{NAME.replace("-", "_"): a_workload(version=2)}), in_the_store()
    asyncio.run(Writer(api, store, lambda: True).carry_out((action,), JOB))
    ((changed, version, changes),) = api.patched
    assert (changed, version, [change["path"] for change in changes]) == (name, "2", paths)


def test_one_that_is_elastic_no_more_is_to_have_all_that_it_asks_for() -> None:
    there = a_workload()
    there["spec"]["podSets"][0]["minCount"] = 2
    part, changes = patch_for(there, Resize(4, None), NOW)
    assert (part, [(one["op"], one["path"]) for one in changes]) == (
        "",
        [("add", "/spec/podSets/0/count"), ("remove", "/spec/podSets/0/minCount")],
    )


@pytest.mark.parametrize("there", [None, a_workload() | {"metadata": {"uid": "another"}}], ids=["gone", "another"])
def test_one_that_is_not_there_any_more_is_left_alone_and_forgotten(there: Any) -> None:
    api, store = Server(**{NAME.replace("-", "_"): there}), in_the_store()
    asyncio.run(Writer(api, store, lambda: True).carry_out((Patch(KUEUE_WORKLOAD, NAME, Tell(())),), JOB))
    assert not api.patched
    assert not store.owned[KUEUE_WORKLOAD].owned_by(DIGITS)
