"""The operator's release on the cluster of these tests: put there, changed, and taken away."""

from typing import Any

from tests.plant import Plant
from tests.plant.images import TRAINER
from tests.support.helm import CHART, CLUSTER_CHART, CLUSTER_RELEASE, NAMESPACE, RELEASE, HelmError, helm, settings
from tests.support.jobs import Team

from .work import LONG, a_script

STRICT = "--enable-admission-plugins=OwnerReferencesPermissionEnforcement"
"""Whoever makes pods that keep a job from being deleted must be allowed to do so, as on OpenShift."""

USUAL = (f"trainerImage={TRAINER}", "clockSettlingSeconds=1")
"""What all tests find: among it an operator that lets deadlines and timeouts have an effect soon after its start."""


def install(plant: Plant, *values: str) -> None:
    """Installs or upgrades both releases, to the usual values and these alone; the pods are ready then."""
    words = ["--install", "--namespace", NAMESPACE, "--create-namespace", "--wait", "--timeout", "5m"]
    helm("upgrade", CLUSTER_RELEASE, CLUSTER_CHART, *words, plant=plant)
    try:
        helm("upgrade", RELEASE, CHART, *words, "--reset-values", *settings([*USUAL, *values]), plant=plant)
    except HelmError as error:
        error.add_note(plant.kubectl("describe", "pods", "--namespace", NAMESPACE))
        raise


def wait_for_admission(plant: Plant) -> None:
    """Until a first job has gone: for seconds after the CRD is there, admission refuses all that a job owns."""
    team = Team(plant)
    team.apply(a_script("first", ["true"], nodes=1))
    team.wait("Succeeded", "first", LONG)


def pods_of(plant: Plant) -> dict[str, str]:
    """Addresses of the operator's pods that are ready and stay, by their names."""
    pods = plant.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
    return {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in pods if _is_ready(pod)}


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = {one["type"]: one["status"] for one in pod["status"].get("conditions", ())}
    return "deletionTimestamp" not in pod["metadata"] and conditions.get("Ready") == "True"


def uninstall(plant: Plant, release: str = RELEASE) -> None:
    """Takes it away; its pods are gone then."""
    helm("uninstall", release, "--namespace", NAMESPACE, "--wait", plant=plant)
