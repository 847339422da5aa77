"""What all objects of a job have because its template, the job itself or the operator's settings have it."""

from dataclasses import replace
from typing import Any

import pytest
from ddpjob_operator.api.inheritance import is_reserved
from ddpjob_operator.engine import SECRET, Create, CreatePod, Manifest
from ddpjob_operator.engine.owned import OWNED, VOLCANO_GROUP

from .builders import TEMPLATE, Moment, a_job, told

OURS = {
    "app.kubernetes.io/managed-by": "ddpjob-operator",
    "ddpjob.dev/job-name": "digits",
    "ddpjob.dev/job-uid": "uid-1",
}
QUEUE, ARGO = "kueue.x-k8s.io/queue-name", "argocd.argoproj.io/instance"
LABELS = {
    "team": "vision",
    "example.com/cost-center": "42",
    "app.kubernetes.io/part-of": "digits",
    # By these, tools know an object.
    QUEUE: "training",
    ARGO: "apps",
    "app.kubernetes.io/instance": "apps",
    "app.kubernetes.io/managed-by": "Helm",
    "ddpjob.dev/job-uid": "forged",
    "ddpjob.dev/node": "7",
}
ANNOTATIONS = {"example.com/owner": "jane", "prometheus.io/scrape": "true", "argocd.argoproj.io/tracking-id": "a:b"}
CARRIED = {"team": "vision", "example.com/cost-center": "42", "app.kubernetes.io/part-of": "digits"}


def a_marked_job(labels: dict[str, str] = LABELS, **spec: Any) -> Moment:
    template = {**TEMPLATE, "metadata": {"labels": labels, "annotations": ANNOTATIONS}}
    moment = a_job(nodes=2, template=template, network={"policy": "Enabled"}, **spec)
    return moment.grouped().guarded()


@told
def described(moment: Moment, **metadata: dict[str, str]) -> Moment:
    """The job itself has these labels or annotations."""
    return Moment(replace(moment.snapshot, **metadata))


def everything(moment: Moment) -> list[Manifest]:
    """All that is made for a job from its first look until it runs, apart from its pods."""
    started = moment.decided()
    asks = started.running().asks(disruption="AfterCheckpoint", checkpoint={"path": "/c"})
    actions = (*moment.queues().decision.actions, *moment.decision.actions, *asks.decision.actions)
    return [action.manifest for action in actions if isinstance(action, Create)]


def pods(moment: Moment) -> list[Manifest]:
    return [action.build() for action in moment.decision.actions if isinstance(action, CreatePod)]


def metadata(objects: list[Manifest], part: str) -> dict[tuple[str, str], dict[str, str]]:
    """The labels or annotations by API version and kind, without what Kueue's Workload has beside them."""
    return {
        (one["apiVersion"], one["kind"]): {
            key: value for key, value in one["metadata"].get(part, {}).items() if key not in OF_KUEUE
        }
        for one in objects
    }


OF_KUEUE = ("kueue.x-k8s.io/job-uid", "ddpjob.dev/asked")


def test_the_labels_of_the_template_are_those_of_all_that_the_job_owns_and_ours_win() -> None:
    made = metadata(everything(a_marked_job()), "labels")
    assert made.keys() == {(kind.api_version, kind.kind) for kind in OWNED if kind is not VOLCANO_GROUP}
    for kind, labels in made.items():
        assert labels == {**CARRIED, **OURS}, kind


def test_no_annotation_of_the_template_leaves_its_pods_unless_the_settings_name_it() -> None:
    moment = a_marked_job()
    assert not any(metadata(everything(moment), "annotations").values())
    for kind, annotations in metadata(
        everything(moment.allows(inherited_keys=("example.com/owner",))), "annotations"
    ).items():
        assert annotations == {"example.com/owner": "jane"}, kind


def test_of_the_job_itself_everything_has_what_the_settings_name_and_nothing_else() -> None:
    own = {"team": "language", "tier": "gold", QUEUE: "training"}
    moment = described(a_job(nodes=2), labels=own, annotations={"example.com/ticket": "7", "other": "x"})
    named = moment.allows(inherited_keys=("team", "example.com/ticket"))
    for one in (*everything(named), *pods(named)):
        labels, annotations = one["metadata"]["labels"], one["metadata"].get("annotations", {})
        assert labels["team"] == "language", one["kind"]
        assert not {"tier", QUEUE} & labels.keys(), one["kind"]
        assert annotations["example.com/ticket"] == "7", one["kind"]
        assert "other" not in annotations, one["kind"]


def test_labels_of_the_settings_are_on_everything_and_give_way_to_the_job_s_and_the_template_s() -> None:
    settings = {"labels": (("team", "all"), ("tier", "bronze"), ("zone", "a")), "inherited_keys": ("tier",)}
    moment = described(a_marked_job().allows(**settings), labels={"tier": "gold"})
    for one in (*everything(moment), *pods(moment)):
        found = {key: one["metadata"]["labels"][key] for key in ("team", "tier", "zone")}
        assert found == {"team": "vision", "tier": "gold", "zone": "a"}, one["kind"]


def test_pods_keep_all_labels_and_annotations_of_their_template() -> None:
    for pod in pods(a_marked_job()):
        assert (LABELS | OURS).items() <= {**pod["metadata"]["labels"], "ddpjob.dev/node": "7"}.items()
        assert ANNOTATIONS.items() <= pod["metadata"]["annotations"].items()


def test_what_a_job_has_started_with_stays_until_it_is_resumed() -> None:
    started = a_job(nodes=2).allows(labels=(("team", "blue"),)).decided()
    moved = started.allows(labels=(("team", "green"),))
    assert moved.serves().running().status.inherited == started.status.inherited
    (service,) = (
        a.manifest for a in moved.serves().decision.actions if isinstance(a, Create) and a.kind is not SECRET
    )
    assert service["metadata"]["labels"]["team"] == "blue"
    resumed = moved.running().asks(suspend=True).decided().gone().decided().asks(suspend=False).decided()
    assert resumed.status.inherited is not None
    assert resumed.status.inherited.labels == {"team": "green"}


def test_a_group_of_another_scheduler_has_them_too() -> None:
    spec = {**TEMPLATE["spec"], "schedulerName": "volcano"}
    moment = a_job(nodes=2, template={"metadata": {"labels": LABELS}, "spec": spec}).grouped()
    (group,) = (a.manifest for a in moment.decision.actions if isinstance(a, Create) and a.kind is VOLCANO_GROUP)
    assert group["metadata"]["labels"] == {**CARRIED, **OURS}


def test_a_job_without_any_of_this_has_nothing_of_it_in_its_status() -> None:
    assert "inherited" not in a_job(nodes=2).decided().status.to_dict()


@pytest.mark.parametrize("value", ["x" * 1025, "x" * 200_000])
def test_an_annotation_that_is_too_long_for_a_status_stays_where_it_is(value: str) -> None:
    template = {**TEMPLATE, "metadata": {"annotations": {"example.com/owner": value}}}
    moment = a_job(template=template).allows(inherited_keys=("example.com/owner",))
    assert moment.decided().status.inherited is None


RESERVED = (
    *("kubernetes.io/name", "app.kubernetes.io/name", "node.kubernetes.io/x", "k8s.io/x", "policy.k8s.io/x"),
    *("x-k8s.io/x", "kueue.x-k8s.io/queue-name", "scheduling.x-k8s.io/pod-group", "ddpjob.dev/node"),
    *("argocd.argoproj.io/instance", "argoproj.io/x", "workflows.argoproj.io/x", "argocd.example.com/x"),
    *("helm.sh/chart", "meta.helm.sh/release-name", "helm.toolkit.fluxcd.io/name"),
)
FREE = (
    *("team", "app", "k8s.io", "kubernetes.io", "helm.sh", "example.com/team", "mykubernetes.io/x", "notk8s.io/x"),
    *("app.kubernetes.io/part-of", "app.kubernetes.io/component", "app.kubernetes.io/version"),
    *("prometheus.io/scrape", "sidecar.istio.io/inject", "myhelm.sh/x", "example.com/argoproj.io"),
)


@pytest.mark.parametrize(("keys", "reserved"), [(RESERVED, True), (FREE, False)], ids=["reserved", "free"])
def test_keys_by_which_tools_know_an_object_stay_with_that_object(keys: tuple[str, ...], *, reserved: bool) -> None:
    assert [key for key in keys if is_reserved(key) != reserved] == []
