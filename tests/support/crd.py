"""Installs the DDPJob type on a plant."""

from pathlib import Path

from ddpjob_operator.api.contract import API_VERSION

from tests.plant import Plant
from tests.support.api_client import ApiError

CRD = Path(__file__).parents[2] / "deploy" / "crd.yaml"


def install_crd(plant: Plant, crd: Path = CRD, version: str = API_VERSION) -> None:
    """Installs the CRD as a user does."""
    plant.kubectl("apply", "-f", crd)
    wait_until_served(plant, version)


def wait_until_served(plant: Plant, version: str = API_VERSION) -> None:
    """Waits for a CRD that was just applied. (`kubectl wait` would fail while the CRD has no conditions yet.)"""
    plant.wait("the CRD to be served", lambda: _served(plant, version))


def _served(plant: Plant, version: str) -> bool:
    """Whether jobs can be listed, which takes a moment after the CRD exists."""
    try:
        return plant.get(f"/apis/{version}/ddpjobs") is not None
    except ApiError:
        return False
