"""Any cluster: the one that KUBECONFIG names, with the programs that are on PATH."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.plant import Plant, PlantError, build
from tests.plant.certificates import Authority
from tests.plant.processes import Programs
from tests.support.api_client import ApiClient


@dataclass
class External(Plant):
    """A cluster that others have brought up, as far as tests can use it without its machines."""

    @property
    def kubeconfig(self) -> Path:
        """The one that was given."""
        return Path(os.environ["KUBECONFIG"])

    @cached_property
    def api(self) -> ApiClient:
        """A client with the rights of the kubeconfig, however it proves them: through `kubectl proxy`."""
        proxy = self.programs.start("kubectl-proxy", build.path("kubectl"), "proxy", "--port=0", "--reject-paths=")
        serving = re.compile(r"Starting to serve on (\S+)")
        found = self.wait("kubectl proxy", lambda: serving.search(proxy.log.read_text()))
        return ApiClient(f"http://{found[1]}")

    def close(self) -> None:
        """Ends what was started here to reach it."""
        if "api" in vars(self):
            self.api.close()
        self.programs.kill()


@contextmanager
def of_kubeconfig() -> Iterator[External]:
    """The current context's. What was started here to reach it is gone at exit.

    Raises:
        PlantError: there is no kubeconfig.
    """
    if "KUBECONFIG" not in os.environ:
        raise PlantError("PLANT=external needs KUBECONFIG: the kubeconfig of the cluster to test on")
    with TemporaryDirectory() as folder:
        directory = Path(folder)
        plant = External(directory, "", Authority(), Programs(directory / "logs"), service_accounts=True)
        try:
            yield plant
        finally:
            plant.close()
