"""kube-controller-manager and kube-scheduler, which turn an API server into a cluster."""

from ddpjob_operator.engine import SCHEDULING_API

from . import build
from .api import Plant

POD_GROUP_GATES = ("--feature-gates=GenericWorkload=true",)
"""Flags for all programs of the control plane. In Kubernetes 1.37 this feature is beta, and off by default."""

POD_GROUP_API = (*POD_GROUP_GATES, f"--runtime-config={SCHEDULING_API}=true")
"""Flags for an API server that supports groups of pods."""

QUICKLY = ("--kube-api-qps=500", "--kube-api-burst=1000", "--leader-elect=false", "--secure-port=0")


def start_control(
    plant: Plant,
    *,
    node_grace_seconds: int,
    manager_flags: tuple[str, ...] = (),
    pod_groups: bool = False,
) -> None:
    """Starts both programs. A node that has been silent for the given number of seconds counts as lost.

    pod_groups  whether the scheduler places groups of pods; if so, the API server must support them
    """
    gates = POD_GROUP_GATES if pod_groups else ()
    pki = plant.directory / "pki"
    plant.programs.start(
        "kube-controller-manager",
        build.path("kube-controller-manager"),
        f"--kubeconfig={plant.kubeconfig_for('system:kube-controller-manager')}",
        f"--root-ca-file={pki}/ca.crt",
        f"--service-account-private-key-file={pki}/tokens.key",
        "--use-service-account-credentials",
        "--node-monitor-period=1s",
        f"--node-monitor-grace-period={node_grace_seconds}s",
        *QUICKLY,
        *gates,
        *manager_flags,
    )
    plant.programs.start(
        "kube-scheduler",
        build.path("kube-scheduler"),
        f"--kubeconfig={plant.kubeconfig_for('system:kube-scheduler')}",
        *QUICKLY,
        *gates,
    )
    plant.wait("the controller manager", lambda: plant.get("/api/v1/namespaces/default/serviceaccounts/default"))
