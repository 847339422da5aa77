"""The plant: the clusters on which the tests of the Kubernetes part run.

It comes up on this machine without Docker.
"""

from .api import Plant, start_api
from .errors import PlantError
from .fake import start_fake

__all__ = ["Plant", "PlantError", "start_api", "start_fake"]
