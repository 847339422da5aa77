from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from ddpjob_operator.cluster.conversion import node_problem, pod_group_of, pod_of, volcano_group_of
from ddpjob_operator.cluster.kube.objects import NodeObject, PodGroupObject
from ddpjob_operator.engine import Disruption, Exit, Pod, PodGroup, Waiting

from .manifests import a_manifest, a_node, a_pod, read, trainer

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_TEXT = "2026-01-01T12:00:00Z"

UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no nodes"}
GATED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}
SCHEDULED = {"type": "PodScheduled", "status": "True", "lastTransitionTime": NOON_TEXT}
NO_SANDBOX = {"type": "PodReadyToStartContainers", "status": "False"}
GONE_AT_NOON = {**NO_SANDBOX, "lastTransitionTime": NOON_TEXT}
BEFORE, AFTER = "2026-01-01T11:59:59Z", "2026-01-01T12:00:01Z"
VOLUMES = "waiting for its volumes and network"
NO_MAP = {"reason": "CreateContainerConfigError", "message": 'configmap "settings" not found'}
PULLING = {"reason": "ImagePullBackOff", "message": "no such image"}

WAITING: dict[str, tuple[dict[str, Any], str]] = {
    "nothing is known yet": ({"phase": "Pending"}, ""),
    "no node has room": ({"phase": "Pending", "conditions": [UNSCHEDULABLE]}, "Unschedulable: no nodes"),
    "it is held back by gates": (
        {"phase": "Pending", "conditions": [GATED]},
        "SchedulingGated: Scheduling is blocked due to non-empty scheduling gates",
    ),
    "its volumes and network are made": ({"phase": "Pending", "conditions": [SCHEDULED, NO_SANDBOX]}, VOLUMES),
    "they are made, and nobody says of what its containers wait": (
        {
            "phase": "Pending",
            "conditions": [SCHEDULED, NO_SANDBOX],
            "containerStatuses": trainer(waiting={"reason": "ContainerCreating"}),
        },
        VOLUMES,
    ),
    "they are there": (
        {"phase": "Pending", "conditions": [SCHEDULED, {**NO_SANDBOX, "status": "True"}]},
        "",
    ),
    "a ConfigMap is missing": (
        {
            "phase": "Pending",
            "conditions": [SCHEDULED, {**NO_SANDBOX, "status": "True"}],
            "containerStatuses": trainer(waiting=NO_MAP),
        },
        'CreateContainerConfigError: configmap "settings" not found',
    ),
    "an init container goes before the trainer that waits for it": (
        {
            "phase": "Pending",
            "initContainerStatuses": [{"name": "fetch", "state": {"waiting": PULLING}}],
            "containerStatuses": trainer(waiting={"reason": "PodInitializing"}),
        },
        "ImagePullBackOff: no such image",
    ),
    "an init container is done": (
        {"phase": "Pending", "initContainerStatuses": [{"name": "fetch", "state": {"terminated": {"exitCode": 0}}}]},
        "",
    ),
    "containers are made": (
        {"phase": "Pending", "containerStatuses": trainer(waiting={"reason": "ContainerCreating"})},
        "",
    ),
    "the image cannot be pulled": (
        {"phase": "Pending", "containerStatuses": trainer(waiting=PULLING)},
        "ImagePullBackOff: no such image",
    ),
    "an init container's image cannot be pulled": (
        {"phase": "Pending", "initContainerStatuses": [{"name": "fetch", "state": {"waiting": PULLING}}]},
        "ImagePullBackOff: no such image",
    ),
    "the master's port is waited for": (
        {"phase": "Pending", "initContainerStatuses": [{"name": "wait-for-master", "state": {"running": {}}}]},
        "waiting for the master's port",
    ),
    "an init container of the template runs": (
        {"phase": "Pending", "initContainerStatuses": [{"name": "fetch", "state": {"running": {}}}]},
        "init container fetch runs",
    ),
    "the trainer runs": ({"containerStatuses": trainer(running={})}, ""),
    "whatever a condition says": (
        {"conditions": [SCHEDULED, NO_SANDBOX], "containerStatuses": trainer(running={})},
        "",
    ),
}


@pytest.mark.parametrize(("status", "expected"), WAITING.values(), ids=WAITING)
def test_a_pod_says_why_it_waits(status: dict[str, Any], expected: str) -> None:
    pod = pod_of(a_pod(**status))
    assert pod is not None
    assert str(pod.waiting or "") == expected
    assert pod.active


def test_a_pod_that_has_ended_waits_for_nothing_though_its_network_is_gone() -> None:
    pod = pod_of(a_pod(conditions=[SCHEDULED, NO_SANDBOX], containerStatuses=trainer(terminated={"exitCode": 1})))
    assert pod is not None
    assert pod.waiting is None


# A native sidecar is an init container that the kubelet restarts: it runs beside the trainer, and before it.
NATIVE = [{"name": "fetch"}, {"name": "logs", "restartPolicy": "Always"}, {"name": "wait-for-master"}]
LOGS: dict[str, Any] = {"name": "logs", "started": True, "state": {"running": {}}}
FETCHED = {"name": "fetch", "state": {"terminated": {"exitCode": 0}}}


def beside_a_sidecar(*inits: dict[str, Any], **status: Any) -> Pod:
    """A pod whose template, or a webhook, has put a native sidecar in."""
    manifest = a_manifest(conditions=[SCHEDULED], initContainerStatuses=[FETCHED, *inits], **status)
    manifest["spec"]["initContainers"] = NATIVE
    pod = pod_of(read(manifest))
    assert pod is not None
    return pod


SIDECARS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "it does not keep the trainer waiting": (LOGS, {"containerStatuses": trainer(running={})}, ""),
    "nor if it crashes beside the trainer": (
        LOGS | {"state": {"waiting": {"reason": "CrashLoopBackOff"}}},
        {"containerStatuses": trainer(running={})},
        "",
    ),
    "what waits for the master's port is told beside it": (
        LOGS,
        {"phase": "Pending", "containerStatuses": trainer(waiting={"reason": "PodInitializing"})},
        "waiting for the master's port",
    ),
    "it keeps the trainer waiting until it has started": (
        LOGS | {"started": False},
        {"phase": "Pending", "containerStatuses": trainer(waiting={"reason": "PodInitializing"})},
        "init container logs runs",
    ),
    "or if it cannot start": (
        LOGS | {"started": False, "state": {"waiting": PULLING}},
        {"phase": "Pending", "containerStatuses": trainer(waiting={"reason": "PodInitializing"})},
        "ImagePullBackOff: no such image",
    ),
}


@pytest.mark.parametrize(("sidecar", "status", "expected"), SIDECARS.values(), ids=SIDECARS)
def test_a_native_sidecar(sidecar: dict[str, Any], status: dict[str, Any], expected: str) -> None:
    runs = "phase" not in status
    waits = {"name": "wait-for-master", "state": {"terminated": {"exitCode": 0}} if runs else {"running": {}}}
    pod = beside_a_sidecar(sidecar, waits, **status)
    assert str(pod.waiting or "") == expected
    assert (pod.running, pod.steady) == (runs, runs), "a gang of thousands is looked at in no time"


def test_the_end_of_a_native_sidecar_is_not_that_of_an_init_container() -> None:
    killed = LOGS | {"state": {"terminated": {"exitCode": 137, "reason": "Error"}}}
    pod = beside_a_sidecar(killed, phase="Failed", reason="Evicted", message="low on disk")
    assert pod.exit == Exit(None, "Evicted", "low on disk", None)
    done = trainer(terminated={"exitCode": 0})[1:]
    assert not beside_a_sidecar(LOGS, containerStatuses=done).lingering, "the kubelet ends it after the trainer"


def test_a_sidecar_that_a_webhook_has_put_in_changes_nothing_while_the_trainer_runs() -> None:
    injected = {"name": "mesh", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    pod = pod_of(a_pod(conditions=[SCHEDULED], containerStatuses=[injected, *trainer(running={})]))
    assert pod is not None
    assert (pod.running, pod.waiting, pod.steady) == (True, None, True)


FAILED_INIT = {
    "name": "fetch",
    "state": {"terminated": {"exitCode": 3, "finishedAt": NOON_TEXT, "message": "no data"}},
}

CANNOT = {"exitCode": 1, "message": '{"cause": "ConfigError"}'}
REPORTS = {"name": "anything", "state": {"terminated": CANNOT}}

EXITS: dict[str, tuple[dict[str, Any], Exit | None]] = {
    "the trainer runs": ({"containerStatuses": trainer(running={})}, None),
    "the trainer is done": (
        {"containerStatuses": trainer(terminated={"exitCode": 0, "reason": "Completed", "finishedAt": NOON_TEXT})},
        Exit(0, "Completed", "", NOON),
    ),
    "the trainer was killed for its memory": (
        {"containerStatuses": trainer(terminated={"exitCode": 137, "reason": "OOMKilled", "message": "{}"})},
        Exit(137, "OOMKilled", "{}", None),
    ),
    "the pod was evicted before it ran": (
        {"phase": "Failed", "reason": "Evicted", "message": "low on disk"},
        Exit(None, "Evicted", "low on disk", None),
    ),
    "the pod was evicted while its trainer ran": (
        {"phase": "Failed", "reason": "Evicted", "message": "m", "containerStatuses": trainer(running={})},
        Exit(None, "Evicted", "m", None),
    ),
    "an init container failed and left a report": (
        {"phase": "Failed", "initContainerStatuses": [REPORTS]},
        Exit(None, "InitContainerFailed", '{"cause": "ConfigError"}', None),
    ),
    "an init container failed": (
        {"phase": "Failed", "initContainerStatuses": [FAILED_INIT]},
        Exit(None, "InitContainerFailed", "init container fetch: no data", NOON),
    ),
}


@pytest.mark.parametrize(("status", "expected"), EXITS.values(), ids=EXITS)
def test_the_result_of_a_rank_is_the_exit_of_its_trainer(status: dict[str, Any], expected: Exit | None) -> None:
    pod = pod_of(a_pod(**status))
    assert pod is not None
    assert pod.exit == expected
    assert pod.running == (expected is None)


def test_other_containers_that_outlive_the_trainer_linger() -> None:
    proxy, done = trainer(terminated={"exitCode": 0})
    beside, alone = pod_of(a_pod(containerStatuses=[proxy, done])), pod_of(a_pod(containerStatuses=[done]))
    assert beside is not None
    assert alone is not None
    assert beside.lingering
    assert not alone.lingering, "although its phase is Running for a moment more: deleting it would lose its log"


@pytest.mark.parametrize(("grace", "forced"), [(1, False), (0, True)])
def test_a_pod_that_is_still_there_without_any_grace_was_removed_by_force(grace: int, *, forced: bool) -> None:
    manifest = a_manifest()
    manifest["metadata"] |= {"deletionTimestamp": NOON_TEXT, "deletionGracePeriodSeconds": grace}
    pod = pod_of(read(manifest))
    assert pod is not None
    assert pod.forced == forced


def test_a_pod_that_is_being_deleted_says_until_when() -> None:
    manifest = a_manifest()
    manifest["metadata"]["deletionTimestamp"] = NOON_TEXT
    pod = pod_of(read(manifest))
    assert pod is not None
    assert (pod.deleting, pod.gone_by) == (True, NOON)


@pytest.mark.parametrize(
    ("grace", "ago", "at_least"), [(30, 30, 30), (2, 2, 2), (1, None, 1), (0, None, 0), (None, None, 0)]
)
def test_a_pod_that_is_being_deleted_says_since_when_or_for_how_long_at_least_where_its_grace_was_cut_to_nothing(
    grace: int | None, ago: int | None, at_least: int
) -> None:
    manifest = a_manifest()
    manifest["metadata"] |= {"deletionTimestamp": NOON_TEXT, "deletionGracePeriodSeconds": grace}
    pod = pod_of(read(manifest))
    assert pod is not None
    assert pod.told_at == (None if ago is None else NOON - timedelta(seconds=ago))
    assert pod.told_by == NOON - timedelta(seconds=at_least)


def ran(begin: str, end: str) -> list[dict[str, Any]]:
    """A trainer that ran from then until then."""
    return trainer(terminated={"exitCode": 143, "startedAt": begin, "finishedAt": end})


TARGET = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "evicting"}
EVICTED = {"phase": "Failed", "reason": "Evicted", "message": "low on disk"}

# What an API server says of a pod: in its metadata, spec and status -> what the engine sees.
SEEN: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "when it was made": (
        {"creationTimestamp": NOON_TEXT},
        *({}, {}, {"created_at": NOON}),
    ),
    "when it was given its node": (
        *({}, {}, {"conditions": [SCHEDULED]}),
        {"scheduled_at": NOON, "node_name": "node-1"},
    ),
    "not when it was found that it has no place": (
        *({}, {"nodeName": None}, {"conditions": [{**UNSCHEDULABLE, "lastTransitionTime": NOON_TEXT}]}),
        {"scheduled_at": None, "node_name": None, "waiting": Waiting("Unschedulable", "no nodes")},
    ),
    "that it has been promised one": (
        *({}, {"nodeName": None}, {"conditions": [UNSCHEDULABLE], "nominatedNodeName": "node-2"}),
        {"nominated": True, "node_name": None},
    ),
    "in which topology domain it was told to be": (
        *({"annotations": {"ddpjob.dev/topology-domain": "rack-1", "another's": "note"}}, {}, {}),
        {"domain": "rack-1"},
    ),
    "that it was told nothing of one": (
        *({"annotations": {"another's": "note"}}, {}, {}),
        {"domain": None},
    ),
    "that a checkpoint was requested": (
        *({"annotations": {"ddpjob.dev/checkpoint-request": "a"}}, {}, {}),
        {"checkpoint_request": "a"},
    ),
    "of a request that is none only its beginning": (
        *({"annotations": {"ddpjob.dev/checkpoint-request": "a" * 100_000}}, {}, {}),
        {"checkpoint_request": "a" * 64},
    ),
    "its priority": (
        *({}, {"priority": 1000}, {}),
        {"priority": 1000},
    ),
    "that the cluster takes it away": (
        *({}, {}, {"conditions": [TARGET]}),
        {"disruption": Disruption("EvictionByEvictionAPI", "evicting")},
    ),
    "not that the cluster has thought better of it": (
        *({}, {}, {"conditions": [{**TARGET, "status": "False"}]}),
        {"disruption": None},
    ),
    "that its kubelet has ended it": (
        *({}, {}, EVICTED),
        {
            "reason": "Evicted",
            "message": "low on disk",
            "exit": Exit(None, "Evicted", "low on disk"),
            "running": False,
        },
    ),
    "and how its trainer took it": (
        *({}, {}, {**EVICTED, "containerStatuses": trainer(terminated={"exitCode": 143, "reason": "Error"})}),
        {"reason": "Evicted", "message": "low on disk", "exit": Exit(143, "Error")},
    ),
    "that its node did not take it": (
        *({}, {}, {"phase": "Failed", "reason": "OutOfcpu", "message": "not enough cpu"}),
        {"reason": "OutOfcpu", "exit": Exit(None, "OutOfcpu", "not enough cpu")},
    ),
    "that its sandbox is gone, and its trainer still runs": (
        *({}, {}, {"conditions": [GONE_AT_NOON], "containerStatuses": trainer(running={"startedAt": BEFORE})}),
        {"sandbox_lost": True, "running": True},
    ),
    "that its sandbox was gone before its trainer was": (
        *({}, {}, {"conditions": [GONE_AT_NOON], "containerStatuses": ran(BEFORE, AFTER)}),
        {"sandbox_lost": True, "running": False},
    ),
    "not that its sandbox is removed after its end": (
        *({}, {}, {"conditions": [GONE_AT_NOON], "containerStatuses": ran(BEFORE, BEFORE)}),
        {"sandbox_lost": False},
    ),
    "not that it is removed in the second of its end, which any program could come to": (
        *({}, {}, {"conditions": [GONE_AT_NOON], "containerStatuses": ran(BEFORE, NOON_TEXT)}),
        {"sandbox_lost": False},
    ),
    "not that nobody saw the sandbox of a trainer that soon failed": (
        *({}, {}, {"conditions": [GONE_AT_NOON], "containerStatuses": ran(NOON_TEXT, AFTER)}),
        {"sandbox_lost": False},
    ),
    "not that it has one": (
        *(
            {},
            {},
            {
                "conditions": [{**GONE_AT_NOON, "status": "True"}],
                "containerStatuses": trainer(running={"startedAt": BEFORE}),
            },
        ),
        {"sandbox_lost": False},
    ),
    "that we told it to end and to stay": (
        *({}, {"activeDeadlineSeconds": 1}, {"containerStatuses": trainer(running={})}),
        {"stopped": True, "running": True},
    ),
    "not that its template gives it some time": (
        *({}, {"activeDeadlineSeconds": 3600}, {"containerStatuses": trainer(running={})}),
        {"stopped": False},
    ),
    "that it is none of that": (
        *({}, {}, {"containerStatuses": trainer(running={})}),
        {
            "running": True,
            "exit": None,
            "deleting": False,
            "waiting": None,
            "nominated": False,
            "priority": 0,
            "created_at": None,
            "scheduled_at": None,
            "reason": "",
            "message": "",
            "disruption": None,
            "stopped": False,
            "gone_by": None,
            "lingering": False,
        },
    ),
}


@pytest.mark.parametrize(("metadata", "spec", "status", "expected"), SEEN.values(), ids=SEEN)
def test_a_pod_says(
    metadata: dict[str, Any], spec: dict[str, Any], status: dict[str, Any], expected: dict[str, Any]
) -> None:
    manifest = a_manifest(**status)
    manifest["metadata"] |= metadata
    manifest["spec"] |= spec
    pod = pod_of(read(manifest))
    assert pod is not None
    assert {name: getattr(pod, name) for name in expected} == expected


def taint(effect: str, key: str = "maintenance") -> dict[str, str]:
    return {"key": key, "effect": effect}


UNREACHABLE = "node.kubernetes.io/unreachable"
NODES: dict[str, tuple[NodeObject | None, str]] = {
    "well": (a_node(), ""),
    "gone": (None, "is gone"),
    "silent": (
        a_node(taint("NoExecute", UNREACHABLE), ready="Unknown", message="Kubelet stopped posting node status."),
        "is not ready: Kubelet stopped posting node status.",
    ),
    "not ready": (a_node(ready="False", message="disk failed"), "is not ready: disk failed"),
    "not ready, without a sentence": (a_node(ready="False"), "is not ready: KubeletReady"),
    "emptied by somebody": (a_node(taint("NoExecute")), ""),
    "closed for new pods": (a_node(taint("NoSchedule")), ""),
    "not wanted for new pods, and emptied": (
        a_node(taint("PreferNoSchedule"), taint("NoExecute", "sick")),
        "",
    ),
    "new": (a_node(ready=None), ""),
}


@pytest.mark.parametrize(("node", "expected"), NODES.values(), ids=NODES)
def test_what_is_wrong_with_a_node_that_is(node: NodeObject | None, expected: str) -> None:
    assert node_problem(node) == expected


def a_pod_group(status: str | None, **metadata: Any) -> PodGroupObject:
    """A PodGroup with this status of its condition; None: that it does not have yet."""
    words = {"reason": "Unschedulable", "message": "no room"}
    condition = {"type": "PodGroupInitiallyScheduled", "status": status, **words}
    said = {"conditions": [condition] if status else []}
    return msgspec.convert({"metadata": {"name": "digits-x", **metadata}, "status": said}, PodGroupObject)


POD_GROUPS: dict[str, tuple[PodGroupObject, PodGroup]] = {
    "that nobody has looked at": (a_pod_group(None), PodGroup("digits-x")),
    "that is placed": (a_pod_group("True"), PodGroup("digits-x")),
    "for which there is no room": (
        a_pod_group("False"),
        PodGroup("digits-x", Waiting("Unschedulable", "no room")),
    ),
    "that goes with its last pod": (
        a_pod_group("True", deletionTimestamp="2026-01-01T00:00:00Z"),
        PodGroup("digits-x", deleting=True),
    ),
}


@pytest.mark.parametrize(("seen", "expected"), POD_GROUPS.values(), ids=POD_GROUPS)
def test_what_is_known_of_a_pod_group(seen: PodGroupObject, expected: PodGroup) -> None:
    assert pod_group_of(seen) == expected


@pytest.mark.parametrize("deleted", [{}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}], ids=["stays", "goes"])
@pytest.mark.parametrize(
    ("phase", "waiting"),
    [
        ("Inqueue", Waiting("NotEnoughResources", "pod group is not ready")),
        ("Running", None),
        ("Unknown", None),
    ],
)
def test_what_volcano_says_of_a_group_holds_until_it_is_placed(
    phase: str, waiting: Waiting | None, deleted: dict[str, str]
) -> None:
    said = {"type": "Unschedulable", "status": "True", "reason": "NotEnoughResources"}
    status = {"phase": phase, "conditions": [said | {"message": "pod group is not ready"}]}
    seen = msgspec.convert({"metadata": {"name": "digits-x", **deleted}, "status": status}, PodGroupObject)
    assert volcano_group_of(seen) == PodGroup("digits-x", waiting=waiting, deleting=bool(deleted))


FOREIGN: dict[str, dict[str, Any]] = {
    "without a rank that is a number": {"rank": "first"},
    "without an incarnation that is a number": {"incarnation": ""},
}


@pytest.mark.parametrize("what", FOREIGN.values(), ids=FOREIGN)
def test_no_pod_of_a_job_is_one(what: dict[str, Any]) -> None:
    assert pod_of(a_pod(**what)) is None
