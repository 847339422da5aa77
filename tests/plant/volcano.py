"""Volcano's scheduler beside a plant, with its types and the configuration that its chart gives it."""

import urllib.request

from . import build
from .api import ADMINS, Plant
from .binaries import For
from .processes import Program, reserve_port

API = "scheduling.volcano.sh/v1beta1"
SCHEDULER = "volcano"
"""The name with which pods choose this scheduler."""
CRDS = "config/crd/volcano/bases"
CONFIGURATION = "installer/helm/chart/volcano/config/volcano-scheduler.conf"


def start_volcano(plant: Plant) -> Program:
    """Starts Volcano's scheduler beside Kubernetes' own. Builds it first if necessary. It ends with the plant.

    Raises:
        PlantError: It could not be built, or did not start. The message contains the end of its log.
    """
    build.build(For.VOLCANO)
    files = build.path("vc-scheduler").parent
    plant.kubectl("create", *(f"--filename={file}" for file in sorted((files / CRDS).iterdir())))
    with reserve_port() as held:
        address = f"127.0.0.1:{held.getsockname()[1]}"
        kubeconfig = plant.kubeconfig_for("vc-scheduler", ADMINS)
        program = plant.programs.start(
            "vc-scheduler",
            "env",
            # One of its plugins has no flag for this, and would use the user's own kubeconfig.
            f"KUBECONFIG={kubeconfig}",
            build.path("vc-scheduler"),
            f"--kubeconfig={kubeconfig}",
            f"--scheduler-conf={files / CONFIGURATION}",
            "--leader-elect=false",
            "--enable-healthz",
            f"--healthz-address={address}",
            "--cache-dumper=false",
            "--logtostderr",
            "--v=3",
        )
        plant.wait("Volcano's scheduler", lambda: _healthy(address))
    return program


def _healthy(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/healthz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
