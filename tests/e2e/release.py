"""The operator's release on the cluster of these tests: put there, changed, and taken away."""

from tests.plant import Plant
from tests.plant.images import TRAINER
from tests.support.helm import CHART, NAMESPACE, RELEASE, helm, settings

USUAL = (f"trainerImage={TRAINER}",)
"""What all tests find."""


def install(plant: Plant, *values: str) -> None:
    """Installs the release, or upgrades it, to the usual values and these alone; its pods are ready then."""
    words = ["--install", "--namespace", NAMESPACE, "--create-namespace", "--wait", "--timeout", "5m"]
    helm("upgrade", RELEASE, CHART, *words, "--reset-values", *settings([*USUAL, *values]), plant=plant)


def uninstall(plant: Plant) -> None:
    """Takes it away; its pods are gone then."""
    helm("uninstall", RELEASE, "--namespace", NAMESPACE, "--wait", plant=plant)
