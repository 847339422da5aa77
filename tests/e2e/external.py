"""Any cluster: the one that KUBECONFIG names, with the programs that are on PATH."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from tests.plant import Plant, PlantError
from tests.plant.certificates import Authority
from tests.plant.processes import Programs


@dataclass
class External(Plant):
    """A cluster that others have brought up, as far as tests can use it without its machines."""

    @classmethod
    def of_kubeconfig(cls) -> "External":
        """The current context's.

        Raises:
            PlantError: there is no kubeconfig.
        """
        if "KUBECONFIG" not in os.environ:
            raise PlantError("PLANT=external needs KUBECONFIG: the kubeconfig of the cluster to test on")
        directory = Path(mkdtemp())
        return cls(directory, "", Authority(), Programs(directory / "logs"), service_accounts=True)

    @property
    def kubeconfig(self) -> Path:
        """The one that was given."""
        return Path(os.environ["KUBECONFIG"])

    def text(self, path: str) -> str:
        """What is at a path of the API."""
        return self.kubectl("get", "--raw", path)

    def get(self, path: str) -> Any:
        """The JSON at a path of the API; None where there is nothing."""
        try:
            return json.loads(self.text(path))
        except PlantError as error:
            if "NotFound" in str(error):
                return None
            raise
