"""kube-controller-manager and kube-scheduler: what turns an API server into a cluster."""

from . import build
from .api import Plant

QUICKLY = ("--kube-api-qps=500", "--kube-api-burst=1000", "--leader-elect=false", "--secure-port=0")


def start_control(
    plant: Plant,
    *,
    node_grace_seconds: int,
    manager_flags: tuple[str, ...] = (),
    scheduler_flags: tuple[str, ...] = (),
) -> None:
    """Starts both; a node that has not been heard of for so long is taken for lost."""
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
        *manager_flags,
    )
    plant.programs.start(
        "kube-scheduler",
        build.path("kube-scheduler"),
        f"--kubeconfig={plant.kubeconfig_for('system:kube-scheduler')}",
        *QUICKLY,
        *scheduler_flags,
    )
    plant.wait("the controller manager", lambda: plant.get("/api/v1/namespaces/default/serviceaccounts/default"))
