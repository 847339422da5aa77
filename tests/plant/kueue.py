"""Kueue beside a plant, as its own manifests install it. Besides its own kinds, it manages only batch/v1 Jobs."""

from pathlib import Path
from typing import Any

import yaml

from tests.support.api_client import ApiError

from . import build
from .api import ADMINS, Plant
from .processes import Program, reserve_port
from .webhooks import Webhooks, certify, create_all, is_ready

API = "kueue.x-k8s.io/v1beta2"
NAMESPACE = "kueue-system"
CRDS = "config/components/crd/bases"
WEBHOOKS = "config/components/webhook/manifests.yaml"
CONVERTED = ("clusterqueues", "cohorts", "localqueues", "multikueueclusters", "workloads")
"""The kinds whose versions v1beta1 and v1beta2 differ. A webhook converts between these."""
OWN = "-kueue-x-k8s-io-"
"""A part of the path of each webhook for Kueue's own kinds."""
GATES = {
    # Kueue's API that lists waiting workloads. It needs a Service.
    "VisibilityOnDemand": False,
}


def start_kueue(plant: Plant, **gates: bool) -> Program:
    """Starts Kueue, and waits until it is ready. It ends with the plant.

    gates  feature gates to change from their defaults, or from `GATES`

    Raises:
        PlantError: Kueue did not start. The message contains the end of its log.
    """
    files = build.path("kueue").parent
    folder = plant.directory / "kueue"
    plant.kubectl("create", "namespace", NAMESPACE)
    authority = certify(
        plant,
        folder,
        authority="kueue-ca",
        service="kueue-webhook-service",
        namespace=NAMESPACE,
        secret="kueue-webhook-server-cert",
    )
    with reserve_port() as for_webhooks, reserve_port() as for_probes:
        port, probes = (held.getsockname()[1] for held in (for_webhooks, for_probes))
        webhooks = Webhooks(f"https://127.0.0.1:{port}", authority)
        _install_crds(plant, files, webhooks)
        paths = _install_webhooks(plant, files, webhooks)
        program = plant.programs.start(
            "kueue",
            "env",
            f"KUBECONFIG={plant.kubeconfig_for('kueue', ADMINS)}",
            build.path("kueue"),
            f"--config={_configuration(folder, port, probes, GATES | gates)}",
            "--zap-log-level=2",
        )
        plant.wait("Kueue to be ready", lambda: is_ready(probes))
        plant.wait("Kueue's webhooks", lambda: all(map(webhooks.serves, paths)))
    return program


def install_kinds(plant: Plant, *names: str) -> None:
    """Installs some of Kueue's kinds without Kueue itself, so that nobody converts or manages their objects.

    names  names of CustomResourceDefinitions
    """
    found = [_crd(file) for file in sorted((build.path("kueue").parent / CRDS).iterdir())]
    create_all(plant, [one for one in found if one["metadata"]["name"] in names])
    plant.wait("kinds of Kueue's", lambda: all(_can_be_listed(plant, name.partition(".")[0]) for name in names))


def _can_be_listed(plant: Plant, plural: str) -> bool:
    """Whether objects of a kind can be listed, which takes a moment after the CRD exists."""
    try:
        return plant.get(f"/apis/{API}/{plural}") is not None
    except ApiError:
        return False


def _crd(file: Path) -> dict[str, Any]:
    crd: dict[str, Any] = yaml.safe_load(file.read_text())
    return crd


def _configuration(folder: Path, port: int, probes: int, gates: dict[str, bool]) -> Path:
    file = folder / "configuration.yaml"
    configuration = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": NAMESPACE,
        "health": {"healthProbeBindAddress": f"127.0.0.1:{probes}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(folder)},
        "leaderElection": {"leaderElect": False},
        "integrations": {"frameworks": ["batch/job"]},
        "featureGates": gates,
    }
    file.write_text(yaml.safe_dump(configuration))
    return file


def _install_crds(plant: Plant, files: Path, webhooks: Webhooks) -> None:
    crds = [_crd(file) for file in sorted((files / CRDS).iterdir())]
    kinds = {crd["spec"]["names"]["plural"]: crd for crd in crds}
    for kind in CONVERTED:
        reached = {"clientConfig": webhooks.client_config("/convert"), "conversionReviewVersions": ["v1"]}
        kinds[kind]["spec"]["conversion"] = {"strategy": "Webhook", "webhook": reached}
    create_all(plant, crds)
    plant.wait("Kueue's kinds to be served", lambda: kinds.keys() <= _served(plant))


def _served(plant: Plant) -> set[str]:
    found = plant.get(f"/apis/{API}") or {"resources": ()}
    return {resource["name"] for resource in found["resources"]}


def _install_webhooks(plant: Plant, files: Path, webhooks: Webhooks) -> list[str]:
    found = [one for one in yaml.safe_load_all((files / WEBHOOKS).read_text()) if one]
    paths: list[str] = []
    for one in found:
        one["metadata"]["name"] = f"kueue-{one['metadata']['name']}"
        one["webhooks"] = [hook for hook in one["webhooks"] if OWN in hook["clientConfig"]["service"]["path"]]
        paths += webhooks.rewrite(one)
    create_all(plant, found)
    return paths
