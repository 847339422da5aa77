"""The DDPJob type on a plant."""

from pathlib import Path

from ddpjob_operator.api.contract import API_VERSION

from tests.plant import Plant

CRD = Path(__file__).parents[2] / "deploy" / "crd.yaml"


def install_crd(plant: Plant) -> None:
    """As a user does it."""
    plant.kubectl("apply", "-f", CRD)
    # Not `kubectl wait`: it fails where the CRD is so new that it has no conditions yet.
    plant.wait("the CRD to be served", lambda: plant.get(f"/apis/{API_VERSION}"))
