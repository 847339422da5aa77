"""The DDPJob type on a plant."""

from pathlib import Path

from ddpjob_operator.api.contract import API_VERSION

from tests.plant import Plant
from tests.support.api_client import ApiError

CRD = Path(__file__).parents[2] / "deploy" / "crd.yaml"


def install_crd(plant: Plant, crd: Path = CRD, version: str = API_VERSION) -> None:
    """As a user does it."""
    plant.kubectl("apply", "-f", crd)
    wait_until_served(plant, version)


def wait_until_served(plant: Plant, version: str = API_VERSION) -> None:
    """For a CRD just applied. `kubectl wait` would fail where it is so new that it has no conditions yet."""
    plant.wait("the CRD to be served", lambda: _served(plant, version))


def _served(plant: Plant, version: str) -> bool:
    """Whether jobs can be listed; for a moment after the type is known they cannot."""
    try:
        return plant.get(f"/apis/{version}/ddpjobs") is not None
    except ApiError:
        return False
