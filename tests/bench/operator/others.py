"""Operators that others have built, with the certificates and webhooks that they want outside of a cluster."""

import json
import ssl
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.plant import Plant, build
from tests.plant.api import ADMINS
from tests.plant.certificates import Authority
from tests.plant.processes import Program, reserve_port

CERTIFICATES = Path("/tmp/k8s-webhook-server/serving-certs")
"""Where both look for those of their webhooks. So only one can run on a machine."""
VALID = timedelta(days=3650)
"""Certificates that end within three months they would replace by others, which have no address in them. Of keys they
know but RSA."""


@dataclass(frozen=True)
class Foreign:
    """What its installation consists of; files are those that are kept beside its binary."""

    user: str
    binary: str
    crds: str
    webhooks: str
    configurations: dict[str, str]
    """Names of webhook configurations in that file, and those that its installation gives them."""
    namespace: str
    service: str
    secret: str
    authority: str
    flags: str
    """With the ports of its webhooks and its probes, and a file with its configuration."""
    pods_label: str = ""
    """Its webhooks for pods see those that have this label."""


JOBSET = Foreign(
    user="jobset",
    binary="jobset",
    crds="config/components/crd/bases",
    webhooks="config/components/webhook/manifests.yaml",
    configurations={
        "mutating-webhook-configuration": "jobset-mutating-webhook-configuration",
        "validating-webhook-configuration": "jobset-validating-webhook-configuration",
    },
    namespace="jobset-system",
    service="jobset-webhook-service",
    secret="jobset-webhook-server-cert",
    authority="jobset-ca",
    flags="--config={config} --metrics-bind-address=0 --health-probe-bind-address=127.0.0.1:{probes}",
    pods_label="jobset.sigs.k8s.io/jobset-name",
)
TRAINING_OPERATOR = Foreign(
    user="training-operator",
    binary="training-operator",
    crds="manifests/base/crds",
    webhooks="manifests/base/webhook/manifests.yaml",
    configurations={"validating-webhook-configuration": "validator.training-operator.kubeflow.org"},
    namespace="kubeflow",
    service="training-operator",
    secret="training-operator-webhook-cert",
    authority="training-operator-ca",
    flags="--webhook-server-port={webhooks} --metrics-bind-address=0 --health-probe-bind-address=127.0.0.1:{probes}",
)


@contextmanager
def installed(plant: Plant, operator: Foreign, *flags: str, binary: str = "") -> Iterator[Program]:
    """An operator as its own manifests install it, ready, with more flags or of another binary."""
    files = build.path(operator.binary).parent
    for crd in sorted((files / operator.crds).glob("*_*.yaml")):
        plant.kubectl("create", "-f", crd)
    plant.kubectl("create", "namespace", operator.namespace)
    with reserve_port() as webhooks, reserve_port() as probes:
        ports = {"webhooks": webhooks.getsockname()[1], "probes": probes.getsockname()[1]}
        authority = _certify(plant, operator)
        webhook_urls = _register(plant, operator, files, f"https://127.0.0.1:{ports['webhooks']}", authority)
        config = _configuration(plant, ports["webhooks"])
        program = plant.programs.start(
            operator.user,
            "env",
            f"KUBECONFIG={plant.kubeconfig_for(operator.user, ADMINS)}",
            build.path(binary or operator.binary),
            *operator.flags.format(config=config, **ports).split(),
            *flags,
        )
        plant.wait(f"{operator.user} to be ready", lambda: _ready(ports["probes"]))
        # It says so before its webhooks are there.
        trusting = ssl.create_default_context(cadata=authority.certificate)
        plant.wait(f"the webhooks of {operator.user}", lambda: all(_serves(url, trusting) for url in webhook_urls))
        yield program


def _certify(plant: Plant, operator: Foreign) -> Authority:
    """Gives it certificates that it is content with and that hold for an address, as there is no DNS here."""
    authority = Authority(operator.authority, VALID, rsa.generate_private_key(65537, 2048))
    name = f"{operator.service}.{operator.namespace}.svc"
    pair = authority.server(name, reached_as=(name, "127.0.0.1"))
    files = {
        "ca.crt": authority.certificate,
        "ca.key": authority.key,
        "tls.crt": pair.certificate,
        "tls.key": pair.key,
    }
    secret = {"metadata": {"name": operator.secret, "namespace": operator.namespace}, "stringData": files}
    _create(plant, [{"apiVersion": "v1", "kind": "Secret", **secret}])
    CERTIFICATES.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        (CERTIFICATES / file).write_text(text)
    return authority


def _register(plant: Plant, operator: Foreign, files: Path, url: str, authority: Authority) -> list[str]:
    """Its webhooks, which the API server reaches by an address; returns their URLs."""
    urls: list[str] = []
    found = [one for one in yaml.safe_load_all((files / operator.webhooks).read_text()) if one]
    for configuration in found:
        configuration["metadata"]["name"] = operator.configurations[configuration["metadata"]["name"]]
        for hook in configuration["webhooks"]:
            path = hook["clientConfig"]["service"]["path"]
            bundle = b64encode(authority.certificate.encode()).decode()
            hook["clientConfig"] = {"url": f"{url}{path}", "caBundle": bundle}
            urls.append(f"{url}{path}")
            if path.endswith("-v1-pod"):
                label = {"key": operator.pods_label, "operator": "Exists"}
                hook["objectSelector"] = {"matchExpressions": [label]}
    _create(plant, found)
    return urls


def _configuration(plant: Plant, webhooks: int) -> Path:
    file = plant.directory / "jobset.yaml"
    head = {"apiVersion": "config.jobset.x-k8s.io/v1alpha1", "kind": "Configuration"}
    settings = {"leaderElection": {"leaderElect": False}, "webhook": {"port": webhooks}}
    file.write_text(yaml.safe_dump(head | settings))
    return file


def _create(plant: Plant, documents: list[dict[str, Any]]) -> None:
    plant.kubectl("create", "-f", "-", input="\n---\n".join(map(json.dumps, documents)))


def _ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _serves(url: str, trusting: ssl.SSLContext) -> bool:
    try:
        with urllib.request.urlopen(url, data=b"", context=trusting, timeout=5):
            return True
    except urllib.error.HTTPError as error:
        return error.code != 404
    except OSError:
        return False
