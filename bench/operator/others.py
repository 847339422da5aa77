"""Runs other projects' operators outside a cluster, with the certificates and webhooks that they need."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import yaml

from tests.plant import Plant, build
from tests.plant.api import ADMINS
from tests.plant.certificates import Authority
from tests.plant.processes import Program, reserve_port
from tests.plant.webhooks import Webhooks, certify, create_all, is_ready

CERTIFICATES = Path("/tmp/k8s-webhook-server/serving-certs")
"""The directory in which all of these operators look for their webhooks' certificates. So a machine can run only one
of them, together with operators that it needs."""


@dataclass(frozen=True)
class Foreign:
    """How to install an operator. Paths of files are relative to its binary."""

    user: str
    binary: str
    crds: str
    webhooks: str
    configurations: dict[str, str]
    """The name that the operator's installation gives to each webhook configuration in the file `webhooks`."""
    namespace: str
    service: str
    secret: str
    authority: str
    flags: str
    """The operator's command-line flags, with placeholders for the ports of webhooks and probes, and for the
    configuration file."""
    config: str = ""
    """The content of the configuration file, as YAML with the same placeholders for ports."""
    pods_label: str = ""
    """The label of the pods that the operator's webhooks for pods select."""


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
    config="""
apiVersion: config.jobset.x-k8s.io/v1alpha1
kind: Configuration
leaderElection: {{leaderElect: false}}
webhook: {{port: {webhooks}}}
""",
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


def trainer(qps: int, burst: int) -> Foreign:
    """Kubeflow's trainer, which creates JobSets. `qps` and `burst` limit its requests."""
    return Foreign(
        user="trainer",
        binary="trainer-controller-manager",
        crds="manifests/base/crds",
        webhooks="manifests/base/webhook/manifests.yaml",
        configurations={
            "mutating-webhook-configuration": "defaulter.trainer.kubeflow.org",
            "validating-webhook-configuration": "validator.trainer.kubeflow.org",
        },
        namespace="kubeflow-system",
        service="kubeflow-trainer-controller-manager",
        secret="kubeflow-trainer-webhook-cert",
        authority="kubeflow-trainer-ca",
        flags="--config={config}",
        config="""
apiVersion: config.trainer.kubeflow.org/v1alpha1
kind: Configuration
health: {{healthProbeBindAddress: "127.0.0.1:{probes}"}}
metrics: {{bindAddress: "0"}}
webhook: {{port: {webhooks}}}
leaderElection: {{leaderElect: false}}
certManagement: {{enable: false}}
controller:
  groupKindConcurrency: {{TrainJob.trainer.kubeflow.org: 5}}
"""
        f"clientConnection: {{{{qps: {qps}, burst: {burst}}}}}\n",
    )


@dataclass(frozen=True)
class Installed:
    """A running operator, and the authority that signed its certificates."""

    program: Program
    authority: Authority


@contextmanager
def installed(
    plant: Plant, operator: Foreign, *flags: str, binary: str = "", authority: Authority | None = None
) -> Iterator[Installed]:
    """Installs an operator as its own manifests do, with more flags or another binary, and waits until it is ready.

    `authority` is the authority of another operator's certificates, if these are already in the directory that both
    use.
    """
    files = build.path(operator.binary).parent
    _install_kinds(plant, files / operator.crds)
    plant.kubectl("create", "namespace", operator.namespace)
    with reserve_port() as webhooks, reserve_port() as probes:
        ports = {"webhooks": webhooks.getsockname()[1], "probes": probes.getsockname()[1]}
        authority = authority or certify(
            plant,
            CERTIFICATES,
            authority=operator.authority,
            service=operator.service,
            namespace=operator.namespace,
            secret=operator.secret,
        )
        served = Webhooks(f"https://127.0.0.1:{ports['webhooks']}", authority)
        paths = _register(plant, operator, files, served)
        config = plant.directory / f"{operator.user}.yaml"
        config.write_text(operator.config.format(**ports))
        program = plant.programs.start(
            operator.user,
            "env",
            f"KUBECONFIG={plant.kubeconfig_for(operator.user, ADMINS)}",
            build.path(binary or operator.binary),
            *operator.flags.format(config=config, **ports).split(),
            *flags,
        )
        plant.wait(f"{operator.user} to be ready", lambda: is_ready(ports["probes"]))
        # The operator reports that it is ready before its webhooks listen.
        plant.wait(f"the webhooks of {operator.user}", lambda: all(served.serves(path) for path in paths))
        yield Installed(program, authority)


def _install_kinds(plant: Plant, folder: Path) -> None:
    """Installs the operator's kinds, and waits until they are served: an operator ends if it does not find them."""
    crds = [yaml.load(file.read_text(), yaml.CSafeLoader) for file in sorted(folder.glob("*_*.yaml"))]
    create_all(plant, crds)
    for spec in (crd["spec"] for crd in crds):
        path = f"/apis/{spec['group']}/{spec['versions'][-1]['name']}"
        plant.wait("the operator's kinds", partial(_serves, plant, path, spec["names"]["plural"]))


def _serves(plant: Plant, path: str, plural: str) -> bool:
    """Whether a version of an API has this resource."""
    found = plant.get(path) or {"resources": ()}
    return any(resource["name"] == plural for resource in found["resources"])


def _register(plant: Plant, operator: Foreign, files: Path, served: Webhooks) -> list[str]:
    """Registers the operator's webhooks, and returns their paths."""
    paths: list[str] = []
    found = [document for document in yaml.safe_load_all((files / operator.webhooks).read_text()) if document]
    for configuration in found:
        configuration["metadata"]["name"] = operator.configurations[configuration["metadata"]["name"]]
        paths += served.rewrite(configuration)
        for hook in configuration["webhooks"]:
            if hook["clientConfig"]["url"].endswith("-v1-pod"):
                label = {"key": operator.pods_label, "operator": "Exists"}
                hook["objectSelector"] = {"matchExpressions": [label]}
    create_all(plant, found)
    return paths
