"""The operator's own pods where others' policies hold: the page on policies says what to set in its chart."""

from tests.plant import Plant
from tests.support import foreign_policies
from tests.support.foreign_policies import POLICIES, REGISTRY, label
from tests.support.helm import CHART, RELEASE, helm, settings

from .test_release import forget_the_type, install_type

EXEMPT = {"allowed-users", "restrict-automount-sa-token"}
"""The policies from which the page has the operator exempted."""
VALUES = (f"image.registry={REGISTRY.rstrip('/')}", "resources.requests.memory=512Mi")


def test_the_operator_gets_its_pods_where_policies_hold_and_is_refused_where_it_has_to_be_exempt(bare: Plant) -> None:
    restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
    fitting = bare.new_namespace(**restricted, **{label(policy): "" for policy in POLICIES if policy not in EXEMPT})
    foreign_policies.hold(bare)
    install_type(bare)
    try:
        helm("install", RELEASE, CHART, "--namespace", fitting, *settings(VALUES), plant=bare)
        bare.wait("both replicas", lambda: len(bare.get(f"/api/v1/namespaces/{fitting}/pods")["items"]) == 2)
        helm("uninstall", RELEASE, "--namespace", fitting, plant=bare)
        for policy in sorted(EXEMPT):
            strict = bare.new_namespace(**{label(policy): ""})
            helm("install", RELEASE, CHART, "--namespace", strict, plant=bare)
            bare.wait(f"the refusal by {policy}", lambda there=strict, by=policy: _refused(bare, there, by))
            helm("uninstall", RELEASE, "--namespace", strict, plant=bare)
    finally:
        helm("uninstall", "ddpjob-cluster", "--namespace", "ddpjob-system", "--ignore-not-found", plant=bare)
        forget_the_type(bare)
        foreign_policies.forget(bare)


def _refused(plant: Plant, namespace: str, policy: str) -> bool:
    """Whether the Deployment says that a policy refuses its pods."""
    conditions = plant.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/{RELEASE}")["status"].get(
        "conditions", ()
    )
    return any(POLICIES[policy].message in one["message"] for one in conditions)
