"""The cluster's DNS: CoreDNS on this machine, which pods reach through the Service kube-dns."""

import json
from typing import Any

from tests.plant import build
from tests.plant.api import ADMINS, Plant
from tests.plant.processes import reserve_port

from .files import CLUSTER_DOMAIN, DNS_SERVICE

NAMESPACE = "kube-system"
PROTOCOLS = {"dns": "UDP", "dns-tcp": "TCP"}


def start_dns(plant: Plant, address: str) -> None:
    """Starts CoreDNS on an address that pods can reach."""
    with reserve_port(address) as held:
        port = held.getsockname()[1]
        config = plant.directory / "Corefile"
        config.write_text(_corefile(address, port, plant))
        plant.programs.start("coredns", build.path("coredns"), "-conf", config)
    documents = [_service(), _endpoints(address, port)]
    plant.kubectl("create", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}))


def _corefile(address: str, port: int, plant: Plant) -> str:
    return f"""\
.:{port} {{
    bind {address}
    errors
    kubernetes {CLUSTER_DOMAIN} in-addr.arpa {{
        kubeconfig {plant.kubeconfig_for("coredns", ADMINS)}
    }}
}}
"""


def _service() -> dict[str, Any]:
    """The Service. It has no selector, because its endpoints are written by hand."""
    ports = [{"name": name, "protocol": protocol, "port": 53} for name, protocol in PROTOCOLS.items()]
    spec = {"clusterIP": DNS_SERVICE, "ports": ports}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kube-dns", "namespace": NAMESPACE},
        "spec": spec,
    }


def _endpoints(address: str, port: int) -> dict[str, Any]:
    labels = {"kubernetes.io/service-name": "kube-dns"}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "kube-dns", "namespace": NAMESPACE, "labels": labels},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address]}],
        "ports": [{"name": name, "protocol": protocol, "port": port} for name, protocol in PROTOCOLS.items()],
    }
