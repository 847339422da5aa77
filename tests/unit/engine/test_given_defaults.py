"""What a job gets from the organisation's defaults, and what it sets itself."""

from typing import Any

import pytest
from ddpjob_operator.api import ConditionType, NetworkPolicy, PodSecurity
from ddpjob_operator.api.reasons import Reason
from ddpjob_operator.engine import SERVICE, Create, CreatePod, DeleteJob, Manifest, with_defaults

from .builders import Moment, a_job, defaults
from .tables import Table, rows, verdict


def a_template(trainer: dict[str, Any] | None = None, **pod: Any) -> dict[str, Any]:
    container = {"name": "trainer", "image": "trainer:1", **(trainer or {})}
    return {"spec": {"containers": [container], **pod}}


def pod_of(moment: Moment) -> Manifest:
    return next(action.build() for action in moment.decision.actions if isinstance(action, CreatePod))


def trainer_of(moment: Moment) -> Manifest:
    return next(one for one in pod_of(moment)["spec"]["containers"] if one["name"] == "trainer")


PROXY = {"name": "HTTPS_PROXY", "value": "http://proxy:3128"}
GPU = {"key": "gpu", "operator": "Exists"}
CA = {"name": "ca", "mountPath": "/etc/ca", "readOnly": True, "configMap": {"name": "ca"}}

PODS: dict[str, tuple[dict[str, Any], dict[str, Any], str, Any]] = {
    "pull secrets": ({"imagePullSecrets": [{"name": "r"}]}, {}, "imagePullSecrets", [{"name": "r"}]),
    "pull secrets beside its own": (
        {"imagePullSecrets": [{"name": "r"}, {"name": "own"}]},
        {"imagePullSecrets": [{"name": "own"}]},
        "imagePullSecrets",
        [{"name": "r"}, {"name": "own"}],
    ),
    "a node selector": ({"nodeSelector": {"pool": "a"}}, {}, "nodeSelector", {"pool": "a"}),
    "its own node selector": (
        {"nodeSelector": {"pool": "a", "zone": "z"}},
        {"nodeSelector": {"pool": "b"}},
        "nodeSelector",
        {"pool": "b", "zone": "z"},
    ),
}


@pytest.mark.parametrize(("settings", "pod", "field", "expected"), PODS.values(), ids=PODS.keys())
def test_a_pod_gets(settings: dict[str, Any], pod: dict[str, Any], field: str, expected: object) -> None:
    moment = a_job(template=a_template(**pod)).under(defaults(**settings))
    assert pod_of(moment)["spec"][field] == expected


def test_a_toleration_of_the_job_replaces_the_default_for_the_same_taint() -> None:
    own = {**GPU, "tolerationSeconds": 7}
    moment = a_job(template=a_template(tolerations=[own])).under(defaults(tolerations=[GPU, {"key": "spot"}]))
    assert pod_of(moment)["spec"]["tolerations"][:2] == [{"key": "spot"}, own]


def test_variables_reach_all_containers_and_each_container_s_own_win() -> None:
    sidecar = {"name": "sidecar", "image": "s", "env": [{"name": "HTTPS_PROXY", "value": "own"}]}
    template = a_template(initContainers=[{"name": "data", "image": "d"}])
    template["spec"]["containers"].append(sidecar)
    pod = pod_of(a_job(template=template).under(defaults(env=[PROXY])))["spec"]
    found = {
        one["name"]: [variable["value"] for variable in one["env"] if variable["name"] == "HTTPS_PROXY"]
        for one in (*pod["initContainers"], *pod["containers"])
    }
    assert found == {"data": [PROXY["value"]], "trainer": [PROXY["value"]], "sidecar": ["own"]}


def test_a_volume_is_mounted_in_all_containers() -> None:
    pod = pod_of(a_job().under(defaults(volumes=[CA])))["spec"]
    assert {"name": "ca", "configMap": {"name": "ca"}} in pod["volumes"]
    assert {"name": "ca", "mountPath": "/etc/ca", "readOnly": True} in pod["containers"][0]["volumeMounts"]


def test_a_volume_of_the_job_with_the_same_name_is_not_mounted_in_place_of_the_default() -> None:
    pod = pod_of(a_job(template=a_template(volumes=[{"name": "ca", "emptyDir": {}}])).under(defaults(volumes=[CA])))
    assert [one for one in pod["spec"]["volumes"] if one["name"] == "ca"] == [{"name": "ca", "emptyDir": {}}]
    assert "ca" not in [mount["name"] for mount in pod["spec"]["containers"][0]["volumeMounts"]]


def test_where_the_job_mounts_something_itself_the_default_is_not_mounted_and_need_not_exist() -> None:
    own = {"name": "mine", "mountPath": "/etc/ca/"}
    template = a_template({"volumeMounts": [own]}, volumes=[{"name": "mine", "emptyDir": {}}])
    pod = pod_of(a_job(template=template).under(defaults(volumes=[CA])))["spec"]
    assert mounted_at("/etc/ca", pod) == ["mine"]
    assert "ca" not in [volume["name"] for volume in pod["volumes"]]


def test_of_two_default_volumes_at_one_path_the_later_one_is_mounted() -> None:
    other = {"name": "other", "mountPath": "/etc/ca/", "emptyDir": {}}
    pod = pod_of(a_job().under(defaults(volumes=[CA, other])))["spec"]
    assert mounted_at("/etc/ca", pod) == ["other"]
    assert "ca" not in [volume["name"] for volume in pod["volumes"]]


def test_the_volume_of_the_checkpoint_is_mounted_rather_than_a_default_at_its_path() -> None:
    checkpoint = {"path": "/etc/ca", "volume": {"emptyDir": {}}}
    pod = pod_of(a_job(checkpoint=checkpoint).under(defaults(volumes=[CA])))["spec"]
    assert mounted_at("/etc/ca", pod) == ["ddpjob-checkpoint"]


def mounted_at(path: str, pod: Manifest) -> list[str]:
    """The volumes that the first container mounts at a path. The API server refuses a pod with more than one."""
    return [mount["name"] for mount in pod["containers"][0]["volumeMounts"] if mount["mountPath"].rstrip("/") == path]


@pytest.mark.parametrize(
    ("template", "expected"),
    [({"spec": {"containers": [{"name": "trainer"}]}}, "registry/t:2"), (a_template(), "trainer:1")],
    ids=["none of its own", "its own"],
)
def test_the_image(template: dict[str, Any], expected: str) -> None:
    moment = a_job(template=template).allows(trainer_image="operator:1").under(defaults(image="registry/t:2"))
    assert trainer_of(moment)["image"] == expected


def test_labels_and_annotations_are_on_everything_and_those_of_the_template_win_on_pods() -> None:
    template = {**a_template(), "metadata": {"labels": {"team": "own"}}}
    found = defaults(labels={"team": "default", "cost": "1"}, annotations={"a": "b"})
    moment = a_job(template=template).allows(labels=(("cost", "flag"), ("site", "x"))).under(found)
    service = next(
        action.manifest for action in moment.decision.actions if isinstance(action, Create) and action.kind is SERVICE
    )
    pod = pod_of(moment)["metadata"]
    assert {"cost": "1", "site": "x"}.items() <= service["metadata"]["labels"].items()
    assert {"team": "own", "cost": "1"}.items() <= pod["labels"].items()
    assert pod["annotations"]["a"] == service["metadata"]["annotations"]["a"] == "b"


@pytest.mark.parametrize(
    ("own", "expected"),
    [({}, NetworkPolicy.DISABLED), ({"network": {"policy": "Enabled"}}, NetworkPolicy.ENABLED)],
    ids=["none of its own", "its own"],
)
def test_the_network_policy(own: dict[str, Any], expected: NetworkPolicy) -> None:
    moment = a_job(**own).allows(network_policy=NetworkPolicy.ENABLED).under(defaults(networkPolicy="Disabled"))
    assert moment.decided().status.network.policy == expected


def test_the_pod_security() -> None:
    assert a_job().under(defaults(podSecurity="None")).decided().status.pod_security is PodSecurity.NONE
    assert a_job().under(defaults(image="x")).decided().status.pod_security is PodSecurity.RESTRICTED


@pytest.mark.parametrize(("own", "expected"), [({}, 5), ({"ttlSecondsAfterFinished": 9}, 9)])
def test_a_finished_job_is_deleted_after_the_time_of_its_default(own: dict[str, Any], expected: int) -> None:
    done = a_job(**own).under(defaults(ttlSecondsAfterFinished=5)).running().succeeds(0).settled()
    assert DeleteJob() not in done.after(expected - 1).decision.actions
    assert DeleteJob() in done.after(expected + 1).decision.actions


def test_a_deadline_ends_the_job() -> None:
    moment = a_job().under(defaults(activeDeadlineSeconds=100)).running().after(101).settled().gone().settled()
    failed = moment.condition(ConditionType.FAILED)
    assert (failed.status, failed.reason) == ("True", Reason.DEADLINE_EXCEEDED)


def test_a_job_without_a_queue_waits_in_the_default_one() -> None:
    moment = a_job().under(defaults(queue="training")).queues("training")
    assert moment.decided().status.condition(ConditionType.QUEUED) is not None


def test_the_history_has_a_place_of_the_default() -> None:
    assert (
        a_job().under(defaults(historyPath="s3://runs/history")).decided().status.history_path == "s3://runs/history"
    )


def test_what_a_job_begins_with_stays_for_its_life() -> None:
    first, later = defaults(image="a", env=[PROXY], ttlSecondsAfterFinished=5), defaults(env=[{"name": "OTHER"}])
    begun = a_job(nodes=2).under(first).running()
    assert begun.status.defaults == first
    assert begun.under(later).decision.empty
    resumed = begun.suspended().asks(suspend=False).under(later)
    assert resumed.settled().status.defaults == first


def test_a_job_that_waits_follows_its_defaults_until_it_begins() -> None:
    waiting = a_job(suspend=True).under(defaults(image="a")).settled()
    assert waiting.status.defaults is None
    later = defaults(image="b")
    assert waiting.asks(suspend=False).under(later).decided().status.defaults == later


def test_a_job_that_ends_before_it_begins_keeps_its_defaults_too() -> None:
    found = defaults(ttlSecondsAfterFinished=5)
    ended = a_job(cancel=True).under(found).settled()
    assert (ended.status.attempt, ended.status.defaults) == (0, found)


def test_a_job_that_began_when_there_were_no_defaults_gets_none() -> None:
    begun = a_job().running()
    assert begun.status.defaults is None
    assert begun.under(defaults(image="a", ttlSecondsAfterFinished=5)).decision.empty


UNKNOWN = "The defaults (ConfigMap system/ddpjob-defaults) have no key defaults.yaml"
unknown = a_job().but(defaults_unknown=UNKNOWN)
TABLE: Table = {
    "a job whose defaults are not known does not begin": (unknown, "", "Pending", UNKNOWN),
    "it begins once they are": (
        unknown.settled().but(defaults_unknown=""),
        "service +1.0",
        "Pending",
        "Creating 1 pod",
    ),
    "without an image it waits for the defaults first, which may name one": (
        a_job(template={"spec": {"containers": [{"name": "trainer"}]}}).but(defaults_unknown=UNKNOWN),
        "",
        "Pending",
        UNKNOWN,
    ),
}


@rows(TABLE)
def test_a_job_does_not_begin_without_knowing_its_defaults(moment: Moment, expected: tuple[str, str, str]) -> None:
    assert verdict(moment) == expected


def test_such_a_job_says_that_it_is_blocked_and_can_be_cancelled() -> None:
    blocked = unknown.settled().condition(ConditionType.BLOCKED)
    assert (blocked.status, blocked.reason) == ("True", Reason.DEFAULTS_UNKNOWN)
    assert unknown.settled().asks(cancel=True).settled().status.finished


def test_with_the_same_defaults_twice_a_job_is_the_same() -> None:
    found = defaults(image="x", env=[PROXY], tolerations=[GPU], volumes=[CA], nodeSelector={"a": "b"}, queue="q")
    once = with_defaults(a_job().snapshot.job, found)
    assert with_defaults(once, found) == once
