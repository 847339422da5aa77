"""The DDPJob type on a plant."""

from pathlib import Path

from ddpjob_operator.api.contract import API_VERSION

from tests.plant import Plant
from tests.support.api_client import ApiError

CRD = Path(__file__).parents[2] / "deploy" / "crd.yaml"


def install_crd(plant: Plant) -> None:
    """As a user does it."""
    plant.kubectl("apply", "-f", CRD)
    # Not `kubectl wait`: it fails where the CRD is so new that it has no conditions yet.
    plant.wait("the CRD to be served", lambda: _served(plant))


def _served(plant: Plant) -> bool:
    """Whether jobs can be listed; for a moment after the type is known they cannot."""
    try:
        return plant.get(f"/apis/{API_VERSION}/ddpjobs") is not None
    except ApiError:
        return False
